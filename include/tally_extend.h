/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally for people who extend it: sub-groups and memory of a group, jobs, lanes and futures,
 * collectives, and tables for hooks and optimizers of your own. It includes tally.h, which is
 * enough to train. Everything the introduction of tally.h says holds here too.
 */
#ifndef TALLY_EXTEND_H
#define TALLY_EXTEND_H

#include "tally.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sub-groups and memory ----------------------------------------------------------------- */

/*
 * Divides a group: ranks that pass the same color form a new group, ordered by key, then by rank. A
 * negative color belongs to none and gets NULL. The new group shares the parent's lane threads and
 * must be closed before it. Collective over the parent; blocks; not from a lane.
 * Errors: ARG, NOMEM, those of any exchange.
 */
TALLY_API int tally_group_split(tally_group *parent, int color, int key, tally_group **group);

/*
 * Zeroed memory that the other ranks can reach: collectives on it copy nothing. Ordinary memory
 * works everywhere too, at the price of a copy in and out. Pages are reserved now, so that a lack
 * of memory is NOMEM here and not a signal later; on failure no rank has any. Collective; blocks;
 * not from a lane. Errors: ARG, NOMEM, those of any exchange.
 */
TALLY_API int tally_group_alloc(tally_group *group, size_t bytes, void **memory);

/* Gives such memory back. NULL is accepted. Not needed before the group is closed, nor after a
 * failure. Collective, but in a group that was given up it returns at once; blocks; not from a
 * lane. Errors: ARG. */
TALLY_API int tally_group_free(tally_group *group, void *memory);

/* ---- jobs, lanes, futures ------------------------------------------------------------------ */

/*
 * There is one way to do something asynchronously: submit a job to a lane of the group and get a
 * future. A lane is a thread of tally's own that runs its jobs in the order of submission. Every
 * rank submits the same jobs to the same lanes in the same order. Inside a job, blocking
 * collectives take the lane, so the type says which thread you are on.
 *
 * A job that fails, fails on every rank with the same status and text, and the group lives on.
 */
typedef struct tally_future tally_future;

/* A job: runs on the lane; returns a status (with tally_job_fail for a text of its own). */
typedef int (*tally_job_fn)(tally_lane *lane, void *user);

/* Runs when a job is done, on the lane's thread; must not block and must not free the future. */
typedef void (*tally_done_fn)(void *user, int status, const char *text);

/*
 * Submits a job to lane number lane (0 <= lane < lanes; with lanes = 0 only 0). A NULL future means
 * nobody will ask. Collective; any thread; does not wait for the job.
 * Errors: ARG, NOMEM, ABORTED when the group was given up.
 */
TALLY_API int tally_submit(tally_group *group, int lane, tally_job_fn job, void *user,
                           tally_future **future);

/*
 * Waits for the job and returns its status; tally_last_error() then gives its text. May be called
 * again. With lanes = 0 it runs the jobs submitted so far, up to this one. Any thread; blocks; not
 * from a lane.
 */
TALLY_API int tally_future_wait(tally_future *future);

/* The same, but TIMEOUT when the job is not done after so many seconds; the job goes on. */
TALLY_API int tally_future_wait_for(tally_future *future, double seconds);

/* Whether the job is done, without waiting. With lanes = 0 nothing is done before a wait. */
TALLY_API int tally_future_test(const tally_future *future, int *done);

/*
 * Calls done(user, ...) when the job is done; at once, on this thread, when it is done already. One
 * callback per future. Any thread; never blocks. Errors: ARG, STATE when there is one already.
 */
TALLY_API int tally_future_on_done(tally_future *future, tally_done_fn done, void *user);

/* Payload bytes the finished job sent to other ranks; 0 while it runs. */
TALLY_API unsigned long long tally_future_bytes_sent(const tally_future *future);

/* Forgets a future. A job that is not done goes on. NULL is accepted. Any thread; never blocks. */
TALLY_API void tally_future_free(tally_future *future);

/*
 * The lane of a sub-group that runs on the same thread as lane: for jobs that use several groups.
 * NULL when group does not share threads with lane's group. If such a job fails on one rank while
 * others are in a collective of the sub-group, the sub-group is given up; the job's own group lives
 * on. Inside a job.
 */
