/* SPDX-License-Identifier: Apache-2.0 */
/* What all hooks around another hook share: the hold on it, and passing it what is its own. */
#ifndef TALLY_HOOK_WRAPPER_H
#define TALLY_HOOK_WRAPPER_H

#include "hook/hook.h"

/* The first member of a wrapper's state. */
struct tally__wrapper {
    tally_hook *inner;
};

/*
 * Makes a hook around inner: reduce is the wrapper's; attach, detach, save and load are inner's. On
 * success it owns state, which is from tally__alloc, and has a hold on inner; on failure neither.
 * Errors: NOMEM.
 */
int tally__wrapper_make(const char *name, struct tally__wrapper *state, tally_hook *inner,
                        int (*reduce)(void *, tally_lane *, const tally_bucket *),
                        tally_hook **hook);

#endif
