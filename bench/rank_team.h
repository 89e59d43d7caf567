/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function in several processes at once and says which of them failed, and how. */
#ifndef TALLY_BENCH_RANK_TEAM_H
#define TALLY_BENCH_RANK_TEAM_H

#include <stdatomic.h>
#include <stddef.h>

/* The body of a rank; returns a status, with the thread's error text. */
typedef int (*rank_team_fn)(int rank, void *user);

/*
 * Forks n processes, runs body(rank, user) in each, and waits for all of them. The caller must have
 * no threads. When one fails the others get two seconds to end and are then killed, and so are all
 * when timeout_s has passed: none survives this call, or the caller.
 * Errors: the status of the rank that failed first of itself, with "rank 1 of 2: <its text>"; PEER
 * for one that was killed; TIMEOUT; SYSTEM.
 */
int rank_team_run(int n, rank_team_fn body, void *user, double timeout_s);

/* Zeroed memory that forked processes share. NULL, with an error text, when there is none. */
void *rank_team_share(size_t bytes);
void rank_team_unshare(void *memory, size_t bytes);

/*
 * A barrier of the ranks' own threads: that of a lane would wake them one after the other.
 * n_arrived is in shared memory, 0 at first and for nothing else; n_meetings counts the calls, this
 * one included. Waits as long as it takes; a rank that fails ends those that wait for it.
 */
void rank_team_meet(atomic_uint *n_arrived, unsigned n_meetings, int n_ranks);

#endif
