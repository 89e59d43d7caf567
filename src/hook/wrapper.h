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

/* The groups of such a wrapper. An outer hook may replace itself: then the wrapper enters a second
 * time before it leaves. */
struct tally__division {
    tally_ddp *ddp;         /* the ddp whose ranks are divided */
    tally_group *groups[2]; /* NULL: this rank is in none */
    int n_entered;
};

/* For enter, with the groups that this rank has just made, or the status of the failure. Enter
 * makes them every time, because another rank may enter with another object of the same name; the
 * first time they are kept, later they are closed. hook is the name for messages. Errors: status;
 * STATE for a second ddp. */
int tally__division_enter(struct tally__division *division, tally_ddp *ddp, const char *hook,
                          tally_group *const made[2], int status);
void tally__division_leave(struct tally__division *division);

/*
 * Makes the hook around inner, which it then holds. state is from tally__alloc; on failure it is
 * freed. Errors: ARG if inner needs the steps of a ddp; NOMEM.
 */
int tally__wrapper_make(const struct tally__wrapper_table *table, struct tally__wrapper *state,
                        tally_hook *inner, tally_hook **hook);

#endif
