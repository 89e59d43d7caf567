/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lane threads and their queues. Application threads submit; lane threads run the jobs, or, without
 * lane threads, a thread that waits for a future. One mutex guards the queues and the free futures;
 * it is never held while a job or a callback runs.
 */
#include "comm/threads.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/futex.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/ask.h"
#include "comm/future.h"
#include "comm/parcel.h"
#include "comm/round.h"

#define IDLE_NS 100000000u

/* True on a lane thread of any group, and while a thread runs jobs in place of one. */
static _Thread_local bool is_lane_thread;

/* A job or a hook of the application may return any number. */
static int known_status(int status)
{
    return strcmp(tally_status_name(status), tally_status_name(1)) != 0
               ? status
               : tally__fail(TALLY_ARG,
                             "a job or a hook returned %d, which is not a status: return TALLY_OK "
                             "or a code of TALLY_STATUS_LIST",
                             status);
}

int tally__end_job(tally_lane *lane, enum tally__job_end end, int status)
{
    const struct tally__call call = {.kind = TALLY__KIND_END};

    status = known_status(status);
    if (lane->job.status != TALLY_OK) {
        return tally__fail(lane->job.status, "%s", lane->job.text);
    }
    if (!tally__is_alive(lane->group)) {
        return status != TALLY_OK && status != TALLY_ABORTED ? status
                                                             : tally__fail_given_up(lane->group);
    }
    if (status != TALLY_OK) {
        return tally__refuse(lane, TALLY__KIND_END, status);
    }
    return end == TALLY__ENDS_WITH_ROUND ? tally__round(lane, &call) : TALLY_OK;
}

/* A job that fails without a text must not report that of an earlier failure; a job that succeeds
 * leaves the thread's text unchanged. */
static int run_function(tally_future *future)
{
    char before[TALLY__ERROR_BYTES];
    size_t length = strlen(tally_last_error());
    int status;

    if (length > 0) {
        memcpy(before, tally_last_error(), length + 1);
        (void)tally__fail(TALLY_OK, "%s", "");
    }
    status = tally__end_job(future->lane, future->end, future->fn(future->lane, future->user));
    if (length > 0 && status == TALLY_OK) {
        (void)tally__fail(TALLY_OK, "%s", before);
    }
    return status;
}

/* Whether idle lane threads drive pending puts. Otherwise a job must not end before they are done.
 */
static bool lingers(const struct tally__threads *threads)
{
    return threads->n > 0 && threads->domain->may_linger;
}

static void ask_until_idle(tally_lane *lane)
{
    tally__ask_until_idle(lane);
    for (tally_lane *other = lane->job.borrowed; other; other = other->loan.next) {
        if (tally__carries(other)) {
            tally__ask_until_idle(other);
        }
    }
}

static void run_job(tally_future *future)
{
    tally_lane *lane = future->lane;
    tally__fpenv saved = tally__fpenv_enter();
    int status;

    assert(is_lane_thread && !tally__future_is_done(future));
    assert(lane->group->threads == future->threads);
    lane->job.number++;
    lane->job.status = TALLY_OK;
    lane->job.bytes_sent = 0;
    lane->job.host_bytes = 0;
    lane->job.doing.what = TALLY__DOING_NOTHING;
    lane->loan.borrower = NULL;
    lane->job.borrowed = NULL;
    lane->job.serial = ++future->threads->queue[lane->index].n_run;
    status = tally__check_alive(lane->group);
    if (status == TALLY_OK) {
        status = run_function(future);
        if (tally__carries(lane) && !lingers(future->threads)) {
            ask_until_idle(lane);
        }
    }
    tally__fpenv_leave(saved);
    future->status = status;
    future->bytes_sent = lane->job.bytes_sent;
    if (status != TALLY_OK) {
        (void)snprintf(future->text, sizeof future->text, "%s", tally_last_error());
    } else {
        future->text[0] = '\0';
    }
}

/* Runs the next job of a queue. False when the queue is empty. */
static bool run_next(struct tally__threads *threads, struct tally__queue *queue)
{
    tally_future *future;

    (void)pthread_mutex_lock(&threads->mutex);
    future = queue->first;
    assert(future || queue->last == &queue->first);
    if (future) {
        queue->first = future->next;
        if (!queue->first) {
            queue->last = &queue->first;
        }
    }
    (void)pthread_mutex_unlock(&threads->mutex);
    if (!future) {
        return false;
    }
    run_job(future);
    tally__future_finish(future);
    return true;
}

