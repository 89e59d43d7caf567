/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of a rank: a process between launcher and rank that ends when either of them ends. */
#ifndef TALLY_TOOLS_RUN_GUARD_H
#define TALLY_TOOLS_RUN_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Call it in a child of the launcher, before it forks the rank. From here on orphans among the
 * rank's descendants become our children, and all signals are blocked. False if the launcher is
 * gone.
 */
bool run_guard_begin(pid_t launcher);

/*
 * Call it once the rank runs; does not return. The process ends when the rank has ended; the
 * launcher then waits for the rank. If the launcher is gone, kills the rank and all its
 * descendants.
 */
_Noreturn void run_guard_watch(pid_t launcher, pid_t rank, int number);

#endif
