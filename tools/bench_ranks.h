/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of ranks a bench runs with, where a launcher of MPI may have started them. */
#ifndef TALLY_TOOLS_BENCH_RANKS_H
#define TALLY_TOOLS_BENCH_RANKS_H

#include "bench/rank_group.h"
#include "tools/lists.h"

#define BENCH_RANKS_MAX 4096 /* more than any bench takes; larger numbers are cut to it */

struct bench_ranks {
    struct rank_launch launch;
    struct size_list numbers; /* of ranks; one if they were launched */
};

/*
 * text is what --ranks says: numbers such as "2,8"; NULL: two, or as many as were launched, which
 * nothing else can be then. Returns an exit code, EXIT_DONE for success; says on stderr what is
 * wrong.
 */
int bench_ranks_read(const char *name, const char *text, struct bench_ranks *ranks);

#endif