void tally__threads_run_inline(struct tally__threads *threads, const tally_future *until)
{
    (void)pthread_mutex_lock(&threads->inline_mutex);
    is_lane_thread = true;
    while (!(until && tally__future_is_done(until)) && run_next(threads, &threads->queue[0])) {
    }
    is_lane_thread = false;
    (void)pthread_mutex_unlock(&threads->inline_mutex);
}

/* Drives pending puts after a job or a pause; returns the length of the next pause. */
static uint64_t linger(struct tally__threads *threads, uint64_t since_ns)
{
    struct tally__domain *domain = threads->domain;
    size_t moved = 0;

    if (!domain->carrier || !lingers(threads) ||
        domain->carrier->progress(domain, &moved) != TALLY_OK ||
        !domain->carrier->is_busy(domain, -1)) {
        return IDLE_NS;
    }
    return tally__pause_ns(tally__now_ns() - since_ns);
}

static void *lane_main(void *argument)
{
    struct tally__queue *queue = argument;
    struct tally__threads *threads = queue->threads;
    uint64_t idle_since_ns = tally__now_ns();

    is_lane_thread = true;
    for (;;) {
        /* Partner: the increment in tally__submit and in tally__threads_stop. Read before the
         * queue, so that a job that comes in between changes the word we would sleep on. */
        uint32_t seen = atomic_load_explicit(&queue->submitted, memory_order_acquire);

        if (run_next(threads, queue)) {
            idle_since_ns = tally__now_ns();
            continue;
        }
        if (atomic_load_explicit(&threads->stopping, memory_order_acquire)) {
            return NULL;
        }
        tally__futex_wait(&queue->submitted, seen, linger(threads, idle_since_ns));
    }
}

static void stop_first(struct tally__threads *threads, int n)
{
    atomic_store_explicit(&threads->stopping, true, memory_order_release);
    for (int i = 0; i < n; i++) {
        atomic_fetch_add_explicit(&threads->queue[i].submitted, 1, memory_order_release);
        tally__futex_wake(&threads->queue[i].submitted);
        (void)pthread_join(threads->queue[i].thread, NULL);
    }
}

static void free_threads(struct tally__threads *threads)
{
    while (threads->all_futures) {
        tally_future *future = threads->all_futures;

        assert(tally__future_is_done(future));
        threads->all_futures = future->next_of_all;
        tally__free(future);
    }
    (void)pthread_mutex_destroy(&threads->mutex);
    (void)pthread_mutex_destroy(&threads->inline_mutex);
    tally__free(threads);
}

/* Least stack of a lane thread, where `ulimit -s` gives less: hooks run on lanes. */
#define STACK_BYTES ((size_t)1 << 20)

