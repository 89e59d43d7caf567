/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads: one that gives up, one that closes, one that never comes. Runs under TSan too.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/fault_op.h"

#define WORLD 4

enum role { STAYS_AWAY, GIVES_UP, GIVES_UP_IN_JOB, CLOSES };

struct thread_rank {
    tally_group *group;
    enum role role; /* of rank WORLD - 1 */
    int status;
    int later;
    char text[FAULT_TEXT_BYTES];
};

static atomic_bool others_are_done;

static int give_up(tally_lane *lane, void *user)
{
    (void)user;
    return tally_group_abort(tally_lane_group(lane), "had enough");
}

/* Rank WORLD - 1 plays its role after a few collectives. */
static void misbehave(struct thread_rank *self)
{
    tally_future *future;

    switch (self->role) {
    case GIVES_UP:
        (void)tally_group_abort(self->group, "had enough");
        break;
    case GIVES_UP_IN_JOB:
        if (tally_submit(self->group, 0, give_up, NULL, &future) == TALLY_OK) {
            (void)tally_future_wait(future);
            tally_future_free(future);
        }
        break;
    case CLOSES:
        break;
    default:
        while (!atomic_load_explicit(&others_are_done, memory_order_acquire)) {
            fault_sleep_ns(FAULT_NS_PER_MS);
        }
    }
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through op. */
static int sum(struct thread_rank *self, int32_t *data, size_t count)
{
    struct fault_op op = {.kind = FAULT_ALL_REDUCE, .tag = 1, .count = count, .data = data};
    tally_future *future;
    int rc;

    fault_op_prepare(&op, self->group);
    rc = fault_op_submit(&op, self->group, &future);
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    if (rc == TALLY_OK && !fault_op_is_right(&op, self->group)) {
        rc = TALLY_INTERNAL;
    }
    return rc;
}

static void *be_rank(void *argument)
{
    struct thread_rank *self = argument;
    int32_t *data = calloc(FAULT_MAX_ELEMENTS, sizeof *data);
    int rank = tally_group_rank(self->group);

    for (int i = 0; self->status == TALLY_OK && data; i++) {
        if (i == 20 && rank == WORLD - 1) {
            misbehave(self);
            break;
        }
        self->status = sum(self, data, i % 2 ? 1000 : FAULT_MAX_ELEMENTS / 2);
    }
    (void)strncpy(self->text, tally_last_error(), sizeof self->text - 1);
    if (rank != WORLD - 1) {
        self->later = sum(self, data, 10);
    }
    if (rank != WORLD - 1 || self->role != STAYS_AWAY) {
        (void)tally_group_close(self->group);
    }
    free(data);
    return NULL;
}

static void play(enum role role, double timeout_s, struct thread_rank *ranks)
{
    tally_group *groups[WORLD];
    pthread_t threads[WORLD];
    tally_group_config config;

    tally_group_config_init(&config, sizeof config);
    config.timeout_s = timeout_s;
    config.lanes = 1;
    assert_int_equal(tally_group_open_threads(&config, WORLD, groups), TALLY_OK);
    atomic_store_explicit(&others_are_done, false, memory_order_release);
    for (int r = 0; r < WORLD; r++) {
        ranks[r] = (struct thread_rank){.group = groups[r], .role = role};
        assert_int_equal(pthread_create(&threads[r], NULL, be_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < WORLD - 1; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    atomic_store_explicit(&others_are_done, true, memory_order_release);
    assert_int_equal(pthread_join(threads[WORLD - 1], NULL), 0);
    if (role == STAYS_AWAY) {
        assert_int_equal(tally_group_close(groups[WORLD - 1]), TALLY_OK);
    }
}

static void expect_all(const struct thread_rank *ranks, int status, const char *words)
{
    for (int r = 0; r < WORLD - 1; r++) {
        if (ranks[r].status != status || !strstr(ranks[r].text, words)) {
            fail_msg("rank %d was told %s: %s", r, tally_status_name(ranks[r].status),
                     ranks[r].text);
        }
        assert_int_equal(ranks[r].later, TALLY_ABORTED);
    }
}

static void one_gives_up(void **state)
{
    struct thread_rank ranks[WORLD];

    (void)state;
    play(GIVES_UP, 30, ranks);
    expect_all(ranks, TALLY_ABORTED, "rank 3 gave up: had enough");
}

static void one_gives_up_in_a_job(void **state)
{
    struct thread_rank ranks[WORLD];

    (void)state;
    play(GIVES_UP_IN_JOB, 30, ranks);
    expect_all(ranks, TALLY_ABORTED, "rank 3 gave up: had enough");
}

static void one_never_comes(void **state)
{
    struct thread_rank ranks[WORLD];
    uint64_t start = fault_now_ns();

    (void)state;
    play(STAYS_AWAY, 1, ranks);
    expect_all(ranks, TALLY_TIMEOUT, "rank 3 did not arrive within 1 s; rank ");
    assert_true(fault_now_ns() - start < 10000 * FAULT_NS_PER_MS);
}

/* A sub-group hears of it when the group around it is given up. */
static void *wait_in_half(void *argument)
{
    struct thread_rank *self = argument;
    tally_future *future;
    tally_group *half;

    self->status = tally_group_split(self->group, 0, 0, &half);
    if (self->status != TALLY_OK) {
        return NULL;
    }
    if (tally_group_rank(self->group) == WORLD - 1) {
        fault_sleep_ns(50 * FAULT_NS_PER_MS);
        (void)tally_group_abort(self->group, "had enough");
    } else {
        self->status = tally_barrier(half, &future);
        if (self->status == TALLY_OK) {
            self->status = tally_future_wait(future);
            tally_future_free(future);
        }
        (void)strncpy(self->text, tally_last_error(), sizeof self->text - 1);
        self->later = tally_barrier(half, &future);
    }
    (void)tally_group_close(half);
    return NULL;
}

static void sub_group_hears(void **state)
{
    tally_group *groups[WORLD];
    struct thread_rank ranks[WORLD];
    pthread_t threads[WORLD];

    (void)state;
    assert_int_equal(tally_group_open_threads(NULL, WORLD, groups), TALLY_OK);
    for (int r = 0; r < WORLD; r++) {
        ranks[r] = (struct thread_rank){.group = groups[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, wait_in_half, &ranks[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    }
    expect_all(ranks, TALLY_ABORTED, "rank 3 gave up: had enough");
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(tally_group_close(groups[r]), TALLY_OK);
    }
}

static void one_closes(void **state)
{
    struct thread_rank ranks[WORLD];

    (void)state;
    play(CLOSES, 30, ranks);
    expect_all(ranks, TALLY_PEER, "rank 3 closed its group");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gives_up),    cmocka_unit_test(one_gives_up_in_a_job),
        cmocka_unit_test(one_never_comes), cmocka_unit_test(one_closes),
        cmocka_unit_test(sub_group_hears),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
