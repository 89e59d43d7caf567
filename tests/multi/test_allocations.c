/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: after warm-up no collective allocates; when an allocation fails, whichever it is,
 * opening, splitting, allocating and submitting return NOMEM, leave nothing behind, and nobody
 * hangs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "support/counting_memory.h"
#include "support/ranks.h"

/* ---- none after warm-up ---- */

#define N_BATCH 8

static int mixed_job(tally_lane *lane, void *user)
{
    tally_group *group = tally_lane_group(lane);
    float data[100] = {0};
    size_t bytes[16];

    (void)user;
    for (int r = 0; r < 16; r++) {
        bytes[r] = 4;
    }
    CHECK_OK(group, tally_lane_all_reduce(lane, data, 100, TALLY_F32, TALLY_SUM));
    CHECK_OK(group, tally_lane_all_gather(lane, data, bytes, data + 50));
    CHECK_OK(group, tally_lane_all_to_all(lane, data, bytes, data + 50, bytes));
    CHECK_OK(group, tally_lane_broadcast(lane, data, 40, 0));
    CHECK_OK(group, tally_lane_reduce_scatter(lane, data, 100, TALLY_F16, TALLY_MAX));
    return tally_lane_barrier(lane);
}

static int run_batch(tally_group *group, float *data)
{
    tally_future *futures[N_BATCH];
    int n_lanes = ranks_now()->lanes > 0 ? ranks_now()->lanes : 1;

    for (int i = 0; i < N_BATCH; i++) {
        if (i % 2) {
            CHECK_OK(group,
                     tally_all_reduce(group, data + i * 3000, 3000, TALLY_F32, i % 4, &futures[i]));
        } else {
            CHECK_OK(group, tally_submit(group, i / 2 % n_lanes, mixed_job, NULL, &futures[i]));
        }
    }
    for (int i = 0; i < N_BATCH; i++) {
        CHECK_OK(group, ranks_finish(futures[i]));
    }
    return 0;
}

static int steady_body(tally_group *group, void *user)
{
    float data[N_BATCH * 3000] = {0};
    tally_future *future;
    size_t before;

    (void)user;
    CHECK(group, run_batch(group, data) == 0);
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    before = counting_memory_calls();
    /* More than a thousand collectives: 4 of the batch are one, 4 are six. */
    for (int i = 0; i < 40; i++) {
        CHECK(group, run_batch(group, data) == 0);
    }
    CHECK(group, counting_memory_calls() == before);
    return 0;
}

static void test_steady(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const struct ranks ranks = {.kind = i % 4 == 3 ? RANKS_PROCESSES : RANKS_THREADS,
                                    .memory = i % 4 == 1 ? RANKS_STAGED : RANKS_HEAP,
                                    .world = i < 4 ? 2 : 7,
                                    .lanes = i % 4};

        assert_int_equal(ranks_run(&ranks, steady_body, NULL), 0);
    }
}

/* ---- the N-th fails ---- */

struct opening {
    int n;
    int lanes;
};

static void close_all(tally_group **groups, int n)
{
    for (int r = 0; r < n; r++) {
        (void)tally_group_close(groups[r]);
    }
}

static int open_and_close(void *user)
{
    const struct opening *opening = user;
    tally_group *groups[8];
    tally_group_config config;
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.lanes = opening->lanes;
    rc = tally_group_open_threads(&config, opening->n, groups);
    if (rc == TALLY_OK) {
        close_all(groups, opening->n);
    }
    return rc;
}