static int start_thread(struct tally__queue *queue)
{
    pthread_attr_t attributes;
    size_t bytes = 0;
    int error = pthread_attr_init(&attributes);

    if (error) {
        return error;
    }
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < STACK_BYTES) {
        (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    }
    error = pthread_create(&queue->thread, &attributes, lane_main, queue);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

/* Signals belong to the application: lane threads block all of them. */
static int create_thread(struct tally__queue *queue)
{
    sigset_t all;
    sigset_t before;
    int error;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = start_thread(queue);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Puts one future on the free list, so that a collective call does not fail on one rank for lack of
 * memory. */
static int keep_a_future(struct tally__threads *threads)
{
    tally_future *future;

    TRY(tally__future_take(threads, &future));
    atomic_store_explicit(&future->is_done, 1, memory_order_relaxed);
    tally_future_free(future);
    return TALLY_OK;
}

int tally__threads_start(struct tally__domain *domain, int n, struct tally__threads **threads)
{
    size_t n_queues = n > 0 ? (size_t)n : 1;
    struct tally__threads *made =
        tally__alloc(sizeof *made + n_queues * sizeof made->queue[0], "lane threads");

    if (!made) {
        return TALLY_NOMEM;
    }
    made->owner = tally__owner_here();
    made->domain = domain;
    made->n = n;
    (void)pthread_mutex_init(&made->mutex, NULL);
    (void)pthread_mutex_init(&made->inline_mutex, NULL);
    for (size_t i = 0; i < n_queues; i++) {
        made->queue[i].threads = made;
        made->queue[i].last = &made->queue[i].first;
    }
    if (keep_a_future(made) != TALLY_OK) {
        free_threads(made);
        return TALLY_NOMEM;
    }
    for (int i = 0; i < n; i++) {
        int error = create_thread(&made->queue[i]);

        if (error != 0) {
            stop_first(made, i);
            free_threads(made);
            return tally__fail_errno(TALLY_SYSTEM, error, "cannot start lane thread %d of %d", i,
                                     n);
        }
    }
    *threads = made;
    return TALLY_OK;
}

int tally__threads_count(const struct tally__threads *threads)
{
    return threads->n;
}

void tally__threads_stop(struct tally__threads *threads)
{
    if (!threads) {
        return;
    }
    if (threads->n == 0) {
        tally__threads_run_inline(threads, NULL);
    }
    stop_first(threads, threads->n);
    free_threads(threads);
}

bool tally__is_lane_thread(void)
{
    return is_lane_thread;
}

int tally__submit(tally_lane *lane, tally_job_fn fn, void *user, const union tally__args *args,
                  enum tally__job_end end, tally_future **future)
{
    struct tally__threads *threads = lane->group->threads;
    struct tally__queue *queue = &threads->queue[lane->index];
    tally_future *made;

    TRY(tally__future_take(threads, &made));
    made->lane = lane;
    made->fn = fn;
    made->user = user;
    if (args) {
        made->args = *args;
        made->user = &made->args;
    }
    made->end = end;
    made->abandoned = future == NULL;
    /* Before the job is in the queue: an abandoned future may be gone afterwards. */
    if (future) {
        *future = made;
    }
    (void)pthread_mutex_lock(&threads->mutex);
    made->next = NULL;
    assert(*queue->last == NULL);
    *queue->last = made;
    queue->last = &made->next;
    (void)pthread_mutex_unlock(&threads->mutex);
    atomic_fetch_add_explicit(&queue->submitted, 1, memory_order_release);
    if (threads->n > 0) {
        tally__futex_wake(&queue->submitted);
    }
    return TALLY_OK;
}

static int no_job(tally_lane *lane, void *user)
{
    (void)lane;
    (void)user;
    return TALLY_OK;
}

int tally__drain(tally_lane *lane)
{
    tally_future *future;

    TRY(tally__submit(lane, no_job, NULL, NULL, TALLY__ENDS_ITSELF, &future));
    (void)tally_future_wait(future);
    tally_future_free(future);
    return TALLY_OK;
}

int tally__submit_and_wait(tally_lane *lane, tally_job_fn fn, void *user)
{
    tally_future *future;
    int status;

    TRY(tally__check_owner(&lane->group->owner));
    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "this call blocks: it is not for jobs on a lane");
    }
    TRY(tally__check_alive(lane->group));
    TRY(tally__submit(lane, fn, user, NULL, TALLY__ENDS_WITH_ROUND, &future));
    status = tally_future_wait(future);
    tally_future_free(future);
    return status;
}

int tally_submit(tally_group *group, int lane, tally_job_fn job, void *user, tally_future **future)
{
    if (!group || !job) {
        return tally__fail(TALLY_ARG, "tally_submit: %s is NULL", group ? "job" : "group");
    }
    if (lane < 0 || lane >= group->n_lanes) {
        return tally__fail(TALLY_ARG, "tally_submit: lane %d is not in 0..%d", lane,
                           group->n_lanes - 1);
    }
    TRY(tally__check_alive(group));
    return tally__submit(&group->lanes[lane], job, user, NULL, TALLY__ENDS_WITH_ROUND, future);
}

tally_lane *tally_lane_for(tally_lane *lane, tally_group *group)
{
    tally_lane *other;
    tally_lane *runner;

    if (!lane || !group || group->threads != lane->group->threads ||
        lane->index >= group->n_lanes) {
        (void)tally__fail(TALLY_ARG, "tally_lane_for: the group does not share this lane's thread");
        return NULL;
    }
    if (tally__check_owner(&group->owner) != TALLY_OK) {
        return NULL;
    }
    other = &group->lanes[lane->index];
    assert(other->index == lane->index);
    /* The lane that runs the job, also when the caller passes a borrowed lane. */
    runner = lane->loan.borrower ? lane->loan.borrower : lane;
    assert(!runner->loan.borrower);
    /* Every job borrows anew: the failure of an earlier job is over. */
    if (other != runner &&
        (other->loan.borrower != runner || other->loan.serial != runner->job.serial)) {
        other->loan.borrower = runner;
        other->loan.serial = runner->job.serial;
        other->loan.next = runner->job.borrowed;
        runner->job.borrowed = other;
        other->job.status = TALLY_OK;
    }
    return other;
}

tally_group *tally_lane_group(const tally_lane *lane)
{
    return lane ? lane->group : NULL;
}

int tally_lane_index(const tally_lane *lane)
{
    return lane ? lane->index : -1;
}

int tally_job_fail(tally_lane *lane, int status, const char *text)
{
    (void)lane;
    return tally__fail(status, "%s", text ? text : tally_status_text(status));
}
