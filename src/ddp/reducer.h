/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reducer: buckets that belong to a framework. It is
 * a ddp without buckets: parameters, hook, residuals, saved state and statistics are the ddp's.
 * Each bucket comes from outside with its address and its parameters.
 *
 * Hooks expect a layout: each parameter has one position in one bucket, until the generation
 * changes. Here the layout is learned: a bucket that was not seen before is added to it. A bucket
 * that has a parameter of another bucket of the layout begins a new one (reducer_layout.c).
 *
 * All jobs run on lane 0, in the order of the calls. Fields of the lane belong to its jobs; the
 * ddp's mutex guards the others.
 */
#ifndef TALLY_DDP_REDUCER_H
#define TALLY_DDP_REDUCER_H

#include "ddp/ddp.h"

/* A bucket of the present layout. */
struct tally__reducer_bucket {
    struct tally__reducer_bucket *next;
    int dtype;
    size_t n; /* elements */
    int n_params;
    tally_bucket_param params[];
};

/* One call of tally_reducer_reduce. */
struct tally__reducer_request {
    struct tally__reducer_request *next;        /* among the spare ones */
    struct tally__reducer_request *next_of_all; /* list of every request, for the end */
    tally_reducer *reducer;
    void *data;
    bool is_last;
    bool is_held; /* it did not wake the lane */
    double divisor;
    uint64_t called_ns; /* the time of the call */
    size_t n;
    int params[]; /* room for all parameters */
};

/* Figures of the step under way. */
struct tally__reducer_step {
    int index; /* of the next bucket */
    bool failed;
    uint64_t start_ns; /* of its first bucket */
    uint64_t comm_ns;
    uint64_t together_ns; /* of comm_ns: since all ranks came to the first bucket */
    uint64_t cpu_ns;      /* CPU time of its jobs, where buckets may be held */
    bool held;            /* a bucket was held */
    uint64_t wire_bytes;
    struct tally__counts counts;
};

/*
 * Where every CPU has a rank that computes, buckets are held: none wakes the lane before the last
 * one of the step. The lane would share the CPU of backward, and wait in most rounds for a rank
 * whose lane has none; that takes longer than working afterwards. But if lanes then lack CPU time
 * because other programs run, some steps overlap again: two threads of a rank get more of it.
 */
struct tally__reducer_hold {
    bool may;         /* never changes */
    int n_overlapped; /* steps to come without it */
    int n_last;       /* that many were asked for last; 0: it has gone well since */
};

struct tally_reducer {
    tally_ddp *ddp;
    /* The lane's: */
    struct tally__reducer_bucket *buckets; /* of the present layout */
    struct tally__reducer_bucket **home;   /* per parameter: its bucket; NULL: not seen yet */
    uint64_t *reduced_in;                  /* per parameter: the last pass that reduced it */
    uint64_t pass;                         /* counts steps, failed ones included; from 1 */
    struct tally__reducer_step now;
    /* Guarded by the mutex: */
    uint64_t *stamp; /* per parameter: the last call that named it */
    uint64_t n_calls;
    size_t n_pending;     /* jobs that are not done */
    bool is_open;         /* the last call was not the last bucket of a step */
    uint64_t released_ns; /* the last call that woke the lane */
    struct tally__reducer_hold hold;
    struct tally__reducer_request *spare;
    struct tally__reducer_request *all;
    size_t n_buckets; /* of the last step */
};

/* Fails if there is no reducer, or another process has created it. */
int tally__reducer_check(const tally_reducer *reducer, const char *call);

/* In a job: whether all ranks gave this bucket. Errors: MISMATCH on all ranks, with both; those of
 * an exchange. */
int tally__reducer_compare(tally_lane *lane, const struct tally__reducer_request *request);

/* The request's bucket in the layout, which is extended or begun anew if needed. In a job, after
 * ranks have compared their requests. Errors: NOMEM, on all ranks, and the layout stays; those of
 * an exchange. */
int tally__reducer_bucket_of(tally_lane *lane, tally_reducer *reducer,
                             const struct tally__reducer_request *request,
                             struct tally__reducer_bucket **bucket);
void tally__reducer_layout_free(tally_reducer *reducer);

#endif
