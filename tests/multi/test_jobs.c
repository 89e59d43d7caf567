/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that fail: before, between and after rounds, on one rank and on several, with a text and
 * without, by a wrong argument. They fail on every rank with the same status and text, and the
 * group lives on. Jobs that handle a failure leave no text.
 */
#include <stdio.h>
#include <string.h>

#include "support/ranks.h"

#define N_ROUNDS 4

/* The rank that fails, and the round in which it does: N_ROUNDS is after the last. */
struct plan {
    unsigned who; /* a bit per rank */
    int where;
    bool silent; /* returns a status and says nothing */
};

static int failing_job(tally_lane *lane, void *user)
{
    const struct plan *plan = user;
    tally_group *group = tally_lane_group(lane);
    int rank = tally_group_rank(group);
    float data[3] = {1, 2, 3};

    for (int i = 0; i <= N_ROUNDS; i++) {
        if (i == plan->where && plan->who >> rank & 1) {
            char text[64];

            if (plan->silent) {
                return TALLY_NUMERIC;
            }
            (void)snprintf(text, sizeof text, "the dog ate it on rank %d at %d", rank, i);
            return tally_job_fail(lane, TALLY_NUMERIC, text);
        }
        if (i < N_ROUNDS) {
            int rc = i % 2 ? tally_lane_barrier(lane)
                           : tally_lane_all_reduce(lane, data, 3, TALLY_F32, TALLY_SUM);

            if (rc != TALLY_OK) {
                return rc;
            }
        }
    }
    return TALLY_OK;
}

static int lowest(unsigned who)
{
    int rank = 0;

    while (!(who >> rank & 1)) {
        rank++;
    }
    return rank;
}

static int run_plan(tally_group *group, struct plan *plan, int lane)
{
    char expected[96];
    tally_future *future;

    CHECK_OK(group, tally_submit(group, lane, failing_job, plan, &future));
    CHECK_STATUS(group, tally_future_wait(future), TALLY_NUMERIC);
    /* All ranks hear of the lowest rank that failed, in its own words; if all say the same, no rank
     * is blamed. */
    if (plan->silent && plan->who == (1u << tally_group_size(group)) - 1 &&
        tally_group_size(group) > 1) {
        (void)snprintf(expected, sizeof expected, "%s", tally_status_text(TALLY_NUMERIC));
    } else if (plan->silent) {
        (void)snprintf(expected, sizeof expected, "rank %d: %s", lowest(plan->who),
                       tally_status_text(TALLY_NUMERIC));
    } else {
        (void)snprintf(expected, sizeof expected, "rank %d: the dog ate it on rank %d at %d",
                       lowest(plan->who), lowest(plan->who), plan->where);
    }
    CHECK_TEXT(group, tally_last_error(), expected);
    CHECK(group, strcmp(tally_last_error(), expected) == 0);
    tally_future_free(future);
    return ranks_check_alive(group);
}

static int fail_body(tally_group *group, void *user)
{
    unsigned all = (1u << tally_group_size(group)) - 1;

    (void)user;
    for (int where = 0; where <= N_ROUNDS; where++) {
        const unsigned who[] = {1, all, all & ~1u, 1u << (tally_group_size(group) - 1), all & 0x55};

        for (size_t i = 0; i < sizeof who / sizeof who[0]; i++) {
            struct plan plan = {who[i], where, false};

            if (!plan.who) {
                continue;
            }
            CHECK(group, run_plan(group, &plan, ranks_now()->lanes > 1 ? where % 2 : 0) == 0);
            plan.silent = true;
            CHECK(group, run_plan(group, &plan, 0) == 0);
        }
    }
    return 0;
}

/* A job that goes on after a failure that all know of gets it again, and fails in the end. */
static int stubborn_job(tally_lane *lane, void *user)
{
    tally_group *group = tally_lane_group(lane);

    (void)user;
    CHECK_STATUS(group, tally_lane_broadcast(lane, NULL, tally_group_rank(group) == 0 ? 4 : 0, 0),
                 TALLY_ARG);
    CHECK_STATUS(group, tally_lane_barrier(lane), TALLY_ARG);
    CHECK_STATUS(group, tally_lane_all_reduce(lane, NULL, 0, TALLY_F32, TALLY_SUM), TALLY_ARG);
    return TALLY_OK;
}

static int last_rank_job(tally_lane *lane, void *user)
{
    const char *text = user;
    tally_group *group = tally_lane_group(lane);

    CHECK_OK(group, tally_lane_barrier(lane));
    if (tally_group_rank(group) == tally_group_size(group) - 1) {
        return tally_job_fail(lane, TALLY_STATE, text);
    }
    return TALLY_OK;
}

/* A text longer than any buffer is cut, and the same on all ranks. */
static int long_text_body(tally_group *group, void *user)
{
    char text[2000];

    (void)user;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_STATUS(group, ranks_job(group, 0, last_rank_job, text), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "xxxxxxxxxxxxxxxx");
    ranks_note(group, 0, ranks_hash(0, tally_last_error(), strlen(tally_last_error())));
    CHECK_STATUS(group, ranks_job(group, 0, stubborn_job, NULL), TALLY_ARG);
    return ranks_check_alive(group);
}

static int handling_job(tally_lane *lane, void *user)
{
    (void)user;
    (void)tally_job_fail(lane, TALLY_NUMERIC, "handled");
    return TALLY_OK;
}

/* A job that handles a failure leaves no text on the thread that waits, which may have had none. */
static int handled_body(tally_group *group, void *user)
{
    char before[256];

    (void)user;
    (void)snprintf(before, sizeof before, "%s", tally_last_error());
    CHECK_OK(group, ranks_job(group, 0, handling_job, NULL));
    CHECK(group, strcmp(tally_last_error(), before) == 0);
    return 0;
}

