/* SPDX-License-Identifier: Apache-2.0 */
/* Futures and the lane threads that finish them, shared by threads.c, queue.c and future.c. */
#ifndef TALLY_COMM_FUTURE_H
#define TALLY_COMM_FUTURE_H

#include "base/creator.h"
#include "base/status.h"
#include "comm/queue.h"
#include "comm/threads.h"

/* Values of a future's is_done. */
enum { TALLY__NOT_DONE = 0, TALLY__DONE = 1, TALLY__NOT_DONE_AWAITED = 2 };

struct tally_future {
    struct tally__threads *threads;
    struct tally__queue *queue;
    tally_lane *lane;
    tally_job_fn fn;
    void *user;
    union tally__args args;
    enum tally__job_end end;
    tally_future *next;        /* in a queue, or among the free ones */
    tally_future *next_of_all; /* list of every future ever made, for the end */
    bool has_run;              /* only its callback is left; guarded by the queue's running */
    /* TALLY__DONE, with release, when outcome and bytes_sent are final. Readers acquire; it is the
     * futex word of waiting threads, which say so before they sleep. */
    _Atomic uint32_t is_done;
    uint64_t bytes_sent;
    /* Guarded by the threads' mutex. */
    bool abandoned; /* no handle is left: the future is freed when it is done */
    tally_done_fn done;
    void *done_user;
    bool adapts; /* the first wait for it tells whether later submissions have to wake */
    struct tally__outcome outcome; /* last: it is not cleared when the future is used again */
};

struct tally__threads {
    struct tally__creator creator;
    struct tally__domain *domain;
    pthread_mutex_t mutex;
    int n;
    atomic_bool stopping;
    tally_future *free_futures;
    tally_future *all_futures;
    struct tally__queue queue[];
};

/* Takes a fresh future. Errors: NOMEM. */
int tally__future_take(struct tally__threads *threads, tally_future **future);

/* Completes a future: calls back, wakes waiting threads, and frees an abandoned future. False, and
 * nothing is done, if there is a callback and this is not the thread for it. */
bool tally__future_finish(tally_future *future, bool may_call_back);

bool tally__future_is_done(const tally_future *future);

/* In a job: waits for a job that another thread runs, and that does not wait for this one. Returns
 * its status, with its text. */
int tally__future_wait_in_job(tally_future *future);

/*
 * Runs queued jobs on this thread, in order, until one future is done, or all with NULL. If there
 * are lane threads: none if one is running, and no job with a callback nor a job after it; they
 * are left to the lane thread, which is then awake. until is not NULL then.
 */
void tally__queue_run_here(struct tally__queue *queue, const tally_future *until);

#endif