TALLY_API tally_lane *tally_lane_for(tally_lane *lane, tally_group *group);

/* The group and the number of a lane. Inside a job. */
TALLY_API tally_group *tally_lane_group(const tally_lane *lane);
TALLY_API int tally_lane_index(const tally_lane *lane);

/* Records a text for the failure of a job and returns status: `return tally_job_fail(...);`. */
TALLY_API int tally_job_fail(tally_lane *lane, int status, const char *text);

/* ---- collectives --------------------------------------------------------------------------- */

/*
 * Sums are taken in rank order 0..size-1; fp16 and bf16 are added in fp32 and rounded once; integer
 * sums wrap around. The mean is the sum divided by the number of ranks; of integers, the sum in 64
 * bits divided with truncation. A NaN on any rank makes minimum and maximum NaN.
 */
typedef enum tally_op { TALLY_SUM = 0, TALLY_MEAN = 1, TALLY_MIN = 2, TALLY_MAX = 3 } tally_op;

/* Rank's part of count elements in tally_lane_reduce_scatter: n elements from offset on. */
TALLY_API void tally_shard(size_t count, int size, int rank, size_t *offset, size_t *n);

/*
 * The collectives, inside a job. All block; all are collective over the lane's group; count, dtype,
 * op and root must be the same on all ranks. Errors of each: ARG, and those of any exchange: PEER,
 * TIMEOUT, MISMATCH, ABORTED, or whatever made this job fail on another rank. A count of 0 is
 * valid. The result has the same bits on all ranks, and the same whatever the backend.
 */

/* Reduces data of all ranks element by element and leaves the result in data on every rank. */
TALLY_API int tally_lane_all_reduce(tally_lane *lane, void *data, size_t count, int dtype, int op);

/* The same, but only this rank's shard (tally_shard) of data gets the result; the rest of data is
 * left as it was. */
TALLY_API int tally_lane_reduce_scatter(tally_lane *lane, void *data, size_t count, int dtype,
                                        int op);

/*
 * Puts every rank's bytes one after the other into received, in rank order: bytes[r] from rank r,
 * the same array of sizes on every rank. send may be the own place in received.
 */
TALLY_API int tally_lane_all_gather(tally_lane *lane, const void *send, const size_t *bytes,
                                    void *received);

/*
 * Sends send_bytes[r] bytes to each rank r, taken one after the other from send, and puts what
 * comes from rank r, received_bytes[r] bytes, one after the other into received. The two must not
 * overlap.
 */
TALLY_API int tally_lane_all_to_all(tally_lane *lane, const void *send, const size_t *send_bytes,
                                    void *received, const size_t *received_bytes);

/* Copies bytes of data from rank root to all others. */
TALLY_API int tally_lane_broadcast(tally_lane *lane, void *data, size_t bytes, int root);

/* Returns when all ranks have called it. */
TALLY_API int tally_lane_barrier(tally_lane *lane);

/*
 * The same as jobs of their own, on lane 0: they return at once, with a future. Data, and arrays of
 * sizes, must stay in place until the future is done. Errors: as tally_submit.
 */
TALLY_API int tally_all_reduce(tally_group *group, void *data, size_t count, int dtype, int op,
                               tally_future **future);
TALLY_API int tally_reduce_scatter(tally_group *group, void *data, size_t count, int dtype, int op,
                                   tally_future **future);
TALLY_API int tally_all_gather(tally_group *group, const void *send, const size_t *bytes,
                               void *received, tally_future **future);
TALLY_API int tally_all_to_all(tally_group *group, const void *send, const size_t *send_bytes,
                               void *received, const size_t *received_bytes, tally_future **future);
TALLY_API int tally_broadcast(tally_group *group, void *data, size_t bytes, int root,
                              tally_future **future);
TALLY_API int tally_barrier(tally_group *group, tally_future **future);

/* ---- hooks of your own --------------------------------------------------------------------- */

