/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives the bench knows: how each is called, on a lane and from the application, and what
 * it must leave where. All work on one array of fp32 that every rank has filled with its own
 * pattern, and on a second array of the same size for results that need one.
 */
#ifndef TALLY_BENCH_COLLECTIVE_OPS_H
#define TALLY_BENCH_COLLECTIVE_OPS_H

#include <tally_extend.h>

#include "bench/pattern.h"

/* One rank's side of a collective. The array of sizes lives here for the asynchronous forms. */
struct collective_args {
    int rank;
    int ranks;
    size_t n;     /* elements in each array */
    float *data;  /* the input; the result too, except of all_to_all */
    float *other; /* the copies' destination, and where all_to_all puts its result */
    size_t shard_bytes[PATTERN_MAX_RANKS]; /* of each rank's shard */
    size_t own_bytes[PATTERN_MAX_RANKS];   /* of this rank's shard, once per rank */
};

struct collective_op {
    const char *name;
    int (*run)(tally_lane *lane, const struct collective_args *args);
    int (*submit)(tally_group *group, const struct collective_args *args, tally_future **future);
    size_t (*count_wrong)(const struct collective_args *args, uint32_t repetition);
    /* busbw = algbw * bus_sends * (W - 1) / W; where a rank forwards nothing, 0 stands for 1. */
    int bus_sends;
};

extern const struct collective_op collective_ops[];
extern const size_t n_collective_ops;

/* NULL when there is none of this name. */
const struct collective_op *collective_op_find(const char *name);

/* Fills in the sizes of the shards; the other members are set. */
void collective_args_shards(struct collective_args *args);

double collective_op_bus_factor(const struct collective_op *op, int ranks);

#endif
