/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lane threads and the jobs they run. Application threads submit; the lane thread runs the jobs, or
 * a thread that waits for a future, if it comes first. One mutex guards the queues (queue.c) and
 * the free futures; it is never held while a job or a callback runs. Another mutex per queue is
 * held then, so that its jobs run one at a time and in order, whichever threads run them.
 */
#include "comm/threads.h"

#include <assert.h>
#include <signal.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/futex.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/future.h"
#include "comm/mpi/mpi_messenger.h"
#include "comm/round.h"
#include "comm/wait.h"
#include "trace/ring.h"

#define IDLE_NS 100000000u

/* True on a lane thread of any group, and while a thread runs jobs in place of one. */
static _Thread_local bool is_lane_thread;

/* A job or a hook of the application may return any number. */
static int known_status(int status)
{
    return tally__is_status(status)
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

/* Runs the job with an empty error text: if it fails without a text, it must not report that of an
 * earlier failure. Afterwards the thread has its own text again, which may be the application's. */
static void run_job(tally_future *future)
{
    tally_lane *lane = future->lane;
    tally__fpenv saved = tally__fpenv_enter();
    struct tally__aside before;
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
    lane->job.arrivals = NULL;
    lane->job.serial = ++future->queue->n_run;
    tally__put_aside(&before);
    status = tally__check_alive(lane->group);
    if (status == TALLY_OK) {
        status = tally__end_job(lane, future->end, future->fn(lane, future->user));
    }
    tally__fpenv_leave(saved);
    tally__waits_show(NULL);
    tally__outcome_set(&future->outcome, status);
    future->bytes_sent = lane->job.bytes_sent;
    (void)tally__take_back(&before, TALLY_OK);
}

/* Runs the next job of a queue, with running held. False if there is none for this thread. */
static bool run_next(struct tally__queue *queue, bool may_call_back)
{
    tally_future *future = tally__queue_take(queue, may_call_back);

    if (!future) {
        return false;
    }
    if (!future->has_run) {
        run_job(future);
        future->has_run = true;
    }
    /* The callback came while the job ran. */
    if (!tally__future_finish(future, may_call_back)) {
        tally__queue_put_back(queue, future);
        return false;
    }
    return true;
}

/* Whether messages are under way for which lane threads call MPI. */
static bool lingers(const struct tally__threads *threads)
{
    struct tally__messenger *messenger = threads->domain->messenger;

    return messenger && messenger->may_linger && tally__messenger_is_busy(messenger);
}

/* Calls MPI after a job or a pause, while messages are under way; returns the length of the next
 * pause. A thread that runs a job of this queue calls MPI itself, and wakes this one at the end. */
static uint64_t linger(struct tally__queue *queue, uint64_t since_ns)
{
    struct tally__messenger *messenger = queue->threads->domain->messenger;
    uint64_t pause_ns = IDLE_NS;
    size_t moved = 0;

    if (!messenger || !messenger->may_linger || pthread_mutex_trylock(&queue->running) != 0) {
        return IDLE_NS;
    }
    if (tally__messenger_progress(messenger, &moved) == TALLY_OK && lingers(queue->threads)) {
        pause_ns = tally__pause_ns(tally__now_ns() - since_ns);
    }
    (void)pthread_mutex_unlock(&queue->running);
    return pause_ns;
}

/* Jobs are not cancelled with the thread that waits for them: other ranks take part in them. */
void tally__queue_run_here(struct tally__queue *queue, const tally_future *until)
{
    struct tally__threads *threads = queue->threads;
    bool is_alone = threads->n == 0;
    int may_cancel;

    if (is_alone) {
        (void)pthread_mutex_lock(&queue->running);
    } else if (pthread_mutex_trylock(&queue->running) != 0) {
        /* The thread that runs jobs may stop before this one, or have looked before it came. */
        tally__queue_wake(queue);
        return;
    }
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &may_cancel);
    is_lane_thread = true;
    while (!(until && tally__future_is_done(until)) && run_next(queue, is_alone)) {
    }
    is_lane_thread = false;
    if (!is_alone && (!tally__future_is_done(until) || lingers(threads))) {
        tally__queue_wake(queue);
    }
    (void)pthread_mutex_unlock(&queue->running);
    (void)pthread_setcancelstate(may_cancel, NULL);
}

/* Runs all jobs of the queue, as soon as no thread that waits runs any. */
static void run_all(struct tally__queue *queue)
{
    (void)pthread_mutex_lock(&queue->running);
    while (run_next(queue, true)) {
    }
    (void)pthread_mutex_unlock(&queue->running);
}

