/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives on integers whose result every rank can compute alone. Keeps no state. The thread
 * that owns the op's buffers enters.
 */
#include "fault/fault_op.h"

static int32_t value(const struct fault_op *op, int rank, size_t i)
{
    return op->tag + rank * 7 + (int32_t)(i % 11);
}

static int root_of(const struct fault_op *op, const tally_group *group)
{
    return op->tag % tally_group_size(group);
}

/* Elements that rank contributes to an all-gather: not the same on all. */
static size_t share_of(const struct fault_op *op, int rank)
{
    return op->count / FAULT_MAX_RANKS + (size_t)rank;
}

static size_t piece_of(const struct fault_op *op)
{
    return op->count / FAULT_MAX_RANKS;
}

void fault_op_prepare(struct fault_op *op, const tally_group *group)
{
    int rank = tally_group_rank(group);

    /* A share of an all-gather may be a little longer than count. */
    for (size_t i = 0; i < op->count + FAULT_MAX_RANKS; i++) {
        op->data[i] = value(op, rank, i);
    }
    for (int r = 0; r < tally_group_size(group); r++) {
        op->bytes[r] =
            sizeof(int32_t) * (op->kind == FAULT_ALL_GATHER ? share_of(op, r) : piece_of(op));
    }
}

int fault_op_on_lane(struct fault_op *op, tally_lane *lane)
{
    switch (op->kind) {
    case FAULT_ALL_REDUCE:
        return tally_lane_all_reduce(lane, op->data, op->count, TALLY_I32, TALLY_SUM);
    case FAULT_REDUCE_SCATTER:
        return tally_lane_reduce_scatter(lane, op->data, op->count, TALLY_I32, TALLY_SUM);
    case FAULT_ALL_GATHER:
        return tally_lane_all_gather(lane, op->data, op->bytes, op->received);
    case FAULT_ALL_TO_ALL:
        return tally_lane_all_to_all(lane, op->data, op->bytes, op->received, op->bytes);
    case FAULT_BROADCAST:
        return tally_lane_broadcast(lane, op->data, op->count * sizeof *op->data,
                                    root_of(op, tally_lane_group(lane)));
    default:
        return tally_lane_barrier(lane);
    }
}

int fault_op_submit(struct fault_op *op, tally_group *group, tally_future **future)
{
    switch (op->kind) {
    case FAULT_ALL_REDUCE:
        return tally_all_reduce(group, op->data, op->count, TALLY_I32, TALLY_SUM, future);
    case FAULT_REDUCE_SCATTER:
        return tally_reduce_scatter(group, op->data, op->count, TALLY_I32, TALLY_SUM, future);
    case FAULT_ALL_GATHER:
        return tally_all_gather(group, op->data, op->bytes, op->received, future);
    case FAULT_ALL_TO_ALL:
        return tally_all_to_all(group, op->data, op->bytes, op->received, op->bytes, future);
    case FAULT_BROADCAST:
        return tally_broadcast(group, op->data, op->count * sizeof *op->data, root_of(op, group),
                               future);
    default:
        return tally_barrier(group, future);
    }
}

static bool sums_are_right(const struct fault_op *op, int size, size_t offset, size_t n)
{
    int32_t of_ranks = 7 * size * (size - 1) / 2;

    for (size_t i = offset; i < offset + n; i++) {
        if (op->data[i] != size * value(op, 0, i) + of_ranks) {
            return false;
        }
    }
    return true;
}

static bool gathered_is_right(const struct fault_op *op, int size)
{
    const int32_t *at = op->received;

    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < share_of(op, r); i++) {
            if (*at++ != value(op, r, i)) {
                return false;
            }
        }
    }
    return true;
}

static bool exchanged_is_right(const struct fault_op *op, int size, int rank)
{
    const int32_t *at = op->received;

    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < piece_of(op); i++) {
            if (*at++ != value(op, r, (size_t)rank * piece_of(op) + i)) {
                return false;
            }
        }
    }
    return true;
}

static bool sent_is_right(const struct fault_op *op, int root)
{
    for (size_t i = 0; i < op->count; i++) {
        if (op->data[i] != value(op, root, i)) {
            return false;
        }
    }
    return true;
}

bool fault_op_is_right(const struct fault_op *op, const tally_group *group)
{
    int size = tally_group_size(group);
    int rank = tally_group_rank(group);
    size_t offset;
    size_t n;

    switch (op->kind) {
    case FAULT_ALL_REDUCE:
        return sums_are_right(op, size, 0, op->count);
    case FAULT_REDUCE_SCATTER:
        tally_shard(op->count, size, rank, &offset, &n);
        return sums_are_right(op, size, offset, n);
    case FAULT_ALL_GATHER:
        return gathered_is_right(op, size);
    case FAULT_ALL_TO_ALL:
        return exchanged_is_right(op, size, rank);
    case FAULT_BROADCAST:
        return sent_is_right(op, root_of(op, group));
    default:
        return true;
    }
}
