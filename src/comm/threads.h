/* SPDX-License-Identifier: Apache-2.0 */
/* The lane threads of a group and its sub-groups, and the futures of their jobs. */
#ifndef TALLY_COMM_THREADS_H
#define TALLY_COMM_THREADS_H

#include "comm/group.h"

/* The arguments of a collective, kept until its job runs. */
union tally__args {
    struct {
        void *data;
        size_t count;
        int dtype;
        int op;
        int root;
    } data;
    struct {
        const void *send;
        const size_t *send_bytes;
        void *received;
        const size_t *received_bytes;
    } pieces;
};

/* The end of a job. Collectives end in their last round; a job of the application ends with an
 * extra round in which every rank learns the status of all. */
enum tally__job_end { TALLY__ENDS_ITSELF, TALLY__ENDS_WITH_ROUND };

/* Whether submitting a job wakes the lane thread. */
enum tally__wake {
    TALLY__WAKE,         /* yes: the job overlaps with other work of the submitting thread */
    TALLY__WAKE_ADAPTED, /* not if the thread is expected to wait right after submitting */
    TALLY__WAKE_NOBODY   /* no: the thread waits next, or submits a job that wakes */
};

/* A job to submit. fn gets user, or, where args is not NULL, the copy of args that the future
 * keeps. */
struct tally__job {
    tally_job_fn fn;
    void *user;
    const union tally__args *args;
    enum tally__job_end end;
    enum tally__wake wake;
};

/* Starts n lane threads for a domain; with 0, the waiting thread runs the jobs. Errors: NOMEM,
 * SYSTEM. */
int tally__threads_start(struct tally__domain *domain, int n, struct tally__threads **threads);

/* The number of lane threads. */
int tally__threads_count(const struct tally__threads *threads);

/* Finishes all submitted jobs, stops the threads, frees the futures. NULL is accepted. */
void tally__threads_stop(struct tally__threads *threads);

/* Whether the calling thread is a lane thread of any group, or runs a job in place of one. */
bool tally__is_lane_thread(void);

/*
 * Puts a job in the lane's queue, even if its group was given up: callers ask tally__check_alive
 * first. future may be NULL, and the lane thread is then woken. Errors: NOMEM.
 */
int tally__submit(tally_lane *lane, const struct tally__job *job, tally_future **future);

/* Waits until the lane has finished all jobs submitted before, also in a group that was given up.
 * Local: no other rank takes part. Errors: NOMEM. */
int tally__drain(tally_lane *lane);

/* Ends a job, or the part of a job that borrowed this lane. A rank with a failure tells the others,
 * in the round that they wait in; with TALLY__ENDS_WITH_ROUND there is an extra round for it. There
 * is no round if the job has failed on all ranks already or the group was given up. Returns the
 * job's status, which is the same on all ranks. */
int tally__end_job(tally_lane *lane, enum tally__job_end end, int status);

/* Submits a job that ends with a round, waits for it, and returns its status. Errors: STATE when
 * called from a lane. */
int tally__submit_and_wait(tally_lane *lane, tally_job_fn fn, void *user);

#endif
