/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of events: what is read is what was put, in order, and whole, also while the writer
 * overwrites it; thousands of threads share few rings, and none of their events gets lost if they
 * are kept.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/ring.h"

#define SOME 300

static struct tally__trace_event event_number(uint64_t n)
{
    return (struct tally__trace_event){.begin_ns = n,
                                       .end_ns = ~n,
                                       .step = (uint32_t)n,
                                       .bytes = (float)(n % 1000),
                                       .peer = (int32_t)(n % 77),
                                       .bucket = (uint16_t)n,
                                       .kind = TALLY__EVENT_CHECKPOINT,
                                       .ddp = 3};
}

static void put(uint64_t tracer, uint64_t n)
{
    struct tally__trace_event event = event_number(n);

    tally__event_put(tracer, &event);
}

static bool is_number(const struct tally__trace_event *event, uint64_t n)
{
    struct tally__trace_event expected = event_number(n);

    return event->begin_ns == expected.begin_ns && event->end_ns == expected.end_ns &&
           event->step == expected.step && event->bytes == expected.bytes &&
           event->peer == expected.peer && event->bucket == expected.bucket &&
           event->kind == expected.kind && event->ddp == expected.ddp;
}

static void test_in_order(void **state)
{
    static struct tally__trace_event events[SOME];
    struct tally__ring *ring;
    uint64_t lost = 9;
    uint64_t next;

    (void)state;
    assert_null(tally__ring_next(1, NULL));
    for (uint64_t n = 0; n < 2 * SOME; n++) {
        put(1, n);
    }
    ring = tally__ring_next(1, NULL);
    assert_non_null(ring);
    assert_null(tally__ring_next(1, ring));
    next = tally__ring_back(ring, 10);
    assert_int_equal(tally__ring_copy(ring, &next, SOME, events), 10);
    assert_true(is_number(&events[0], 2 * SOME - 10) && is_number(&events[9], 2 * SOME - 1));
    for (uint64_t first = 0; first < 2 * SOME; first += SOME) {
        assert_int_equal(tally__ring_take(ring, SOME, events, &lost), SOME);
        assert_int_equal(lost, 0);
        for (uint64_t i = 0; i < SOME; i++) {
            assert_true(is_number(&events[i], first + i));
        }
    }
    assert_int_equal(tally__ring_take(ring, SOME, events, &lost), 0);
    /* Ten more than fit; the slot that could be written next does not count. */
    for (uint64_t n = 0; n < TALLY__RING_EVENTS + 10; n++) {
        put(1, n);
    }
    assert_int_equal(tally__ring_take(ring, SOME, events, &lost), SOME);
    assert_int_equal(lost, 11);
    assert_true(is_number(&events[0], 11));
    tally__rings_release(1);
}

/* ---- one writes, another reads ---- */

static atomic_bool is_over;

static void *write_all(void *count)
{
    for (uint64_t n = 0; n < *(const uint64_t *)count; n++) {
        put(2, n);
    }
    atomic_store(&is_over, true);
    return NULL;
}

static void test_overwritten(void **state)
{
    static struct tally__trace_event events[SOME];
    uint64_t count = TALLY_TESTS_SANITIZED ? 200000 : 5000000;
    struct tally__ring *ring = NULL;
    uint64_t next = 0;
    pthread_t thread;

    (void)state;
    /* The ring stays with its events when the thread ends. */
    tally__rings_keep(true);
    assert_int_equal(pthread_create(&thread, NULL, write_all, &count), 0);
    while (!ring) {
        ring = tally__ring_next(2, NULL);
    }
    for (bool last = false; !last;) {
        uint64_t lost;
        size_t n;

        last = atomic_load(&is_over);
        while ((n = tally__ring_take(ring, SOME, events, &lost)) > 0 || lost > 0) {
            next += lost;
            for (size_t i = 0; i < n; i++) {
                assert_true(is_number(&events[i], next));
                next++;
            }
        }
    }
    assert_int_equal(next, count);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tally__rings_release(2);
    tally__rings_keep(false);
}

/* ---- many threads ---- */

static void *put_one(void *number)
{
    put(3, *(const uint64_t *)number);
    return NULL;
}

static size_t count_rings(uint64_t tracer)
{
    size_t n = 0;

    for (const struct tally__ring *ring = NULL; (ring = tally__ring_next(tracer, ring)) != NULL;) {
        n++;
    }
    return n;
}

static void run_threads(uint64_t first, uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++) {
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, put_one, &i), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

static void test_many_threads(void **state)
{
    struct tally__trace_event event;
    uint64_t sum = 0;
    uint64_t lost;

    (void)state;
    run_threads(0, 2000);
    assert_true(count_rings(3) <= 2);
    tally__rings_release(3);
    /* Threads end before their events are taken. */
    tally__rings_keep(true);
    for (uint64_t first = 1; first <= 1000; first += 20) {
        run_threads(first, 20);
        for (struct tally__ring *ring = NULL; (ring = tally__ring_next(3, ring)) != NULL;) {
            while (tally__ring_take(ring, 1, &event, &lost) > 0) {
                assert_int_equal(lost, 0);
                sum += event.begin_ns;
            }
        }
    }
    assert_int_equal(sum, 1000 * 1001 / 2);
    assert_true(count_rings(3) <= 40);
    tally__rings_release(3);
    tally__rings_keep(false);
}

/* ---- phases ---- */

static void test_phases(void **state)
{
    const struct tally__phases_of of = {.tracer = 4, .step = 7, .bucket = 5, .ddp = 2};
    const int kinds[] = {TALLY__EVENT_ENCODE, TALLY__EVENT_WAIT_RANK, TALLY__EVENT_REDUCE};
    struct tally__trace_event events[8];
    struct tally__phase_wait wait;
    uint64_t lost;

    (void)state;
    assert_int_equal(tally__phase(TALLY__EVENT_ENCODE), TALLY__EVENT_NONE);
    assert_int_equal(tally__phase(TALLY__EVENT_NONE), TALLY__EVENT_NONE);
    tally__phases_begin(&of);
    for (int piece = 0; piece < 10; piece++) {
        (void)tally__phase(TALLY__EVENT_ENCODE);
        wait = tally__phase_wait_begin(6);
        tally__phase_wait_end(&wait);
        assert_int_equal(tally__phase(TALLY__EVENT_REDUCE), TALLY__EVENT_ENCODE);
    }
    tally__phases_end();
    assert_int_equal(tally__phase(TALLY__EVENT_ENCODE), TALLY__EVENT_NONE);
    assert_int_equal(tally__phase(TALLY__EVENT_NONE), TALLY__EVENT_NONE);
    assert_int_equal(tally__ring_take(tally__ring_next(4, NULL), 8, events, &lost), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(events[i].kind, kinds[i]);
        assert_true(events[i].end_ns >= events[i].begin_ns && events[i].begin_ns > 0);
        assert_true(events[i].step == 7 && events[i].bucket == 5 && events[i].ddp == 2);
    }
    assert_int_equal(events[0].peer, TALLY__NO_PEER);
    assert_int_equal(events[1].peer, 6);
    tally__rings_release(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_phases),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
