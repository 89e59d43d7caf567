/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the hooks bench, and the memory to which it writes its results. */
#ifndef TALLY_BENCH_HOOKS_RANK_H
#define TALLY_BENCH_HOOKS_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/hooks_bench.h"
#include "bench/rank_board.h"

enum hooks_side { HOOKS_PLAIN, HOOKS_TESTED, HOOKS_N_SIDES };

/* Of one rank, on the board's clock: left the barrier; done. */
struct hooks_span {
    uint64_t start_ns;
    uint64_t end_ns;
};

struct hooks_record {
    uint64_t hash; /* of the gradients looked at last */
    struct hooks_error error;
    unsigned long long wire_bytes;
    unsigned long long host_bytes;
    struct hooks_span spans[HOOKS_N_SIDES][HOOKS_MAX_STEPS];
};

/* One team of ranks: what to do, and, shared by the ranks, what came out. */
struct hooks_run {
    const struct hooks_bench *bench;
    size_t n_steps; /* of this team, on either side */
    double *means;  /* shared too, where ranks are forked: room for the exact means; NULL: do not
                     * compare with them */
    /*
     * The expected result: the largest relative error, and whether all ranks end with the same
     * bits.
     */
    double max_error;
    bool ends_alike;
    char rendezvous[64];
    struct rank_board board; /* of struct hooks_record */
};

/* A rank_team_fn; user is a struct hooks_run. */
int hooks_rank(int rank, void *user);

#endif