/* ---- wrong arguments ---- */

struct wrong {
    const char *text;
    int (*call)(tally_lane *lane);
};

static float numbers[8];
static size_t sizes[8] = {4, 4, 4, 4, 4, 4, 4, 4};

static int bad_dtype(tally_lane *lane)
{
    return tally_lane_all_reduce(lane, numbers, 2, 7, TALLY_SUM);
}

static int negative_dtype(tally_lane *lane)
{
    return tally_lane_reduce_scatter(lane, numbers, 2, -1, TALLY_SUM);
}

static int bad_op(tally_lane *lane)
{
    return tally_lane_all_reduce(lane, numbers, 2, TALLY_F32, 4);
}

static int no_data(tally_lane *lane)
{
    return tally_lane_all_reduce(lane, NULL, 2, TALLY_F32, TALLY_SUM);
}

static int too_many(tally_lane *lane)
{
    return tally_lane_all_reduce(lane, numbers, SIZE_MAX / 4, TALLY_F32, TALLY_SUM);
}

static int bad_root(tally_lane *lane)
{
    return tally_lane_broadcast(lane, numbers, 4, 99);
}

static int negative_root(tally_lane *lane)
{
    return tally_lane_broadcast(lane, numbers, 4, -1);
}

static int no_broadcast_data(tally_lane *lane)
{
    return tally_lane_broadcast(lane, NULL, 4, 0);
}

static int no_gather_sizes(tally_lane *lane)
{
    return tally_lane_all_gather(lane, numbers, NULL, numbers);
}

static int no_gather_send(tally_lane *lane)
{
    return tally_lane_all_gather(lane, NULL, sizes, numbers);
}

static int no_gather_room(tally_lane *lane)
{
    return tally_lane_all_gather(lane, numbers, sizes, NULL);
}

static int no_send_sizes(tally_lane *lane)
{
    return tally_lane_all_to_all(lane, numbers, NULL, numbers, sizes);
}

static int no_received_sizes(tally_lane *lane)
{
    return tally_lane_all_to_all(lane, numbers, sizes, numbers, NULL);
}

static int no_send(tally_lane *lane)
{
    return tally_lane_all_to_all(lane, NULL, sizes, numbers, sizes);
}

static int no_room(tally_lane *lane)
{
    return tally_lane_all_to_all(lane, numbers, sizes, NULL, sizes);
}

static const struct wrong wrongs[] = {
    {"all-reduce: dtype 7", bad_dtype},
    {"dtype -1", negative_dtype},
    {"all-reduce: op 4", bad_op},
    {"all-reduce: data is NULL", no_data},
    {"more than memory can hold", too_many},
    {"root 99 is not in 0..", bad_root},
    {"root -1 is not in 0..", negative_root},
    {"data is NULL", no_broadcast_data},
    {"bytes is NULL", no_gather_sizes},
    {"send is NULL", no_gather_send},
    {"received is NULL", no_gather_room},
    {"send_bytes is NULL", no_send_sizes},
    {"received_bytes is NULL", no_received_sizes},
    {"send is NULL", no_send},
    {"received is NULL", no_room},
};

struct wrong_plan {
    const struct wrong *wrong;
    bool on_all;
};

/* On one rank, while the others are in a call that is right, or on all. */
static int wrong_job(tally_lane *lane, void *user)
{
    const struct wrong_plan *plan = user;
    tally_group *group = tally_lane_group(lane);

    if (plan->on_all || tally_group_rank(group) == tally_group_size(group) / 2) {
        return plan->wrong->call(lane);
    }
    return tally_lane_barrier(lane);
}

static int wrong_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t i = 0; i < 2 * sizeof wrongs / sizeof wrongs[0]; i++) {
        struct wrong_plan plan = {&wrongs[i / 2], i % 2 == 1};

        CHECK_STATUS(group, ranks_job(group, 0, wrong_job, &plan), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), wrongs[i / 2].text);
        CHECK(group, ranks_check_alive(group) == 0);
    }
    return 0;
}

/* The same as separate jobs. */
static int wrong_async_body(tally_group *group, void *user)
{
    tally_future *future;

    (void)user;
    CHECK_OK(group, tally_all_reduce(group, numbers, 2, 9, TALLY_SUM, &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "dtype 9");
    CHECK_OK(group,
             tally_broadcast(group, NULL, 4, tally_group_rank(group) == 0 ? 0 : 44, &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_ARG);
    CHECK_STATUS(group, tally_submit(group, -1, wrong_job, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_submit(group, 64, wrong_job, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_submit(group, 0, NULL, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_submit(NULL, 0, wrong_job, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_barrier(NULL, NULL), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "tally_barrier: group is NULL");
    return ranks_check_alive(group);
}

static int test(const char *name, ranks_body *body)
{
    int n_failures = 0;

    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        for (int k = 0; k < 4; k++) {
            const struct ranks ranks = {.kind = k % 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                        .memory = k / 2 ? RANKS_STAGED : RANKS_GROUP_MEMORY,
                                        .world = ranks_worlds[w],
                                        .lanes = k == 0 ? 3 : k - 1};

            n_failures += ranks_run_named(name, &ranks, body, NULL);
        }
    }
    return n_failures;
}

int main(void)
{
    int n_failures = test("failing jobs", fail_body);

    n_failures += test("long texts", long_text_body);
    n_failures += test("failures that a job handles", handled_body);
    n_failures += test("wrong arguments", wrong_body);
    n_failures += test("wrong asynchronous arguments", wrong_async_body);
    return n_failures != 0;
}
