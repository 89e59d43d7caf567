/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The asynchronous collectives: each is a job; the future keeps the arguments until lane 0 runs it.
 * Application threads submit; the lane thread runs.
 */
#include "base/status.h"
#include "comm/threads.h"

static int submit(tally_group *group, tally_job_fn job, const union tally__args *args,
                  tally_future **future)
{
    if (!group) {
        return tally__fail(TALLY_ARG, "group is NULL");
    }
    TRY(tally__check_alive(group));
    return tally__submit(&group->lanes[0], job, NULL, args, TALLY__ENDS_ITSELF, future);
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

    return submit(group, run_all_reduce, &args, future);
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

    return submit(group, run_reduce_scatter, &args, future);
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

    return submit(group, run_all_gather, &args, future);
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

    return submit(group, run_all_to_all, &args, future);
}

static int run_broadcast(tally_lane *lane, void *user)
{
    const union tally__args *args = user;

    return tally_lane_broadcast(lane, args->data.data, args->data.count, args->data.root);
}

int tally_broadcast(tally_group *group, void *data, size_t bytes, int root, tally_future **future)
{
    const union tally__args args = {.data = {data, bytes, 0, 0, root}};

    return submit(group, run_broadcast, &args, future);
}

static int run_barrier(tally_lane *lane, void *user)
{
    (void)user;
    return tally_lane_barrier(lane);
}

int tally_barrier(tally_group *group, tally_future **future)
{
    return submit(group, run_barrier, NULL, future);
}
