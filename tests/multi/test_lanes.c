/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes and futures: order and results per lane, every way to wait, callbacks, futures without a
 * wait, and the calls that a job must not make. With no lane thread, one and three.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/ranks.h"

#define N_JOBS 30

/* ---- order ---- */

struct ordered {
    int number;
    int lane;
    _Atomic int *next; /* per lane: the number that must come */
    double result;
};

static int ordered_job(tally_lane *lane, void *user)
{
    struct ordered *job = user;
    tally_group *group = tally_lane_group(lane);

    CHECK(group, tally_lane_index(lane) == job->lane);
    CHECK(group, atomic_load(&job->next[job->lane]) == job->number);
    job->result = job->number + tally_group_rank(group);
    CHECK_OK(group, tally_lane_all_reduce(lane, &job->result, 1, TALLY_F64, TALLY_SUM));
    atomic_store(&job->next[job->lane], job->number + 1);
    return TALLY_OK;
}

static double expected_result(const struct ordered *job, int world)
{
    return (double)(job->number * world) + world * (world - 1) * 0.5;
}

static int order_body(tally_group *group, void *user)
{
    int n_lanes = ranks_now()->lanes > 0 ? ranks_now()->lanes : 1;
    int world = tally_group_size(group);
    struct ordered jobs[N_JOBS];
    tally_future *futures[N_JOBS];
    _Atomic int next[3] = {0, 0, 0};

    (void)user;
    for (int i = 0; i < N_JOBS; i++) {
        jobs[i] = (struct ordered){i / n_lanes, i % n_lanes, next, 0};
        /* Every fourth one is not asked for. */
        CHECK_OK(group, tally_submit(group, i % n_lanes, ordered_job, &jobs[i],
                                     i % 4 == 3 ? NULL : &futures[i]));
    }
    for (int i = N_JOBS - 1; i >= 0; i--) {
        if (i % 4 != 3) {
            CHECK_OK(group, ranks_finish(futures[i]));
            CHECK(group, jobs[i].result == expected_result(&jobs[i], world));
        }
    }
    /* The last job of a lane may be one without a wait. */
    CHECK_OK(group, ranks_close(group));
    for (int i = 3; i < N_JOBS; i += 4) {
        CHECK(NULL, jobs[i].result == expected_result(&jobs[i], world));
    }
    return 0;
}

/* ---- waiting ---- */

static int held_job(tally_lane *lane, void *user)
{
    CHECK(tally_lane_group(lane), ranks_await(user, 1) == 0);
    return tally_lane_barrier(lane);
}

