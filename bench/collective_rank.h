/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the collective bench, and the memory to which it writes its times. */
#ifndef TALLY_BENCH_COLLECTIVE_RANK_H
#define TALLY_BENCH_COLLECTIVE_RANK_H

#include <stdbool.h>

#include "bench/collective_ops.h"
#include "bench/rank_board.h"

/* Number of measurements: at least min, then until the time or max is reached. */
struct repeat_limits {
    uint32_t min;
    uint32_t max; /* at most COLLECTIVE_MAX_REPEATS */
    double seconds;
};

#define COLLECTIVE_MAX_REPEATS 2000
/* Repetitions before the first that counts. */
#define COLLECTIVE_WARM_UP 2

enum collective_time {
    COLLECTIVE_TIME_CALL,   /* the collective, on the lane */
    COLLECTIVE_TIME_COPY,   /* the same bytes by an ordinary-store loop */
    COLLECTIVE_TIME_MEMCPY, /* and by memcpy */
    COLLECTIVE_TIME_SUBMIT, /* the collective, as the application sees it */
    COLLECTIVE_N_TIMES
};

/* The times at which a rank left the barrier and was done: on one clock for all ranks, or, of ranks
 * that a launcher has started, on one that begins then. */
struct collective_span {
    uint64_t start_ns;
    uint64_t end_ns;
};

struct collective_record {
    uint32_t n[COLLECTIVE_N_TIMES];
    struct collective_span spans[COLLECTIVE_N_TIMES][COLLECTIVE_MAX_REPEATS];
};

/* One measurement: what to do, and, on the ranks' board, what came out. */
struct collective_run {
    const struct collective_op *op;
    int ranks;
    size_t bytes;     /* of each rank's array */
    bool heap;        /* arrays in ordinary memory instead of the group's */
    bool only_call;   /* no copies, no submits */
    bool is_launched; /* a launcher has started the ranks; only the call is measured then */
    struct repeat_limits limits;
    char rendezvous[64];
    struct rank_board board; /* of struct collective_record */
};

/* A rank_team_fn; user is a struct collective_run. */
int collective_rank(int rank, void *user);

#endif