static void *lane_main(void *argument)
{
    struct tally__queue *queue = argument;
    struct tally__threads *threads = queue->threads;
    uint64_t idle_since_ns = tally__now_ns();
    uint32_t before = 0;

    is_lane_thread = true;
    tally__ring_name_lane((int)(queue - threads->queue));
    for (;;) {
        /* Partner: the increment in tally__queue_wake. Read before the queue, so that a job that
         * comes in between changes the word we would sleep on. */
        uint32_t seen = atomic_load_explicit(&queue->woken, memory_order_acquire);

        if (tally__queue_look(queue)) {
            run_all(queue);
            idle_since_ns = tally__now_ns();
            continue;
        }
        if (atomic_load_explicit(&threads->stopping, memory_order_acquire)) {
            run_all(queue);
            return NULL;
        }
        /* A thread that waited has run a job. */
        if (seen != before) {
            idle_since_ns = tally__now_ns();
            before = seen;
        }
        tally__futex_wait(&queue->woken, seen,
                          tally__queue_pause(queue, linger(queue, idle_since_ns)));
    }
}

static void stop_first(struct tally__threads *threads, int n)
{
    atomic_store_explicit(&threads->stopping, true, memory_order_release);
    for (int i = 0; i < n; i++) {
        tally__queue_wake(&threads->queue[i]);
        (void)pthread_join(threads->queue[i].thread, NULL);
    }
}

static void free_threads(struct tally__threads *threads)
{
    int n_queues = threads->n > 0 ? threads->n : 1;

    while (threads->all_futures) {
        tally_future *future = threads->all_futures;

        assert(tally__future_is_done(future));
        threads->all_futures = future->next_of_all;
        tally__free(future);
    }
    (void)pthread_mutex_destroy(&threads->mutex);
    for (int i = 0; i < n_queues; i++) {
        (void)pthread_mutex_destroy(&threads->queue[i].running);
    }
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
    atomic_store_explicit(&future->is_done, TALLY__DONE, memory_order_relaxed);
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
    made->creator = tally__creator_here();
    made->domain = domain;
    made->n = n;
    (void)pthread_mutex_init(&made->mutex, NULL);
    for (size_t i = 0; i < n_queues; i++) {
        made->queue[i].threads = made;
        (void)pthread_mutex_init(&made->queue[i].running, NULL);
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
        tally__queue_run_here(&threads->queue[0], NULL);
    }
    stop_first(threads, threads->n);
    free_threads(threads);
}

bool tally__is_lane_thread(void)
{
    return is_lane_thread;
}

int tally__submit(tally_lane *lane, const struct tally__job *job, tally_future **future)
{
    struct tally__threads *threads = lane->group->threads;
    struct tally__queue *queue = &threads->queue[lane->index];
    tally_future *made;

    TRY(tally__future_take(threads, &made));
    made->queue = queue;
    made->lane = lane;
    made->fn = job->fn;
    made->user = job->user;
    if (job->args) {
        made->args = *job->args;
        made->user = &made->args;
    }
    made->end = job->end;
    made->abandoned = future == NULL;
    /* Before the job is in the queue: an abandoned future may be gone afterwards. */
    if (future) {
        *future = made;
    }
    tally__queue_put(queue, made, future ? job->wake : TALLY__WAKE);
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
    const struct tally__job job = {.fn = no_job, .wake = TALLY__WAKE_NOBODY};
    tally_future *future;

    TRY(tally__submit(lane, &job, &future));
    (void)tally_future_wait(future);
    tally_future_free(future);
    return TALLY_OK;
}

int tally__submit_and_wait(tally_lane *lane, tally_job_fn fn, void *user)
{
    const struct tally__job job = {
        .fn = fn, .user = user, .end = TALLY__ENDS_WITH_ROUND, .wake = TALLY__WAKE_NOBODY};
    tally_future *future;
    int status;

    TRY(tally__check_creator(&lane->group->creator));
    if (tally__is_lane_thread()) {
        return tally__fail(TALLY_STATE, "this call blocks: it is not for jobs on a lane");
    }
    TRY(tally__check_alive(lane->group));
    TRY(tally__submit(lane, &job, &future));
    status = tally_future_wait(future);
    tally_future_free(future);
    return status;
}

int tally_submit(tally_group *group, int lane, tally_job_fn job, void *user, tally_future **future)
{
    const struct tally__job made = {
        .fn = job, .user = user, .end = TALLY__ENDS_WITH_ROUND, .wake = TALLY__WAKE_ADAPTED};

    if (!group || !job) {
        return tally__fail(TALLY_ARG, "tally_submit: %s is NULL", group ? "job" : "group");
    }
    if (lane < 0 || lane >= group->n_lanes) {
        return tally__fail(TALLY_ARG, "tally_submit: lane %d is not in 0..%d", lane,
                           group->n_lanes - 1);
    }
    TRY(tally__check_alive(group));
    return tally__submit(&group->lanes[lane], &made, future);
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
    if (tally__check_creator(&group->creator) != TALLY_OK) {
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
