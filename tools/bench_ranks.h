/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of ranks that a bench runs with; an MPI launcher may have started them. */
#ifndef TALLY_TOOLS_BENCH_RANKS_H
#define TALLY_TOOLS_BENCH_RANKS_H

#include "bench/rank_group.h"
#include "tools/lists.h"

#define BENCH_RANKS_MAX 4096 /* larger numbers are reduced to this, which no bench accepts */

struct bench_ranks {
    struct rank_launch launch;
    struct size_list numbers; /* numbers of ranks; one number if a launcher has started them */
};

/*
 * Reads the value of --ranks: numbers such as "2,8"; NULL: 2. If a launcher has started ranks, only
 * their number is accepted, and it is the default. Returns EXIT_DONE on success, or another exit
 * code after an error message.
 */
int bench_ranks_read(const char *name, const char *text, struct bench_ranks *ranks);

#endif
