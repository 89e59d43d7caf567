/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on groups: splits, memory, jobs, futures, collectives. The data of a job belongs to a
 * flight, which lives until the groups are closed.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/api_rank.h"

#define FLIGHT_FLOATS 400

struct api_flight {
    struct api_flight *next;
    const struct api_rank *rank;
    uint64_t random;
    tally_group *other; /* another group that the job may use */
    size_t send_bytes[API_MAX_WORLD];
    size_t receive_bytes[API_MAX_WORLD];
    float data[FLIGHT_FLOATS];
    float received[FLIGHT_FLOATS];
};

static struct api_flight *new_flight(struct api_rank *rank, int size)
{
    struct api_flight *flight = calloc(1, sizeof *flight);

    if (!flight) {
        api_fail(rank, "no memory for the fuzzer itself");
    }
    flight->next = rank->flights;
    rank->flights = flight;
    flight->rank = rank;
    flight->random = api_draw(&rank->random);
    for (int r = 0; r < API_MAX_WORLD; r++) {
        flight->send_bytes[r] = r < size ? 4 * (api_draw(&flight->random) % 10) : 0;
        flight->receive_bytes[r] = flight->send_bytes[0];
    }
    for (int i = 0; i < FLIGHT_FLOATS; i++) {
        flight->data[i] = (float)(rank->rank + i);
    }
    return flight;
}

/* Sizes of an all-to-all in which every rank sends as many bytes to all, and gets as many. */
static void make_even(struct api_flight *flight)
{
    for (int r = 0; r < API_MAX_WORLD; r++) {
        flight->send_bytes[r] = flight->send_bytes[0];
        flight->receive_bytes[r] = flight->send_bytes[0];
    }
}

void api_free_flights(struct api_rank *rank)
{
    while (rank->flights) {
        struct api_flight *next = rank->flights->next;

        free(rank->flights);
        rank->flights = next;
    }
}

int api_finish(struct api_rank *rank, tally_future *future)
{
    int status = CALL(rank, tally_future_wait(future));

    ASK(rank, tally_future_free(future));
    return status;
}

static tally_group *any_group(struct api_rank *rank, int *number)
{
    *number = api_chance(rank, 3) ? (int)api_pick(rank, API_N_GROUPS) : 0;
    rank->is_apart = *number > 0;
    return rank->groups[*number];
}

/* ---- the group itself ---- */

static void ask_group(struct api_rank *rank)
{
    int number;
    tally_group *group = any_group(rank, &number);
    int size = ASK(rank, tally_group_size(group));

    if (ASK(rank, tally_group_rank(group)) >= size || !ASK(rank, tally_group_backend(group))) {
        api_fail(rank, "a rank outside its group of %d", size);
    }
    (void)ASK(rank, tally_group_bytes_sent(group));
}

static void split_group(struct api_rank *rank)
{
    unsigned n_colors = 1 + api_pick(rank, 3);
    uint64_t draw = api_draw(&rank->random);
    int color = (int)(api_mix(draw + (uint64_t)rank->rank) % n_colors) -
                (rank->program->stray >= 0 && api_chance(rank, 4));
    int key = (int)(api_mix(draw ^ (uint64_t)rank->rank) % 5) - 2;
    int slot = 1 + (int)api_pick(rank, API_N_GROUPS - 1);
    tally_group *group = NULL;

    if (rank->is_split[slot]) {
        return;
    }
    if (CALL(rank, tally_group_split(rank->groups[0], color, key, &group)) == TALLY_OK) {
        rank->groups[slot] = group;
        rank->is_split[slot] = true;
    }
}

/* A group that others were made from, and which stays: it is refused. */
static void close_too_early(struct api_rank *rank, int slot)
{
    bool has_children = slot == 0 ? rank->models[0].ddp || rank->groups[1] || rank->groups[2]
                                  : slot == 1 && rank->models[1].ddp != NULL;

    rank->is_apart = true;
    if (has_children && CALL(rank, tally_group_close(rank->groups[slot])) != TALLY_STATE) {
        api_fail(rank, "a group with sub-groups was closed");
    }
}

static void close_group(struct api_rank *rank)
{
    int slot = (int)api_pick(rank, API_N_GROUPS);

    if (slot == 0 || api_chance(rank, 3)) {
        close_too_early(rank, slot);
        return;
    }
    rank->is_apart = true;
    if (slot == 1) {
        api_free_model(rank, &rank->models[1]);
    }
    if (CALL(rank, tally_group_close(rank->groups[slot])) != TALLY_OK) {
        api_fail(rank, "a sub-group cannot be closed: %s", tally_last_error());
    }
    rank->groups[slot] = NULL;
    rank->is_split[slot] = false;
}

static void abort_group(struct api_rank *rank)
{
    int number;
    tally_group *group = any_group(rank, &number);

    (void)CALL(rank, tally_group_abort(group, api_chance(rank, 3) ? NULL : "the fuzzer ends it"));
}