static int wait_body(tally_group *group, void *user)
{
    _Atomic uint32_t open = 0;
    tally_future *future;
    int done = 7;

    (void)user;
    CHECK_OK(group, tally_submit(group, 0, held_job, &open, &future));
    CHECK_OK(group, tally_future_test(future, &done));
    CHECK(group, done == 0);
    CHECK(group, tally_future_bytes_sent(future) == 0);
    /* Without a lane thread it is the wait that runs the job. */
    if (ranks_now()->lanes > 0) {
        CHECK_STATUS(group, tally_future_wait_for(future, 0), TALLY_TIMEOUT);
        CHECK_STATUS(group, tally_future_wait_for(future, 0.02), TALLY_TIMEOUT);
        CHECK_TEXT(group, tally_last_error(), "0.02 s");
    }
    CHECK_STATUS(group, tally_future_wait_for(future, -1), TALLY_ARG);
    CHECK_STATUS(group, tally_future_wait_for(future, (double)NAN), TALLY_ARG);
    CHECK_STATUS(group, tally_future_wait_for(future, 1e300), TALLY_ARG);
    CHECK_STATUS(group, tally_future_wait(NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_future_test(NULL, &done), TALLY_ARG);
    CHECK_STATUS(group, tally_future_test(future, NULL), TALLY_ARG);
    CHECK(group, tally_future_bytes_sent(NULL) == 0);
    tally_future_free(NULL);
    atomic_store(&open, 1);
    CHECK_OK(group, tally_future_wait_for(future, 30));
    CHECK_OK(group, tally_future_wait(future));
    CHECK_OK(group, tally_future_wait_for(future, 0));
    CHECK_OK(group, tally_future_test(future, &done));
    CHECK(group, done == 1);
    tally_future_free(future);
    return 0;
}

/* ---- callbacks ---- */

struct called {
    atomic_int n;
    int status;
    char text[64];
};

static void on_done(void *user, int status, const char *text)
{
    struct called *called = user;

    called->status = status;
    (void)snprintf(called->text, sizeof called->text, "%s", text);
    atomic_fetch_add(&called->n, 1);
}

static int held_failure(tally_lane *lane, void *user)
{
    CHECK(tally_lane_group(lane), ranks_await(user, 1) == 0);
    return tally_job_fail(lane, TALLY_NUMERIC, "on purpose");
}

static int callback_body(tally_group *group, void *user)
{
    _Atomic uint32_t open = 0;
    struct called early = {0};
    struct called late = {0};
    struct called left = {0};
    tally_future *future;

    (void)user;
    CHECK_OK(group, tally_submit(group, 0, held_failure, &open, &future));
    CHECK_STATUS(group, tally_future_on_done(future, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_future_on_done(NULL, on_done, NULL), TALLY_ARG);
    CHECK_OK(group, tally_future_on_done(future, on_done, &early));
    CHECK_STATUS(group, tally_future_on_done(future, on_done, &late), TALLY_STATE);
    CHECK(group, atomic_load(&early.n) == 0);
    atomic_store(&open, 1);
    CHECK_STATUS(group, tally_future_wait(future), TALLY_NUMERIC);
    /* After waiting, the callback has run. */
    CHECK(group, atomic_load(&early.n) == 1 && early.status == TALLY_NUMERIC);
    CHECK(group, strcmp(early.text,
                        tally_group_size(group) == 1 ? "rank 0: on purpose" : "on purpose") == 0);
    CHECK_STATUS(group, tally_future_on_done(future, on_done, &late), TALLY_STATE);
    tally_future_free(future);

    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, tally_future_wait(future));
    CHECK_OK(group, tally_future_on_done(future, on_done, &late));
    CHECK(group, atomic_load(&late.n) == 1 && late.status == TALLY_OK && !late.text[0]);
    CHECK_STATUS(group, tally_future_on_done(future, on_done, &late), TALLY_STATE);
    tally_future_free(future);

    /* Freed before it is done: the job and the callback still run. */
    atomic_store(&open, 0);
    CHECK_OK(group, tally_submit(group, 0, held_job, &open, &future));
    CHECK_OK(group, tally_future_on_done(future, on_done, &left));
    tally_future_free(future);
    atomic_store(&open, 1);
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK(group, atomic_load(&left.n) == 1 && left.status == TALLY_OK);
    CHECK(group, atomic_load(&early.n) == 1 && atomic_load(&late.n) == 1);
    return 0;
}

/* ---- what a job must not do ---- */

struct forbidden {
    tally_future *later; /* submitted behind the job */
    _Atomic uint32_t ready;
};

static int forbidden_job(tally_lane *lane, void *user)
{
    struct forbidden *forbidden = user;
    tally_group *group = tally_lane_group(lane);
    tally_group *child;
    void *memory;

    CHECK(group, ranks_await(&forbidden->ready, 1) == 0);
    CHECK_STATUS(group, tally_future_wait(forbidden->later), TALLY_STATE);
    CHECK_STATUS(group, tally_future_wait_for(forbidden->later, 1), TALLY_STATE);
    CHECK_STATUS(group, tally_group_alloc(group, 8, &memory), TALLY_STATE);
    CHECK_STATUS(group, tally_group_split(group, 0, 0, &child), TALLY_STATE);
    CHECK_STATUS(group, tally_group_close(group), TALLY_STATE);
    return tally_lane_barrier(lane);
}

static int forbidden_body(tally_group *group, void *user)
{
    struct forbidden forbidden = {0};
    tally_future *future;

    (void)user;
    CHECK_OK(group, tally_submit(group, 0, forbidden_job, &forbidden, &future));
    CHECK_OK(group, tally_barrier(group, &forbidden.later));
    atomic_store(&forbidden.ready, 1);
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, ranks_finish(forbidden.later));
    return 0;
}

/* ---- small promises ---- */

static int null_job(tally_lane *lane, void *user)
{
    CHECK(tally_lane_group(lane), user == NULL);
    return TALLY_OK;
}

/* A job may submit others; they run after it. */
static int submitting_job(tally_lane *lane, void *user)
{
    return tally_submit(tally_lane_group(lane), tally_lane_index(lane), null_job, NULL, user);
}

static int promises_body(tally_group *group, void *user)
{
    tally_future *future = NULL;
    char before[256];

    (void)user;
    CHECK_OK(group, ranks_job(group, 0, null_job, NULL));
    CHECK_OK(group, ranks_job(group, 0, submitting_job, &future));
    CHECK_OK(group, ranks_finish(future));
    /* A success does not clear the text of the last failure. */
    CHECK_STATUS(group, tally_future_wait(NULL), TALLY_ARG);
    (void)snprintf(before, sizeof before, "%s", tally_last_error());
    CHECK_OK(group, ranks_job(group, 0, null_job, NULL));
    CHECK(group, strcmp(tally_last_error(), before) == 0);
    CHECK(group, tally_lane_for(NULL, group) == NULL);
    CHECK(group, tally_lane_group(NULL) == NULL && tally_lane_index(NULL) == -1);
    CHECK(group, tally_group_rank(NULL) == -1 && tally_group_size(NULL) == 0);
    CHECK(group, strcmp(tally_group_backend(NULL), "") == 0);
    CHECK(group, tally_group_bytes_sent(NULL) == 0);
    CHECK_OK(group, tally_group_close(NULL));
    CHECK_OK(group, tally_group_free(group, NULL));
    CHECK_STATUS(group, tally_group_abort(NULL, ""), TALLY_ARG);
    return 0;
}

static int test(const char *name, ranks_body *body)
{
    static const int worlds[] = {1, 2, 7, 0};

    return ranks_run_lanes(name, worlds, body);
}

int main(void)
{
    int n_failures = test("order", order_body);

    n_failures += test("waiting", wait_body);
    n_failures += test("callbacks", callback_body);
    n_failures += test("what a job must not do", forbidden_body);
    n_failures += test("small promises", promises_body);
    return n_failures != 0;
}
