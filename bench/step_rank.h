/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the step bench, and the memory to which it writes its times. */
#ifndef TALLY_BENCH_STEP_RANK_H
#define TALLY_BENCH_STEP_RANK_H

#include <stdint.h>

#include "bench/rank_board.h"
#include "bench/step_bench.h"

/* As in step_bench.h. Those before the traffic have a backward pass. */
enum step_side {
    STEP_OVERLAPPED,
    STEP_SERIAL,
    STEP_BACKWARD,
    STEP_UPDATED_ON_CALL,
    STEP_UPDATED_BEHIND,
    STEP_TRAFFIC,
    STEP_ALL_REDUCE,
    STEP_AT_ONCE,
    STEP_N_SIDES
};

/* Of one rank, on the board's clock: left the barrier; backward done, on call the means there too;
 * all done. */
struct step_span {
    uint64_t start_ns;
    uint64_t backward_end_ns;
    uint64_t end_ns;
};

struct step_record {
    double unit_ns;  /* of the synthetic backward */
    double write_ns; /* to write all gradients */
    unsigned long long wire_bytes;
    double create_ms;                  /* tally_ddp_create */
    uint64_t checksum;                 /* of the parameters with an optimizer */
    double in_wait_ms[STEP_MAX_STEPS]; /* updates after the hook that wait saw */
    struct step_span spans[STEP_N_SIDES][STEP_MAX_STEPS];
};

/* One team of ranks: what to do, and, shared by the ranks, what came out. */
struct step_run {
    const struct step_bench *bench;
    size_t n_steps; /* of this team, on every side */
    char rendezvous[64];
    struct rank_board board; /* of struct step_record */
};

/* A rank_team_fn; user is a struct step_run. */
int step_rank(int rank, void *user);

#endif