/* Of the world it is kept for later, of a sub-group it is given back at once. */
static void take_memory(struct api_rank *rank)
{
    int slot = (int)api_pick(rank, API_N_MEMORIES);
    size_t bytes = api_chance(rank, 12) ? SIZE_MAX : api_pick(rank, 100000);
    void *memory = NULL;
    int number;
    tally_group *group = any_group(rank, &number);

    if (number == 0 && rank->memories[slot].memory) {
        return;
    }
    if (CALL(rank, tally_group_alloc(group, bytes, &memory)) != TALLY_OK) {
        return;
    }
    memset(memory, rank->rank, bytes);
    if (number > 0) {
        (void)CALL(rank, tally_group_free(group, memory));
    } else {
        rank->memories[slot].memory = memory;
        rank->memories[slot].bytes = bytes;
    }
}

static void give_memory(struct api_rank *rank)
{
    int slot = (int)api_pick(rank, API_N_MEMORIES);
    float own;

    if (api_chance(rank, 8)) {
        (void)CALL(rank, tally_group_free(rank->groups[0], &own));
    } else if (rank->memories[slot].memory) {
        (void)CALL(rank, tally_group_free(rank->groups[0], rank->memories[slot].memory));
        rank->memories[slot].memory = NULL;
    }
}

/* ---- jobs ---- */

static int one_collective(struct api_flight *flight, tally_lane *lane)
{
    const struct api_rank *rank = flight->rank;
    size_t count = (size_t)(api_draw(&flight->random) % 100);
    int dtype = (int)(api_draw(&flight->random) % 8);
    int op = (int)(api_draw(&flight->random) % 20 == 0 ? 9 : api_draw(&flight->random) % 4);

    switch (api_draw(&flight->random) % 6) {
    case 0:
        return CALL_ANY(rank, tally_lane_all_reduce(lane, flight->data, count, dtype, op));
    case 1:
        return CALL_ANY(rank, tally_lane_reduce_scatter(lane, flight->data, count, dtype, op));
    case 2:
        return CALL_ANY(
            rank, tally_lane_all_gather(lane, flight->data, flight->send_bytes, flight->received));
    case 3:
        make_even(flight);
        return CALL_ANY(rank, tally_lane_all_to_all(lane, flight->data, flight->send_bytes,
                                                    flight->received, flight->receive_bytes));
    case 4:
        return CALL_ANY(rank, tally_lane_broadcast(lane, flight->data, count,
                                                   (int)(api_draw(&flight->random) % 4)));
    default:
        return CALL_ANY(rank, tally_lane_barrier(lane));
    }
}

/* Calls that a job may not make, and calls on the lanes of other groups. */
static int do_something_else(struct api_flight *flight, tally_lane *lane)
{
    static const int failures[] = {TALLY_ARG, TALLY_NOMEM, TALLY_STATE, TALLY_NUMERIC};
    const struct api_rank *rank = flight->rank;
    tally_group *group = ASK(rank, tally_lane_group(lane));
    tally_lane *other;
    void *memory = NULL;
    tally_group *child = NULL;

    switch (api_draw(&flight->random) % 8) {
    case 0:
        return CALL_ANY(rank, tally_job_fail(lane, failures[api_draw(&flight->random) % 4],
                                             "the fuzzer's job fails"));
    case 1:
        if (CALL_ANY(rank, tally_group_alloc(group, 10, &memory)) == TALLY_OK) {
            api_fail(rank, "tally_group_alloc works on a lane");
        }
        return TALLY_OK;
    case 2:
        if (CALL_ANY(rank, tally_group_split(group, 0, 0, &child)) == TALLY_OK) {
            api_fail(rank, "tally_group_split works on a lane");
        }
        return TALLY_OK;
    case 3:
    case 4:
    case 5:
    case 6: /* most jobs have no other group */
        other = flight->other ? ASK(rank, tally_lane_for(lane, flight->other)) : NULL;
        return other ? CALL_ANY(rank, tally_lane_barrier(other)) : TALLY_OK;
    default:
        if (ASK(rank, tally_lane_index(lane)) < 0 || !group) {
            api_fail(rank, "a job without a lane");
        }
        return TALLY_OK;
    }
}

static int random_job(tally_lane *lane, void *user)
{
    struct api_flight *flight = user;
    int n = (int)(api_draw(&flight->random) % 4);
    int status = TALLY_OK;

    for (int i = 0; i < n && status == TALLY_OK; i++) {
        status = api_draw(&flight->random) % 6 == 0 ? do_something_else(flight, lane)
                                                    : one_collective(flight, lane);
    }
    return status;
}

static void on_done(void *user, int status, const char *text)
{
    const struct api_flight *flight = user;

    if (status != TALLY_OK && !*text) {
        api_fail(flight->rank, "a job failed with %d and no text", status);
    }
}

