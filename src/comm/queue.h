/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of a lane: the thread that takes its next job, and when the lane thread is woken. */
#ifndef TALLY_COMM_QUEUE_H
#define TALLY_COMM_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/threads.h"

struct tally__queue {
    struct tally__threads *threads;
    pthread_t thread;
    /* Held by the thread that runs jobs of this queue: the lane thread, or one that waits. */
    pthread_mutex_t running;
    uint64_t n_run; /* jobs begun; guarded by running */
    /* Guarded by the threads' mutex. */
    tally_future *first;
    tally_future **last;
    unsigned n_prompt; /* waits in a row that came right after the submission */
    uint64_t last_ns;  /* when the last job that adapts was submitted */
    bool dozes;        /* the lane thread looks at the queue again within DOZE_NS */
    /* A job was submitted while the lane thread dozed, and no thread has taken it yet. Relaxed: a
     * thread that has the job's future sees its submission. */
    atomic_bool is_quiet;
    /* Counts wake-ups: futex word of an idle lane thread. */
    _Atomic uint32_t woken;
};

/* Puts a job at the end. An abandoned future may be gone afterwards. */
void tally__queue_put(struct tally__queue *queue, tally_future *future, enum tally__wake wake);

/* Makes the lane thread look at the queue. */
void tally__queue_wake(struct tally__queue *queue);

/* Makes the lane thread look at the queue if a job was submitted without waking it. */
void tally__queue_expose(struct tally__queue *queue);

/* Records that the application begins to wait for a job without a deadline. */
void tally__queue_note_wait(struct tally__queue *queue, tally_future *future);

/* Takes the first job, with running held. NULL if there is none, or if it has a callback and this
 * is not the thread for callbacks. */
tally_future *tally__queue_take(struct tally__queue *queue, bool may_call_back);

/* Puts a job back that was taken, with running held. */
void tally__queue_put_back(struct tally__queue *queue, tally_future *future);

/* On the lane thread: whether there is a job. */
bool tally__queue_look(struct tally__queue *queue);

/* On the lane thread, before it sleeps on woken: for how long, at most longest_ns. */
uint64_t tally__queue_pause(struct tally__queue *queue, uint64_t longest_ns);

#endif
