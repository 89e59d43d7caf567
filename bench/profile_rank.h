/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the profile bench. */
#ifndef TALLY_BENCH_PROFILE_RANK_H
#define TALLY_BENCH_PROFILE_RANK_H

#include "bench/profile_bench.h"

struct profile_run {
    const struct profile_bench *bench;
    char rendezvous[64];
    struct profile_result *result; /* shared by the ranks; rank 0 writes it */
};

/* A rank_team_fn; user is a struct profile_run. */
int profile_rank(int rank, void *user);

#endif