static void test_open_threads(void **state)
{
    static struct opening openings[] = {{1, 0}, {1, 1}, {3, 0}, {3, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        assert_true(counting_memory_exhaust(open_and_close, &openings[i]) > 0);
    }
}

static int nothing_job(tally_lane *lane, void *user)
{
    (void)user;
    return tally_lane_barrier(lane);
}

/* Everything one rank alone can do; what was made before a failure is undone. */
static int use_alone(tally_group *group)
{
    tally_group *child;
    tally_future *future;
    void *memory;
    int rc = tally_group_split(group, 0, 0, &child);

    if (rc != TALLY_OK) {
        return rc;
    }
    rc = tally_group_alloc(child, 10000, &memory);
    if (rc == TALLY_OK) {
        tally_future *more[4];
        int n = 0;

        for (; rc == TALLY_OK && n < 4; n++) {
            rc = tally_submit(child, 0, nothing_job, NULL, &more[n]);
        }
        for (int i = 0; i < (rc == TALLY_OK ? n : n - 1); i++) {
            (void)ranks_finish(more[i]);
        }
        (void)tally_group_free(child, memory);
    }
    if (rc == TALLY_OK && tally_barrier(child, &future) == TALLY_OK) {
        rc = ranks_finish(future);
    }
    (void)tally_group_close(child);
    return rc;
}

static int use_self(void *user)
{
    tally_group_config config;
    tally_group *group;
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.world = 1;
    config.backend = user;
    config.lanes = 1;
    rc = tally_group_open(&config, &group);
    if (rc == TALLY_OK) {
        rc = use_alone(group);
        assert_int_equal(tally_group_close(group), TALLY_OK);
    }
    return rc;
}

static void test_use(void **state)
{
    char self[] = "self";
    char shm[] = "shm";

    (void)state;
    assert_true(counting_memory_exhaust(use_self, self) > 0);
    assert_true(counting_memory_exhaust(use_self, shm) > 0);
}

/* ---- on one of several ranks ---- */

struct rank {
    tally_group *group;
    int rc;
    char text[256];
};

static void *split_and_alloc(void *argument)
{
    struct rank *rank = argument;
    tally_group *child = NULL;
    void *memory;

    rank->rc = tally_group_alloc(rank->group, 5000, &memory);
    if (rank->rc == TALLY_OK) {
        rank->rc = tally_group_split(rank->group, 0, 0, &child);
    }
    if (rank->rc == TALLY_OK) {
        rank->rc = tally_group_close(child);
    }
    (void)snprintf(rank->text, sizeof rank->text, "%s", tally_last_error());
    return NULL;
}

/* One rank's NOMEM is every rank's; only a job that could not be submitted is missed by the rest.
 */
static int judge(const struct rank *ranks)
{
    int rc = TALLY_OK;
    bool unsaid = false;

    for (int r = 0; r < 3; r++) {
        rc = ranks[r].rc == TALLY_NOMEM ? TALLY_NOMEM : rc;
        unsaid = unsaid || (ranks[r].rc == TALLY_NOMEM && strstr(ranks[r].text, "for a future"));
    }
    for (int r = 0; r < 3; r++) {
        assert_true(ranks[r].rc == rc || (unsaid && ranks[r].rc == TALLY_TIMEOUT));
    }
    return rc;
}

static int use_several(void *user)
{
    tally_group *groups[3];
    struct rank ranks[3];
    pthread_t threads[3];
    tally_group_config config;
    int rc;

    (void)user;
    tally_group_config_init(&config, sizeof config);
    config.lanes = 1;
    config.timeout_s = 1.5; /* a rank that cannot say that it failed costs the others this long */
    rc = tally_group_open_threads(&config, 3, groups);
    if (rc != TALLY_OK) {
        return rc;
    }
    for (int r = 0; r < 3; r++) {
        ranks[r].group = groups[r];
        assert_int_equal(pthread_create(&threads[r], NULL, split_and_alloc, &ranks[r]), 0);
    }
    for (int r = 0; r < 3; r++) {
        (void)pthread_join(threads[r], NULL);
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(tally_group_close(groups[r]), TALLY_OK);
    }
    return judge(ranks);
}

static void test_use_several(void **state)
{
    (void)state;
    /* The text is that of this thread: opening fails here, the rest on the ranks. */
    (void)tally_future_wait(NULL);
    assert_true(counting_memory_exhaust(use_several, NULL) > 0);
}

/* ---- more than there is ---- */

static int too_much_body(tally_group *group, void *user)
{
    void *memory = group;
    unsigned char *good;

    (void)user;
    CHECK_STATUS(group, tally_group_alloc(group, SIZE_MAX, &memory), TALLY_NOMEM);
    /* As threads, these are the heap's to refuse, and a sanitizer's heap ends the program. */
    if (ranks_now()->kind == RANKS_PROCESSES) {
        CHECK_STATUS(group, tally_group_alloc(group, SIZE_MAX - 4096, &memory), TALLY_NOMEM);
        CHECK_STATUS(group, tally_group_alloc(group, (size_t)1 << 46, &memory), TALLY_NOMEM);
    }
    CHECK(group, memory == group);
    CHECK_STATUS(group, tally_group_alloc(group, 10, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_group_alloc(NULL, 10, &memory), TALLY_ARG);
    CHECK_OK(group, tally_group_alloc(group, 0, &memory));
    CHECK_OK(group, tally_group_free(group, memory));
    /* Memory that was freed is zero when it is allocated again. */
    for (int i = 0; i < 5; i++) {
        CHECK_OK(group, tally_group_alloc(group, 100000, (void **)&good));
        for (size_t k = 0; k < 100000; k++) {
            CHECK(group, good[k] == 0);
        }
        memset(good, 0xff, 100000);
        CHECK_OK(group, tally_group_free(group, good));
    }
    return 0;
}

static void test_too_much(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct ranks ranks = {
            .kind = i % 2 ? RANKS_PROCESSES : RANKS_THREADS, .world = i < 2 ? 1 : 3, .lanes = 1};

        assert_int_equal(ranks_run(&ranks, too_much_body, NULL), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),   cmocka_unit_test(test_open_threads),
        cmocka_unit_test(test_use),      cmocka_unit_test(test_use_several),
        cmocka_unit_test(test_too_much),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
