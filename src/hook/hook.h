/* SPDX-License-Identifier: Apache-2.0 */
/* The hook object, as ddp and the hooks see it. */
#ifndef TALLY_HOOK_HOOK_H
#define TALLY_HOOK_HOOK_H

#include <stdatomic.h>

#include "tally.h"

struct tally_hook {
    tally_hook_table table; /* its name is ours */
    void *state;
    atomic_int n_holds; /* the maker's, and one per ddp or wrapper that uses it */
};

/* One more hold; tally_hook_free drops one. */
void tally__hook_hold(tally_hook *hook);

#endif
