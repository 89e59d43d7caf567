/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events after a call has failed or a group was aborted: buffers are freed while others still read
 * them, sub-groups are closed, splits are under way, late ranks arrive. And failures that change
 * nothing: sizes that wrap around, pointers that are not the group's, a forked child that closes
 * its parent's group.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/ranks.h"

#define MANY 100000
#define MOST_RANKS 8

static int n_failures;

/* ---- buffers that are freed after a failure, and ranks that come then ---- */

enum freed_kind { ALL_REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER, ALL_TO_ALL, N_FREED_KINDS };

struct freed_plan {
    enum freed_kind kind;
    size_t count;
    bool aborts; /* rank 0 gives up; otherwise its deadline passes */
};

static int start_freed(tally_group *group, const struct freed_plan *plan, float *data,
                       float *received, size_t *bytes, tally_future **future)
{
    for (int r = 0; r < tally_group_size(group); r++) {
        bytes[r] = plan->count / MOST_RANKS * sizeof *data;
    }
    switch (plan->kind) {
    case ALL_REDUCE:
        return tally_all_reduce(group, data, plan->count, TALLY_F32, TALLY_SUM, future);
    case REDUCE_SCATTER:
        return tally_reduce_scatter(group, data, plan->count, TALLY_F32, TALLY_SUM, future);
    case BROADCAST:
        return tally_broadcast(group, data, plan->count * sizeof *data, 0, future);
    case ALL_GATHER:
        return tally_all_gather(group, data, bytes, received, future);
    default:
        return tally_all_to_all(group, data, bytes, received, bytes, future);
    }
}

/* Makes the call with buffers that are gone when it is over. */
static int call_and_free(tally_group *group, const struct freed_plan *plan, bool *is_untouched)
{
    float *data = calloc(plan->count, sizeof *data);
    float *received = calloc(plan->count, sizeof *received);
    size_t bytes[MOST_RANKS];
    tally_future *future;
    int rc = TALLY_NOMEM;

    if (data && received) {
        data[0] = 3;
        rc = start_freed(group, plan, data, received, bytes, &future);
        if (rc == TALLY_OK && plan->aborts && tally_group_rank(group) == 0) {
            /* Time to arrive: the last one then finds us there. */
            ranks_sleep_ms(20);
            (void)tally_group_abort(group, "no more of this");
        }
        rc = rc == TALLY_OK ? ranks_finish(future) : rc;
        *is_untouched = data[0] == 3 && received[0] == 0;
    }
    free(received);
    free(data);
    return rc;
}

/*
 * The last rank comes when the others have been told of the failure and have freed their memory: it
 * gets the failure too, and none of their bytes.
 */
static int freed_body(tally_group *group, void *user)
{
    const struct freed_plan *plan = user;
    int last = tally_group_size(group) - 1;
    bool is_untouched = false;
    int rc;

    if (tally_group_rank(group) == last) {
        CHECK(group, ranks_await(&ranks_words()[0], (uint32_t)last) == 0);
    }
    rc = call_and_free(group, plan, &is_untouched);
    atomic_fetch_add(&ranks_words()[0], 1);
    CHECK_STATUS(group, rc, plan->aborts ? TALLY_ABORTED : TALLY_TIMEOUT);
    CHECK_TEXT(group, tally_last_error(), plan->aborts ? "no more of this" : "did not arrive");
    CHECK(group, is_untouched);
    return 0;
}

/* ---- closing a sub-group whose job is still running ---- */

static int slow_job(tally_lane *lane, void *user)
{
    _Atomic uint32_t *states = user;

    (void)lane;
    atomic_store(&states[0], 1);
    ranks_sleep_ms(300);
    atomic_store(&states[1], 1);
    return TALLY_OK;
}

static int slow_close_body(tally_group *group, void *user)
{
    const bool *aborts_parent = user;
    _Atomic uint32_t *states = &ranks_words()[2 * tally_group_rank(group)];
    tally_group *sub;

    CHECK_OK(group, tally_group_split(group, 0, 0, &sub));
    CHECK_OK(group, tally_submit(sub, 0, slow_job, (void *)states, NULL));
    CHECK(group, ranks_await(&states[0], 1) == 0);
    CHECK(group, ranks_meet(group) == 0);
    CHECK_OK(group, tally_group_abort(*aborts_parent ? group : sub, "enough"));
    CHECK_OK(group, tally_group_close(sub));
    CHECK(group, atomic_load(&states[1]) == 1);
    return *aborts_parent ? 0 : ranks_check_alive(group);
}

