/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures collectives between processes on this machine, or between those that a launcher of MPI
 * has started. Beside the former, in turn and therefore on the same machine in the same mood:
 * copies of the same bytes, the same collective of other libraries, and of two ranks with the same
 * work per core.
 *
 * Every rank rewrites its array before each timed call, and every element of every result is
 * checked. A time is that from the first rank's leaving a barrier to the last rank's being done, on
 * a clock they share; of ranks that were launched, and may share none, the longest that one took.
 * Medians over several rounds; a round starts new processes on every side.
 */
#ifndef TALLY_BENCH_COLLECTIVE_BENCH_H
#define TALLY_BENCH_COLLECTIVE_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/peer_run.h"
#include "bench/rank_group.h"

struct collective_result {
    const char *op;
    int ranks;
    size_t bytes; /* of each rank's array */
    bool heap;
    size_t n_samples;
    double us; /* median; what was not measured is NaN */
    double us_p99;
    double algbw_gbps; /* bytes / us, in 10^9 bytes per second */
    double busbw_gbps; /* the load of the busiest link: comparable between numbers of ranks */
    double copy_us;    /* all ranks at once: an ordinary-store loop of our own */
    double memcpy_us;
    double submit_us; /* from the application's call to its wait's return */
    double peer_us[N_PEERS];
    const char *peer_version[N_PEERS]; /* NULL when not measured */
    double two_rank_us;                /* two ranks with ranks / 2 times the bytes */
};

struct collective_bench {
    const char *op;            /* a name from collective_ops.h */
    struct rank_launch launch; /* if launched: its ranks, no peers, not compare_two */
    const int *ranks;
    size_t n_ranks;
    const size_t *bytes;
    size_t n_bytes;
    bool heap;           /* arrays in ordinary memory instead of the group's */
    bool peers[N_PEERS]; /* the peers to measure, where installed; all_reduce only */
    bool compare_two;    /* measure two ranks too, where there are more */
    double seconds;      /* to spend on each side of each size; at least 12 times are taken */
    /* On rank 0 of those that were launched. */
    void (*report)(const struct collective_result *result, void *user);
    void *user;
};

/*
 * Measures every size with every number of ranks. The caller must have no threads. Errors: ARG for
 * what makes no sense; what a rank or a peer says; never waits forever.
 */
int collective_bench_run(const struct collective_bench *bench);

#endif
