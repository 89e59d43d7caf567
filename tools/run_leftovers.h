/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that ranks have started and left behind. The launcher adopts them and can so find and
 * end them, even if they have left the rank's process group or session.
 */
#ifndef TALLY_TOOLS_RUN_LEFTOVERS_H
#define TALLY_TOOLS_RUN_LEFTOVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Children that do not belong to the job: we had them before we became the launcher. */
struct run_leftovers {
    pid_t *foreign;
    size_t n_foreign;
};

/* From now on orphans among our descendants become our children. False with errno set. */
bool run_leftovers_adopt(struct run_leftovers *leftovers);

/* Call it when a child that is not a rank has ended and been waited for. */
void run_leftovers_forget(struct run_leftovers *leftovers, pid_t pid);

/* Returns the number of our children that are not foreign, and sends each the signal unless it is
 * 0. Returns 0 without /proc. */
size_t run_leftovers_signal(const struct run_leftovers *leftovers, int number);

void run_leftovers_free(struct run_leftovers *leftovers);

#endif