/* One parameter's part of a bucket. */
typedef struct tally_bucket_param {
    int index; /* of the parameter, as in tally_ddp_create */
    const char *name;
    int n_dims;
    const size_t *shape;
    size_t offset;  /* of its gradient in the bucket, in elements */
    size_t n;       /* elements */
    void *gradient; /* the same as an address; elements lie as in the parameter's strides */
    void *data;     /* the parameter itself */
} tally_bucket_param;

/* Gradients that travel together, as a hook sees them. Only data may be written to. */
typedef struct tally_bucket {
    size_t size;             /* sizeof(tally_bucket) */
    int index;               /* 0..count-1: buckets are reduced in this order */
    int count;               /* of buckets in a step */
    int is_last;             /* index == count - 1 */
    unsigned long long step; /* synchronised steps before this one, of the run loaded too */
    unsigned generation;     /* changes when parameters move to other buckets */
    double divisor;          /* what to divide the sum by: the number of ranks, but for join */
    int dtype;
    size_t n;   /* elements */
    void *data; /* all gradients, one after the other; the hook leaves the mean here */
    int n_params;
    const tally_bucket_param *params;
    int shadows;  /* this rank has run out of input (join): data is zeros, residuals stay */
    void *keeper; /* reserved: always NULL */
    int n_ranks;  /* that the mean is of, those that have run out of input among them */
} tally_bucket;

/*
 * Error feedback. A residual is what compression has left out of a parameter's gradients so far: a
 * hook adds it to the next gradient and stores what is left out then. tally keeps one per
 * parameter, fp32, zeros at first, and it follows its elements wherever they travel: in the next
 * step, in other buckets, with the hook that replaces this one, in tally_ddp_save. So results do
 * not depend on the order of announcements, the caps of buckets, or whether gradients are views.
 * This gives the residual of the bucket's parameter number k, in the order of its gradient's
 * elements. Inside reduce or scatter, on the thread that runs it. Errors: ARG, NOMEM, STATE
 * elsewhere, UNSUPPORTED for a bucket that is not fp32.
 */
TALLY_API int tally_bucket_residual(const tally_bucket *bucket, int k, float **residual);

/* What a rank's hook saved, as load gets it. */
typedef struct tally_hook_blob {
    size_t size; /* sizeof(tally_hook_blob) */
    const void *data;
    size_t bytes;
} tally_hook_blob;

/*
 * A hook of one's own: fill the table, size first. state is passed back to every function. reduce
 * is required, the others may be NULL; save and load go together. Any of them may give a failure
 * its text with tally_job_fail (outside reduce, with lane NULL).
 */
typedef struct tally_hook_table {
    size_t size;      /* sizeof(tally_hook_table) */
    const char *name; /* for messages; ranks compare it; copied */
    /* reduce may run for several buckets at once, on several lanes. */
    int concurrent;
    /* reduce uses residuals. When a hook without takes over, what is left is added to the gradients
     * of the next step: nothing is lost. */
    int feedback;
    /* Before the first reduce. Application's thread; may block; a failure fails attach_hook. */
    int (*attach)(void *state, tally_ddp *ddp);
    /*
     * Turns the bucket's gradients into their mean over all ranks. On a lane: blocking collectives,
     * straight on. A failure fails the step on every rank with its status and text; the gradients
     * are undefined then.
     */
    int (*reduce)(void *state, tally_lane *lane, const tally_bucket *bucket);
    /* After the last reduce: the hook is being replaced, or the ddp freed. Application's thread. */
    void (*detach)(void *state, tally_ddp *ddp);
    /*
     * Writes the state, without residuals, to blob, which has room for *bytes, and sets *bytes to
     * what it takes; a NULL blob only asks for that. Application's thread, between steps; must not
     * block. A failure fails tally_ddp_save.
     */
    int (*save)(void *state, void *blob, size_t *bytes);
    /*
     * Takes the state from what hooks of the same kind saved on n_blobs ranks, blobs[r] on rank r;
     * from one, the own, when a hook is replaced. For a rank on which the hook did not run, inside
     * hook hosts, rank 0's stands. The blobs are whole (a checksum says so), but may come from
     * another world size and from a hook with other options. Application's thread, between steps;
     * must not block. A failure fails tally_ddp_load, and must leave the state as it was.
     */
    int (*load)(void *state, const tally_hook_blob *blobs, size_t n_blobs);
    /* Frees state. When nobody uses the hook any more. */
    void (*destroy)(void *state);
    /*
     * Nonzero: the mean of an element depends on that element alone, and reduce reads only data, n,
     * dtype and divisor of the bucket, and its parameters. tally may then call reduce several times
     * for a bucket, each time with some of its parameters, the same ones on every rank: data and n
     * are those of the part, and data may be the application's own gradient array. This saves
     * copying where gradients are not views. Ranks compare it.
     */
    int elementwise;
    /*
     * The same as reduce, with the same bits, but only this rank needs its shard of the mean: for
     * an optimizer that is sharded over the ranks (config.shard of tally_optimizer_create). Rank
     * r's shard is the elements from shard_starts[r] up to shard_starts[r + 1] of data; a shard may
     * be empty. The other elements of data are undefined afterwards. NULL: tally calls reduce
     * instead. Ranks compare whether there is one.
     */
    int (*scatter)(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts);
} tally_hook_table;

