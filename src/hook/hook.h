/* SPDX-License-Identifier: Apache-2.0 */
/* The hook object, as ddp sees it. */
#ifndef TALLY_HOOK_HOOK_H
#define TALLY_HOOK_HOOK_H

#include <stdatomic.h>

#include "tally.h"

struct tally_hook {
    tally_hook_table table;
    void *state;
    atomic_int n_holds; /* the maker's, and one per ddp that uses it */
};

/* The hook that sends gradients as they are. Errors: NOMEM. */
int tally__hook_all_reduce(tally_hook **hook);

/* One more hold; tally_hook_free drops one. */
void tally__hook_hold(tally_hook *hook);

#endif
