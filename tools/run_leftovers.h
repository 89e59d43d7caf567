/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that ranks started and left behind. The launcher adopts them, so that they can be found
 * and ended, also when they have left the rank's process group or session.
 */
#ifndef TALLY_TOOLS_RUN_LEFTOVERS_H
#define TALLY_TOOLS_RUN_LEFTOVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Our children that are no business of ours: we had them when we became the launcher. */
struct run_leftovers {
    pid_t *foreign;
    size_t n_foreign;
};

/* From now on orphans among our descendants become our children. False with errno set. */
bool run_leftovers_adopt(struct run_leftovers *leftovers);

/* A child that is no rank has ended and been waited for. */
void run_leftovers_forget(struct run_leftovers *leftovers, pid_t pid);

/* How many of our children are not foreign; each gets the signal, unless that is 0. Without /proc
 * there is no telling: 0. */
size_t run_leftovers_signal(const struct run_leftovers *leftovers, int number);

void run_leftovers_free(struct run_leftovers *leftovers);

#endif
