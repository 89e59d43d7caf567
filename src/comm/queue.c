/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of a lane. Application threads put jobs in; the lane thread takes them, or a thread
 * that waits (threads.c). Waking a lane thread costs many times what a small exchange takes, so it
 * is not woken for a job that the submitting thread will run itself. A blocking call knows that it
 * waits next. For others the queue learns: after some waits in a row that came right after the
 * submission, the idle lane thread dozes, which means that it looks at its queue by itself, and
 * submissions are quiet. A job that nobody waits for then starts a little later, at the end of a
 * doze.
 */
#include "comm/queue.h"

#include <assert.h>

#include "base/clock.h"
#include "base/futex.h"
#include "comm/future.h"

/* A wait this soon after the submission would have gained nothing from a lane thread. */
#define PROMPT_NS 50000u
/* Prompt waits in a row before submissions become quiet. */
#define N_PROMPT 8
/* The longest that a quiet job waits for the lane thread. */
#define DOZE_NS 500000u
/* A lane without submissions for this long sleeps until it is woken. */
#define DOZE_END_NS 5000000u

/* The job that this thread submitted last, and when the submission was over. The lane thread may
 * take the CPU when it is woken; that does not make a wait late. Only compared, never followed. */
static _Thread_local struct {
    const tally_future *future;
    uint64_t ns;
} submitted;

static void lock(struct tally__queue *queue)
{
    (void)pthread_mutex_lock(&queue->threads->mutex);
}

static void unlock(struct tally__queue *queue)
{
    (void)pthread_mutex_unlock(&queue->threads->mutex);
}

static bool is_quiet(struct tally__queue *queue)
{
    return atomic_load_explicit(&queue->is_quiet, memory_order_relaxed);
}

static void set_quiet(struct tally__queue *queue, bool quiet)
{
    atomic_store_explicit(&queue->is_quiet, quiet, memory_order_relaxed);
}

void tally__queue_put(struct tally__queue *queue, tally_future *future, enum tally__wake wake)
{
    bool adapts = wake == TALLY__WAKE_ADAPTED;
    bool wakes = wake == TALLY__WAKE;
    uint64_t now = adapts ? tally__now_ns() : 0;

    lock(queue);
    if (adapts) {
        future->adapts = true;
        queue->last_ns = now;
        wakes = queue->first || !queue->dozes || queue->n_prompt < N_PROMPT;
        set_quiet(queue, !wakes);
    }
    future->next = NULL;
    assert(*queue->last == NULL);
    *queue->last = future;
    queue->last = &future->next;
    unlock(queue);
    if (wakes && queue->threads->n > 0) {
        tally__queue_wake(queue);
        now = adapts ? tally__now_ns() : 0;
    }
    if (adapts) {
        submitted.future = future;
        submitted.ns = now;
    }
}

void tally__queue_wake(struct tally__queue *queue)
{
    set_quiet(queue, false);
    /* Partner: the load in lane_main, threads.c. */
    atomic_fetch_add_explicit(&queue->woken, 1, memory_order_release);
    tally__futex_wake(&queue->woken);
}

void tally__queue_expose(struct tally__queue *queue)
{
    if (is_quiet(queue)) {
        lock(queue);
        queue->n_prompt = 0;
        unlock(queue);
        tally__queue_wake(queue);
    }
}

void tally__queue_note_wait(struct tally__queue *queue, tally_future *future)
{
    bool is_prompt = submitted.future == future && tally__now_ns() - submitted.ns <= PROMPT_NS;

    lock(queue);
    if (future->adapts) {
        if (!is_prompt) {
            queue->n_prompt = 0;
        } else if (queue->n_prompt < N_PROMPT) {
            queue->n_prompt++;
        }
        future->adapts = false;
    }
    unlock(queue);
}

tally_future *tally__queue_take(struct tally__queue *queue, bool may_call_back)
{
    tally_future *future;

    lock(queue);
    future = queue->first;
    assert(future || queue->last == &queue->first);
    if (future && future->done && !may_call_back) {
        future = NULL;
    }
    if (future) {
        queue->first = future->next;
        if (!queue->first) {
            queue->last = &queue->first;
        }
        set_quiet(queue, false);
    }
    unlock(queue);
    return future;
}

void tally__queue_put_back(struct tally__queue *queue, tally_future *future)
{
    lock(queue);
    future->next = queue->first;
    queue->first = future;
    if (!future->next) {
        queue->last = &future->next;
    }
    unlock(queue);
}

bool tally__queue_look(struct tally__queue *queue)
{
    bool has_job;

    lock(queue);
    has_job = queue->first != NULL;
    /* No thread waited for it: the application has work to overlap. */
    if (has_job && is_quiet(queue) && tally__now_ns() - queue->last_ns > PROMPT_NS) {
        queue->n_prompt = 0;
    }
    /* Before the lane thread sleeps for longer: from here on a submission wakes it. */
    queue->dozes = false;
    unlock(queue);
    return has_job;
}

uint64_t tally__queue_pause(struct tally__queue *queue, uint64_t longest_ns)
{
    bool dozes;

    lock(queue);
    dozes = queue->n_prompt >= N_PROMPT && tally__now_ns() - queue->last_ns < DOZE_END_NS;
    queue->dozes = dozes;
    unlock(queue);
    return dozes && longest_ns > DOZE_NS ? DOZE_NS : longest_ns;
}
