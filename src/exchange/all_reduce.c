/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public reductions on a lane: the two-phase exchange with the plain codec. And the public
 * collectives that return a future: each is a job on lane 0; the future keeps the arguments until
 * the lane runs it. Application threads submit; jobs enter, on a lane thread or a thread that
 * waits.
 */
#include "base/status.h"
#include "comm/threads.h"
#include "exchange/two_phase.h"

static int check(const char *name, const void *data, size_t count, int dtype, int op)
{
    if (tally_dtype_bytes(dtype) == 0) {
        return tally__fail(TALLY_ARG, "%s: dtype %d is not in %d..%d", name, dtype, TALLY_F32,
                           TALLY_U8);
    }
    if (op < TALLY_SUM || op > TALLY_MAX) {
        return tally__fail(TALLY_ARG, "%s: op %d is not in %d..%d", name, op, TALLY_SUM, TALLY_MAX);
    }
    if (!data && count > 0) {
        return tally__fail(TALLY_ARG, "%s: data is NULL, count is %zu", name, count);
    }
    if (count > SIZE_MAX / 8) {
        return tally__fail(TALLY_ARG, "%s: count %zu is more than memory can hold", name, count);
    }
    return TALLY_OK;
}

static int reduce(tally_lane *lane, enum tally__kind kind, void *data, size_t count, int dtype,
                  int op)
{
    struct tally__call call = {.kind = (uint16_t)kind};
    struct tally__codec codec;
    bool scatters = kind == TALLY__KIND_REDUCE_SCATTER;
    int rc = check(scatters ? "reduce-scatter" : "all-reduce", data, count, dtype, op);

    if (!lane) {
        return tally__fail(TALLY_ARG, "tally_lane_%s: lane is NULL",
                           scatters ? "reduce_scatter" : "all_reduce");
    }
    TRY(tally__check_creator(&lane->group->creator)); /* before the first write to a stage */
    if (rc != TALLY_OK) {
        return tally__refuse(lane, kind, rc);
    }
    call.dtype = (uint8_t)dtype;
    call.op = (uint8_t)op;
    codec = tally__codec_here(dtype, op, lane->group->size);
    codec.scatters = scatters;
    return tally__exchange(lane, &codec, call, data, count);
}

int tally_lane_all_reduce(tally_lane *lane, void *data, size_t count, int dtype, int op)
{
    return reduce(lane, TALLY__KIND_ALL_REDUCE, data, count, dtype, op);
}

int tally_lane_reduce_scatter(tally_lane *lane, void *data, size_t count, int dtype, int op)
{
    return reduce(lane, TALLY__KIND_REDUCE_SCATTER, data, count, dtype, op);
}

/* ---- with a future ---- */

static int submit(const char *call, tally_group *group, tally_job_fn job,
                  const union tally__args *args, tally_future **future)
{
    const struct tally__job made = {
        .fn = job, .args = args, .end = TALLY__ENDS_ITSELF, .wake = TALLY__WAKE_ADAPTED};

    if (!group) {
        return tally__fail(TALLY_ARG, "%s: group is NULL", call);
    }
    TRY(tally__check_alive(group));
    return tally__submit(&group->lanes[0], &made, future);
}

static int run_all_reduce(tally_lane *lane, void *user)
{
    const union tally__args *args = user;

    return tally_lane_all_reduce(lane, args->data.data, args->data.count, args->data.dtype,
                                 args->data.op);
}

int tally_all_reduce(tally_group *group, void *data, size_t count, int dtype, int op,
                     tally_future **future)
{
    const union tally__args args = {.data = {data, count, dtype, op, 0}};

    return submit("tally_all_reduce", group, run_all_reduce, &args, future);
}

static int run_reduce_scatter(tally_lane *lane, void *user)
{
    const union tally__args *args = user;

    return tally_lane_reduce_scatter(lane, args->data.data, args->data.count, args->data.dtype,
                                     args->data.op);
}

int tally_reduce_scatter(tally_group *group, void *data, size_t count, int dtype, int op,
                         tally_future **future)
{
    const union tally__args args = {.data = {data, count, dtype, op, 0}};

    return submit("tally_reduce_scatter", group, run_reduce_scatter, &args, future);
}

static int run_all_gather(tally_lane *lane, void *user)
{
    const union tally__args *args = user;

    return tally_lane_all_gather(lane, args->pieces.send, args->pieces.send_bytes,
                                 args->pieces.received);
}

int tally_all_gather(tally_group *group, const void *send, const size_t *bytes, void *received,
                     tally_future **future)
{
    const union tally__args args = {.pieces = {send, bytes, received, NULL}};

    return submit("tally_all_gather", group, run_all_gather, &args, future);
}

static int run_all_to_all(tally_lane *lane, void *user)
{
    const union tally__args *args = user;

    return tally_lane_all_to_all(lane, args->pieces.send, args->pieces.send_bytes,
                                 args->pieces.received, args->pieces.received_bytes);
}

int tally_all_to_all(tally_group *group, const void *send, const size_t *send_bytes, void *received,
                     const size_t *received_bytes, tally_future **future)
{
    const union tally__args args = {.pieces = {send, send_bytes, received, received_bytes}};

    return submit("tally_all_to_all", group, run_all_to_all, &args, future);
}

static int run_broadcast(tally_lane *lane, void *user)
{
    const union tally__args *args = user;

    return tally_lane_broadcast(lane, args->data.data, args->data.count, args->data.root);
}

int tally_broadcast(tally_group *group, void *data, size_t bytes, int root, tally_future **future)
{
    const union tally__args args = {.data = {data, bytes, 0, 0, root}};

    return submit("tally_broadcast", group, run_broadcast, &args, future);
}

static int run_barrier(tally_lane *lane, void *user)
{
    (void)user;
    return tally_lane_barrier(lane);
}

int tally_barrier(tally_group *group, tally_future **future)
{
    return submit("tally_barrier", group, run_barrier, NULL, future);
}
