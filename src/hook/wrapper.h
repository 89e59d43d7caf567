/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all wrapper hooks share: holding the hook inside, and forwarding to it. */
#ifndef TALLY_HOOK_WRAPPER_H
#define TALLY_HOOK_WRAPPER_H

#include "hook/hook.h"

/* The first member of a wrapper's state. */
struct tally__wrapper {
    tally_hook *inner;
};

/* A table whose entries forward to the hook inside. A wrapper sets its reduce, and other entries as
 * it needs, before it calls tally__wrapper_make. */
struct tally__wrapper_table {
    tally_hook_table table;
    struct tally__hook_private private;
};
struct tally__wrapper_table tally__wrapper_table(const char *name, const tally_hook *inner);

/* The wrapper divides the ranks into groups. Errors: ARG if the hook inside does too. */
int tally__wrapper_divide(struct tally__wrapper_table *table, const tally_hook *inner);

/*
 * Makes the hook around inner, which it then holds. state is from tally__alloc; on failure it is
 * freed. Errors: ARG if inner needs the steps of a ddp; NOMEM.
 */
int tally__wrapper_make(const struct tally__wrapper_table *table, struct tally__wrapper *state,
                        tally_hook *inner, tally_hook **hook);

#endif