/*
 * Makes a hook of the table and its state. On success the hook owns state, and destroys it. Local;
 * any thread. Errors: ARG naming what the table lacks, NOMEM.
 */
TALLY_API int tally_hook_create(const tally_hook_table *table, void *state, tally_hook **hook);

/* Wraps any hook, one's own too: text is a wrapper with its options, as "bf16" or
 * "fp16:saturate=1". Its name is the text with inner's in brackets, at most 200 characters. The new
 * hook takes a hold of its own on inner. Errors: as tally_hook_parse. */
TALLY_API int tally_hook_wrap(const char *text, tally_hook *inner, tally_hook **hook);

/* The ddp's own group, whose lanes run its hook: for hooks that divide it (tally_group_split) when
 * they are attached, and close what they made when they are detached. Any thread; never blocks;
 * NULL for NULL. */
TALLY_API tally_group *tally_ddp_group(const tally_ddp *ddp);

/* ---- optimizers of your own ---------------------------------------------------------------- */

/* Arrays of state beside a parameter, at most. */
#define TALLY_MAX_STATES 8

/* What step_param is given: one parameter, or a part of one. Elements are in the order in which the
 * parameter's data has them, as its strides given to tally_ddp_create say; so are gradient and
 * state. */
typedef struct tally_step_param {
    size_t size; /* sizeof(tally_step_param) */
    int index;   /* of the parameter, as in tally_ddp_create */
    const char *name;
    int n_dims;
    const size_t *shape;     /* of the whole parameter */
    size_t first;            /* of the whole parameter's elements, in that order, the first here */
    size_t n;                /* elements here: all, unless the table is elementwise */
    float *data;             /* n of each of these */
    const float *gradient;   /* the mean: clipped, unscaled */
    float *const *state;     /* table.n_states arrays; zeros before the parameter's first step */
    unsigned long long step; /* the parameter's steps, with this one: from 1 */
    double lr;               /* of its group, in this step */
} tally_step_param;

/* An optimizer of one's own: fill the table, size first. step_param is required. */
struct tally_optimizer_table {
    size_t size;      /* sizeof(tally_optimizer_table) */
    const char *name; /* for messages and checkpoints; ranks compare it; copied */
    /* An element's update depends on that element alone: step_param may be called for parts of a
     * parameter, several in a step (all with the same step), and shards may cut parameters. */
    int elementwise;
    int n_states; /* fp32 arrays beside each parameter that tally keeps: 0..TALLY_MAX_STATES */
    /*
     * Updates data and state. On a lane or the application's thread; must not block; several at
     * once for different parameters if the group has several lanes. A failure fails the step on
     * every rank; tally_job_fail, with lane NULL, gives it a text.
     */
    int (*step_param)(void *user, const tally_step_param *param);
    /* Frees user. When nobody uses the optimizer any more. May be NULL. */
    void (*destroy)(void *user);
};

#ifdef __cplusplus
}
#endif

#endif
