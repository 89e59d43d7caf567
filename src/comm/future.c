/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Futures. Application threads wait, test and free; the thread that ran the job
 * finishes. A future's memory
 * lives as long as the lane threads, so a late wake touches no foreign memory.
 */
#include "comm/future.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/futex.h"
#include "base/memory.h"

#define FOREVER_S TALLY__SECONDS_MAX
#define SLICE_NS (UINT64_C(10) * TALLY__NS_PER_SECOND)

int tally__future_take(struct tally__threads *threads, tally_future **future)
{
    tally_future *taken;
    tally_future *next_of_all;

    (void)pthread_mutex_lock(&threads->mutex);
    taken = threads->free_futures;
    if (taken) {
        assert(tally__future_is_done(taken));
        threads->free_futures = taken->next;
    }
    (void)pthread_mutex_unlock(&threads->mutex);
    if (!taken) {
        taken = tally__alloc(sizeof *taken, "a future");
        if (!taken) {
            return TALLY_NOMEM;
        }
        (void)pthread_mutex_lock(&threads->mutex);
        taken->next_of_all = threads->all_futures;
        threads->all_futures = taken;
        (void)pthread_mutex_unlock(&threads->mutex);
    }
    next_of_all = taken->next_of_all;
    memset(taken, 0, offsetof(tally_future, outcome));
    taken->threads = threads;
    taken->next_of_all = next_of_all;
    *future = taken;
    return TALLY_OK;
}

/* Puts a future on the free list. Called with the mutex held. */
static void give_back(tally_future *future)
{
    assert(tally__future_is_done(future));
    future->next = future->threads->free_futures;
    future->threads->free_futures = future;
}

bool tally__future_finish(tally_future *future, bool may_call_back)
{
    struct tally__threads *threads = future->threads;
    bool is_awaited;

    assert(!tally__future_is_done(future));
    (void)pthread_mutex_lock(&threads->mutex);
    if (future->done) {
        (void)pthread_mutex_unlock(&threads->mutex);
        if (!may_call_back) {
            return false;
        }
        future->done(future->done_user, future->outcome.status, future->outcome.text);
        (void)pthread_mutex_lock(&threads->mutex);
    }
    /* Partners: the load in tally__future_is_done, and the exchange in sleep_until_done. */
    is_awaited = atomic_exchange_explicit(&future->is_done, TALLY__DONE, memory_order_acq_rel) ==
                 TALLY__NOT_DONE_AWAITED;
    if (future->abandoned) {
        give_back(future);
    }
    (void)pthread_mutex_unlock(&threads->mutex);
    if (is_awaited) {
        tally__futex_wake(&future->is_done);
    }
    return true;
}

bool tally__future_is_done(const tally_future *future)
{
    return atomic_load_explicit(&future->is_done, memory_order_acquire) == TALLY__DONE;
}

/* Sleeps until the future is done or the clock reads end. */
static bool sleep_until_done(tally_future *future, uint64_t end)
{
    uint32_t expected = TALLY__NOT_DONE;

    /* Partner: the exchange in tally__future_finish. */
    (void)atomic_compare_exchange_strong_explicit(&future->is_done, &expected,
                                                  TALLY__NOT_DONE_AWAITED, memory_order_relaxed,
                                                  memory_order_relaxed);
    while (!tally__future_is_done(future)) {
        uint64_t now = tally__now_ns();

        if (now >= end) {
            return false;
        }
        tally__futex_wait(&future->is_done, TALLY__NOT_DONE_AWAITED,
                          end - now < SLICE_NS ? end - now : SLICE_NS);
    }
    return true;
}

static void sleep_for_ever(tally_future *future)
{
    while (!tally__future_is_done(future)) {
        (void)sleep_until_done(future, tally__now_ns() + SLICE_NS);
    }
}

int tally__future_wait_in_job(tally_future *future)
{
    sleep_for_ever(future);
    return tally__outcome_return(&future->outcome);
}

static int check_waitable(const tally_future *future)
{
    if (!future) {
        return tally__fail(TALLY_ARG, "tally_future_wait: future is NULL");
    }
    return tally__check_creator(&future->threads->creator);
}

/* Before a wait for a job that is not done. */
static int check_may_block(void)
{
    return tally__is_lane_thread()
               ? tally__fail(TALLY_STATE, "tally_future_wait: a lane cannot wait for a job")
               : TALLY_OK;
}

int tally_future_wait_for(tally_future *future, double seconds)
{
    TRY(check_waitable(future));
    if (!(seconds >= 0) || seconds > FOREVER_S) {
        return tally__fail(TALLY_ARG, "tally_future_wait_for: %g seconds are not in 0..%g", seconds,
                           FOREVER_S);
    }
    if (!tally__future_is_done(future)) {
        TRY(check_may_block());
        if (future->threads->n == 0) {
            tally__queue_run_here(future->queue, future);
        } else {
            tally__queue_expose(future->queue);
        }
        if (!sleep_until_done(future, tally__now_ns() +
                                          (uint64_t)(seconds * (double)TALLY__NS_PER_SECOND))) {
            return tally__fail(TALLY_TIMEOUT, "tally_future_wait: the job is not done after %g s",
                               seconds);
        }
    }
    return tally__outcome_return(&future->outcome);
}

int tally_future_wait(tally_future *future)
{
    TRY(check_waitable(future));
    tally__queue_note_wait(future->queue, future);
    if (!tally__future_is_done(future)) {
        TRY(check_may_block());
        tally__queue_run_here(future->queue, future);
        sleep_for_ever(future);
    }
    return tally__outcome_return(&future->outcome);
}

int tally_future_test(const tally_future *future, int *done)
{
    if (!future || !done) {
        return tally__fail(TALLY_ARG, "tally_future_test: %s is NULL", future ? "done" : "future");
    }
    TRY(tally__check_creator(&future->threads->creator));
    *done = tally__future_is_done(future);
    if (!*done) {
        tally__queue_expose(future->queue);
    }
    return TALLY_OK;
}

int tally_future_on_done(tally_future *future, tally_done_fn done, void *user)
{
    bool too_many;
    bool too_late;

    if (!future || !done) {
        return tally__fail(TALLY_ARG, "tally_future_on_done: %s is NULL",
                           future ? "done" : "future");
    }
    TRY(tally__check_creator(&future->threads->creator));
    (void)pthread_mutex_lock(&future->threads->mutex);
    too_many = future->done != NULL;
    too_late = tally__future_is_done(future);
    if (!too_many) {
        future->done = done;
        future->done_user = user;
    }
    (void)pthread_mutex_unlock(&future->threads->mutex);
    if (too_many) {
        return tally__fail(TALLY_STATE, "tally_future_on_done: the future has a callback already");
    }
    if (too_late) {
        done(user, future->outcome.status, future->outcome.text);
    } else {
        tally__queue_expose(future->queue);
    }
    return TALLY_OK;
}

unsigned long long tally_future_bytes_sent(const tally_future *future)
{
    return future && tally__future_is_done(future) ? future->bytes_sent : 0;
}

void tally_future_free(tally_future *future)
{
    if (!future || !tally__is_creator(&future->threads->creator)) {
        return;
    }
    (void)pthread_mutex_lock(&future->threads->mutex);
    if (tally__future_is_done(future)) {
        give_back(future);
    } else {
        future->abandoned = true;
    }
    (void)pthread_mutex_unlock(&future->threads->mutex);
}