/* ---- a group given up in the middle of a split ---- */

struct aborter {
    tally_group *group;
    long delay_us;
};

static void *abort_later(void *argument)
{
    const struct aborter *aborter = argument;
    uint64_t end = tally__now_ns() + (uint64_t)aborter->delay_us * 1000;

    while (tally__now_ns() < end) {
    }
    (void)tally_group_abort(aborter->group, "in the middle");
    return NULL;
}

/* Some ranks succeed, others do not; a rank that succeeded looks at the others' slots and is told.
 */
static int split_body(tally_group *group, void *user)
{
    struct aborter aborter = {group, *(const long *)user};
    tally_group *sub = NULL;
    tally_future *future;
    pthread_t thread = pthread_self();
    int rc = TALLY_OK;

    CHECK(group, ranks_meet(group) == 0);
    if (tally_group_rank(group) == 0) {
        CHECK(group, pthread_create(&thread, NULL, abort_later, &aborter) == 0);
    }
    for (int i = 0; i < 50 && rc == TALLY_OK; i++) {
        rc = tally_group_split(group, 0, 0, &sub);
        if (rc == TALLY_OK) {
            rc = tally_barrier(sub, &future);
            rc = rc == TALLY_OK ? ranks_finish(future) : rc;
            CHECK_OK(group, tally_group_close(sub));
        }
    }
    if (tally_group_rank(group) == 0) {
        CHECK(group, pthread_join(thread, NULL) == 0);
    }
    CHECK(group, rc == TALLY_OK || rc == TALLY_ABORTED || rc == TALLY_PEER);
    return 0;
}

static void test_splits(void)
{
    for (int i = 0; i < 400; i++) {
        const struct ranks ranks = {
            .kind = i % 8 == 7 ? RANKS_PROCESSES : RANKS_THREADS, .world = 2 + i % 2, .lanes = 1};
        long delay_us = i % 100 * 13;
        int failed = ranks_run(&ranks, split_body, &delay_us);

        if (failed) {
            (void)fprintf(stderr, "given up %ld us after the begin of a split: failed\n", delay_us);
        }
        n_failures += failed;
    }
}

/* ---- a deadline for the whole round ---- */

/* Rank 1 is late, rank 2 later, rank 3 does not come: the lateness of one rank gives the next one
 * no more time. */
static int deadline_body(tally_group *group, void *user)
{
    static const int late_ms[] = {0, 1500, 4500};
    int rank = tally_group_rank(group);
    tally_future *future;
    uint64_t start;
    int rc;

    (void)user;
    if (rank < 3) {
        ranks_sleep_ms(late_ms[rank]);
    } else {
        CHECK(group, ranks_await(&ranks_words()[0], 3) == 0);
    }
    start = tally__now_ns();
    rc = tally_barrier(group, &future);
    rc = rc == TALLY_OK ? ranks_finish(future) : rc;
    CHECK_STATUS(group, rc, TALLY_TIMEOUT);
    CHECK_TEXT(group, tally_last_error(), "ranks 2, 3 did not arrive within 3 s");
    CHECK(group, tally__now_ns() - start < TALLY__NS_PER_SECOND * 44 / 10);
    atomic_fetch_add(&ranks_words()[0], 1);
    return 0;
}

/* ---- sizes that wrap around ---- */

struct wrap_plan {
    bool to_all;
    bool receives; /* all-to-all: the sizes of what is received, not those of what is sent */
    bool on_all;   /* on one rank, while the others are right; or on all */
};

/* Each alone is a possible number; their sum is 0, or 16. */
static int wrap_job(tally_lane *lane, void *user)
{
    const struct wrap_plan *plan = user;
    tally_group *group = tally_lane_group(lane);
    char sent[512] = {0};
    char received[512] = {0};
    size_t right[MOST_RANKS];
    size_t wrong[MOST_RANKS];
    bool is_wrong = plan->on_all || tally_group_rank(group) == tally_group_size(group) - 1;

    for (int r = 0; r < MOST_RANKS; r++) {
        right[r] = 16;
        wrong[r] = r < 2 ? SIZE_MAX / 2 + 1 : r == 2 ? 16 : 0;
    }
    if (plan->to_all) {
        return tally_lane_all_to_all(lane, sent, is_wrong && !plan->receives ? wrong : right,
                                     received, is_wrong && plan->receives ? wrong : right);
    }
    return tally_lane_all_gather(lane, sent, is_wrong ? wrong : right, received);
}

