/* SPDX-License-Identifier: Apache-2.0 */
/* The calls and the expectations of each collective. Entered by lanes and applications alike. */
#include "bench/collective_ops.h"

#include <string.h>

static int run_all_reduce(tally_lane *lane, const struct collective_args *a)
{
    return tally_lane_all_reduce(lane, a->data, a->n, TALLY_F32, TALLY_SUM);
}

static int submit_all_reduce(tally_group *group, const struct collective_args *a,
                             tally_future **future)
{
    return tally_all_reduce(group, a->data, a->n, TALLY_F32, TALLY_SUM, future);
}

static size_t wrong_all_reduce(const struct collective_args *a, uint32_t repetition)
{
    return pattern_count_wrong(a->data, 0, a->n, repetition, pattern_sum_factor(a->ranks));
}

static int run_reduce_scatter(tally_lane *lane, const struct collective_args *a)
{
    return tally_lane_reduce_scatter(lane, a->data, a->n, TALLY_F32, TALLY_SUM);
}

static int submit_reduce_scatter(tally_group *group, const struct collective_args *a,
                                 tally_future **future)
{
    return tally_reduce_scatter(group, a->data, a->n, TALLY_F32, TALLY_SUM, future);
}

/* The own shard has the sum; the rest of the input must be untouched. */
static size_t wrong_reduce_scatter(const struct collective_args *a, uint32_t repetition)
{
    size_t n_wrong = 0;

    for (int r = 0; r < a->ranks; r++) {
        float factor = r == a->rank ? pattern_sum_factor(a->ranks) : pattern_factor(a->rank);
        size_t offset;
        size_t n;

        tally_shard(a->n, a->ranks, r, &offset, &n);
        n_wrong += pattern_count_wrong(a->data + offset, offset, n, repetition, factor);
    }
    return n_wrong;
}

static const float *own_shard(const struct collective_args *a)
{
    size_t offset;
    size_t n;

    tally_shard(a->n, a->ranks, a->rank, &offset, &n);
    return a->data + offset;
}

static int run_all_gather(tally_lane *lane, const struct collective_args *a)
{
    return tally_lane_all_gather(lane, own_shard(a), a->shard_bytes, a->data);
}

static int submit_all_gather(tally_group *group, const struct collective_args *a,
                             tally_future **future)
{
    return tally_all_gather(group, own_shard(a), a->shard_bytes, a->data, future);
}

static size_t wrong_all_gather(const struct collective_args *a, uint32_t repetition)
{
    size_t n_wrong = 0;

    for (int r = 0; r < a->ranks; r++) {
        size_t offset;
        size_t n;

        tally_shard(a->n, a->ranks, r, &offset, &n);
        n_wrong += pattern_count_wrong(a->data + offset, offset, n, repetition, pattern_factor(r));
    }
    return n_wrong;
}

static int run_all_to_all(tally_lane *lane, const struct collective_args *a)
{
    return tally_lane_all_to_all(lane, a->data, a->shard_bytes, a->other, a->own_bytes);
}

static int submit_all_to_all(tally_group *group, const struct collective_args *a,
                             tally_future **future)
{
    return tally_all_to_all(group, a->data, a->shard_bytes, a->other, a->own_bytes, future);
}

/* From every rank, what stands in its data where our shard is. */
static size_t wrong_all_to_all(const struct collective_args *a, uint32_t repetition)
{
    size_t n_wrong = 0;
    size_t offset;
    size_t n;

    tally_shard(a->n, a->ranks, a->rank, &offset, &n);
    for (int r = 0; r < a->ranks; r++) {
        n_wrong +=
            pattern_count_wrong(a->other + (size_t)r * n, offset, n, repetition, pattern_factor(r));
    }
    return n_wrong;
}

static int run_broadcast(tally_lane *lane, const struct collective_args *a)
{
    return tally_lane_broadcast(lane, a->data, a->n * sizeof *a->data, 0);
}

static int submit_broadcast(tally_group *group, const struct collective_args *a,
                            tally_future **future)
{
    return tally_broadcast(group, a->data, a->n * sizeof *a->data, 0, future);
}

static size_t wrong_broadcast(const struct collective_args *a, uint32_t repetition)
{
    return pattern_count_wrong(a->data, 0, a->n, repetition, pattern_factor(0));
}

const struct collective_op collective_ops[] = {
    {"all_reduce", run_all_reduce, submit_all_reduce, wrong_all_reduce, 2},
    {"reduce_scatter", run_reduce_scatter, submit_reduce_scatter, wrong_reduce_scatter, 1},
    {"all_gather", run_all_gather, submit_all_gather, wrong_all_gather, 1},
    {"all_to_all", run_all_to_all, submit_all_to_all, wrong_all_to_all, 1},
    {"broadcast", run_broadcast, submit_broadcast, wrong_broadcast, 0},
};
const size_t n_collective_ops = sizeof collective_ops / sizeof collective_ops[0];

const struct collective_op *collective_op_find(const char *name)
{
    for (size_t i = 0; i < n_collective_ops; i++) {
        if (strcmp(name, collective_ops[i].name) == 0) {
            return &collective_ops[i];
        }
    }
    return NULL;
}

void collective_args_shards(struct collective_args *a)
{
    size_t offset;
    size_t own;

    tally_shard(a->n, a->ranks, a->rank, &offset, &own);
    for (int r = 0; r < a->ranks; r++) {
        size_t n;

        tally_shard(a->n, a->ranks, r, &offset, &n);
        a->shard_bytes[r] = n * sizeof *a->data;
        a->own_bytes[r] = own * sizeof *a->data;
    }
}

double collective_op_bus_factor(const struct collective_op *op, int ranks)
{
    return op->bus_sends == 0 ? 1 : (double)op->bus_sends * (ranks - 1) / ranks;
}