/* A job of the world's may use a sub-group; then, and in a sub-group, it is waited for at once. */
static void submit_job(struct api_rank *rank)
{
    int number;
    tally_group *group = any_group(rank, &number);
    int slot = (int)api_pick(rank, API_N_FUTURES);
    struct api_flight *flight = new_flight(rank, ASK(rank, tally_group_size(group)));
    int lane = api_chance(rank, 12) ? (int)api_pick(rank, 8) - 4
                                    : (int)api_pick(rank, (unsigned)rank->program->lanes + 1);
    bool is_short = number > 0 || api_chance(rank, 3);
    bool asks = is_short || !rank->futures[slot];
    tally_future *future = NULL;

    flight->other = is_short && number == 0 ? rank->groups[1 + slot % 2] : NULL;
    /* Its members differ from rank to rank, and so may the outcome. */
    rank->is_apart = rank->is_apart || (is_short && rank->is_split[1 + slot % 2]);
    if (CALL(rank, tally_submit(group, lane, api_chance(rank, 20) ? NULL : random_job, flight,
                                asks ? &future : NULL)) != TALLY_OK ||
        !asks) {
        return;
    }
    if (api_chance(rank, 3)) {
        (void)CALL(rank,
                   tally_future_on_done(future, api_chance(rank, 9) ? NULL : on_done, flight));
        (void)CALL(rank, tally_future_on_done(future, on_done, flight));
    }
    if (is_short) {
        (void)api_finish(rank, future);
    } else {
        rank->futures[slot] = future;
    }
}

static int start_collective(struct api_rank *rank, tally_group *group, struct api_flight *flight,
                            tally_future **future)
{
    size_t count = api_pick(rank, FLIGHT_FLOATS);
    int dtype = api_chance(rank, 12) ? (int)api_pick(rank, 12) - 3 : TALLY_F32;
    int op = api_chance(rank, 12) ? (int)api_pick(rank, 8) - 2 : (int)api_pick(rank, 4);
    int root = (int)api_pick(rank, 3) - api_chance(rank, 10);

    if (dtype == TALLY_F64 || dtype == TALLY_I64) {
        count /= 2;
    }
    switch (api_pick(rank, 6)) {
    case 0:
        return CALL(rank, tally_all_reduce(group, flight->data, count, dtype, op, future));
    case 1:
        return CALL(rank, tally_reduce_scatter(group, flight->data, count, dtype, op, future));
    case 2:
        return CALL(rank, tally_all_gather(group, flight->data, flight->send_bytes,
                                           flight->received, future));
    case 3:
        make_even(flight);
        return CALL(rank, tally_all_to_all(group, flight->data, flight->send_bytes,
                                           flight->received, flight->receive_bytes, future));
    case 4:
        return CALL(rank, tally_broadcast(group, api_chance(rank, 10) ? NULL : flight->data, count,
                                          root, future));
    default:
        return CALL(rank, tally_barrier(group, future));
    }
}

static void run_collective(struct api_rank *rank)
{
    int number;
    tally_group *group = any_group(rank, &number);
    struct api_flight *flight = new_flight(rank, ASK(rank, tally_group_size(group)));
    tally_future *future = NULL;
    bool waits = api_chance(rank, 2);

    if (start_collective(rank, group, flight, &future) != TALLY_OK) {
        return;
    }
    if (waits) {
        (void)api_finish(rank, future);
    } else {
        ASK(rank, tally_future_free(future));
    }
}

/* On memory of the group, if there is some; waits, so that it can be given back. */
static void reduce_memory(struct api_rank *rank)
{
    int slot = (int)api_pick(rank, API_N_MEMORIES);
    int dtype = API_PICK_OF(rank, ((const int[]){TALLY_F32, TALLY_BF16, TALLY_U8, TALLY_F64}));
    size_t count = rank->memories[slot].bytes / tally_dtype_bytes(dtype);
    tally_future *future = NULL;

    if (rank->memories[slot].memory &&
        CALL(rank, tally_all_reduce(rank->groups[0], rank->memories[slot].memory, count, dtype,
                                    (int)api_pick(rank, 4), &future)) == TALLY_OK) {
        (void)api_finish(rank, future);
    }
}

static void use_future(struct api_rank *rank)
{
    int slot = (int)api_pick(rank, API_N_FUTURES);
    tally_future *future = rank->futures[slot];
    int done = 0;

    switch (api_pick(rank, 6)) {
    case 0:
        (void)CALL(rank, tally_future_wait(future));
        break;
    case 1:
        (void)CALL_ANY(rank, tally_future_wait_for(future, api_pick(rank, 4) * 0.01 - 0.01));
        break;
    case 2:
        (void)CALL_ANY(rank, tally_future_test(future, api_chance(rank, 5) ? NULL : &done));
        break;
    case 3:
        (void)ASK(rank, tally_future_bytes_sent(future));
        break;
    default:
        ASK(rank, tally_future_free(future));
        rank->futures[slot] = NULL;
    }
}

const struct api_row api_group_rows[] = {
    {"facts of a group", ask_group, 1, false},
    {"split", split_group, 4, false},
    {"close", close_group, 1, false},
    {"abort", abort_group, 1, true},
    {"alloc", take_memory, 3, false},
    {"free", give_memory, 2, false},
    {"submit", submit_job, 8, false},
    {"collective", run_collective, 5, false},
    {"reduce memory", reduce_memory, 2, false},
    {"future", use_future, 6, false},
    {NULL, NULL, 0, false},
};