static int wrap_body(tally_group *group, void *user)
{
    (void)user;
    for (int flags = 0; flags < 8; flags++) {
        struct wrap_plan plan = {flags & 1, flags & 2, flags & 4};

        CHECK_STATUS(group, ranks_job(group, 0, wrap_job, &plan), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "more than memory can hold");
        CHECK(group, ranks_check_alive(group) == 0);
    }
    return 0;
}

/* ---- pointers that are not the group's ---- */

static int foreign_body(tally_group *group, void *user)
{
    static _Alignas(64) char foreign[4096];
    bool is_last = tally_group_rank(group) == tally_group_size(group) - 1;
    void *memory;
    void *other;

    (void)user;
    CHECK_OK(group, tally_group_alloc(group, 100, &memory));
    CHECK_OK(group, tally_group_alloc(group, 10000, &other));
    CHECK_STATUS(group, tally_group_free(group, foreign + 512), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "not memory of the group");
    CHECK_STATUS(group, tally_group_free(group, (char *)other + 64), TALLY_ARG);
    /* One rank's mistake leaves the memory of all ranks as it was. */
    CHECK_STATUS(group, tally_group_free(group, is_last ? foreign : memory), TALLY_ARG);
    memset(memory, 1, 100);
    CHECK_OK(group, tally_group_free(group, memory));
    CHECK_STATUS(group, tally_group_free(group, is_last ? memory : other), TALLY_ARG);
    CHECK_STATUS(group, tally_group_free(group, memory), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "not memory of the group");
    memset(other, 1, 10000);
    CHECK_OK(group, tally_group_free(group, other));
    return ranks_check_alive(group);
}

/* ---- forked children ---- */

static int fork_body(tally_group *group, void *user)
{
    tally_group *sub;

    (void)user;
    CHECK_OK(group, tally_group_split(group, 0, 0, &sub));
    for (int i = 0; i < 3; i++) {
        int status = -1;
        pid_t child = fork();

        if (child == 0) {
            (void)alarm(20);
            _exit(tally_group_close(sub) != TALLY_OK || tally_group_close(group) != TALLY_OK);
        }
        CHECK(group, child > 0 && waitpid(child, &status, 0) == child);
        CHECK(group, WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(group, ranks_check_alive(sub) == 0);
        CHECK(group, ranks_check_alive(group) == 0);
    }
    CHECK_OK(group, tally_group_close(sub));
    return 0;
}

/* ---- all of it ---- */

/* As threads and as processes, in several worlds. */
static void test(const char *name, ranks_body *body, int least, void *user)
{
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        for (int k = 0; k < 2 && ranks_worlds[w] >= least; k++) {
            const struct ranks ranks = {
                .kind = k ? RANKS_PROCESSES : RANKS_THREADS, .world = ranks_worlds[w], .lanes = 1};

            n_failures += ranks_run_named(name, &ranks, body, user);
        }
    }
}

static void test_freed(void)
{
    static const size_t counts[] = {64, MANY};

    for (int k = 0; k < 4 * N_FREED_KINDS; k++) {
        struct freed_plan plan = {(enum freed_kind)(k / 4), counts[k % 2], k % 4 / 2};

        for (int j = 0; j < 4; j++) {
            const struct ranks ranks = {.kind = j % 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                        .world = 2 + j / 2,
                                        .lanes = 1,
                                        .timeout_s = plan.aborts ? 60 : 0.1};

            n_failures += ranks_run_named("freed after a failure", &ranks, freed_body, &plan);
        }
    }
}

int main(void)
{
    bool aborts_parent[] = {false, true};

    test_freed();
    test("a slow job of a sub-group given up", slow_close_body, 1, &aborts_parent[0]);
    test("a slow job in a group given up", slow_close_body, 1, &aborts_parent[1]);
    test_splits();
    for (int k = 0; k < 2; k++) {
        const struct ranks ranks = {
            .kind = k ? RANKS_PROCESSES : RANKS_THREADS, .world = 4, .lanes = 1, .timeout_s = 3};

        n_failures += ranks_run_named("deadline", &ranks, deadline_body, NULL);
    }
    test("sizes that wrap around", wrap_body, 3, NULL);
    test("foreign pointers", foreign_body, 1, NULL);
    for (int lanes = 0; lanes < 2; lanes++) {
        const struct ranks ranks = {.kind = RANKS_PROCESSES, .world = 3, .lanes = lanes};

        n_failures += ranks_run_named("forked children", &ranks, fork_body, NULL);
    }
    return n_failures != 0;
}
