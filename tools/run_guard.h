/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of a rank: a process between the launcher and the rank that outlives neither. */
#ifndef TALLY_TOOLS_RUN_GUARD_H
#define TALLY_TOOLS_RUN_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * In a child of the launcher, before it forks the rank. From here on orphans among the rank's
 * descendants become our children, and all signals are blocked. False when the launcher is gone.
 */
bool run_guard_begin(pid_t launcher);

/*
 * Once the rank runs: returns never. Ends when the rank has ended, which the launcher then waits
 * for in our place; kills the rank and all its descendants when the launcher is gone.
 */
_Noreturn void run_guard_watch(pid_t launcher, pid_t rank, int number);

#endif
