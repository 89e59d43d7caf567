/* SPDX-License-Identifier: Apache-2.0 */
/* Futures and their queues, shared by threads.c and future.c. */
#ifndef TALLY_COMM_FUTURE_H
#define TALLY_COMM_FUTURE_H

#include "base/owner.h"
#include "base/status.h"
#include "comm/threads.h"

struct tally_future {
    struct tally__threads *threads;
    tally_lane *lane;
    tally_job_fn fn;
    void *user;
    union tally__args args;
    enum tally__job_end end;
    tally_future *next;        /* in a queue, or among the free ones */
    tally_future *next_of_all; /* list of every future ever made, for the end */
    /* 0 until status, text and bytes_sent are final; then 1, with release. Readers acquire; it is
     * the futex word of waiting threads. */
    _Atomic uint32_t is_done;
    int status;
    char text[TALLY__ERROR_BYTES];
    uint64_t bytes_sent;
    /* Guarded by the threads' mutex. */
    bool abandoned; /* no handle is left: the future is freed when it is done */
    tally_done_fn done;
    void *done_user;
};

struct tally__queue {
    struct tally__threads *threads;
    pthread_t thread;
    tally_future *first;
    tally_future **last;
    uint64_t n_run; /* jobs begun; only the thread that runs them uses it */
    /* Counts submissions: futex word of an idle lane thread. */
    _Atomic uint32_t submitted;
};

struct tally__threads {
    struct tally__owner owner;
    struct tally__domain *domain;
    pthread_mutex_t mutex;
    pthread_mutex_t inline_mutex; /* with n = 0: one waiting thread at a time runs jobs */
    int n;
    atomic_bool stopping;
    tally_future *free_futures;
    tally_future *all_futures;
    struct tally__queue queue[];
};

/* Takes a fresh future. Errors: NOMEM. */
int tally__future_take(struct tally__threads *threads, tally_future **future);

/* Completes a future: calls back, wakes waiting threads, and frees an abandoned future. */
void tally__future_finish(tally_future *future);

bool tally__future_is_done(const tally_future *future);

/* In a job: waits for a job that another thread runs, and that does not wait for this one. Returns
 * its status, with its text. */
int tally__future_wait_in_job(const tally_future *future);

/* With n = 0: runs queued jobs on this thread until one future is done, or all with NULL. */
void tally__threads_run_inline(struct tally__threads *threads, const tally_future *until);

#endif
