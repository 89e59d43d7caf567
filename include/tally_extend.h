/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally for programs that extend it: sub-groups and memory of a group; jobs, lanes and futures;
 * collectives; tables for your own hooks and optimizers; reducers, for frameworks that have buckets
 * already. It includes tally.h, which is enough to train. The rules and words of the introduction
 * of tally.h hold here too.
 */
#ifndef TALLY_EXTEND_H
#define TALLY_EXTEND_H

#include "tally.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sub-groups and memory ----------------------------------------------------------------- */

/*
 * Splits a group: ranks that pass the same color form a new group, ordered by key, then by rank. A
 * rank with a negative color is in no new group and gets NULL. The new group shares the lane
 * threads of its parent and must be closed before it. Collective over the parent; blocks. Errors:
 * ARG, NOMEM, exchange errors.
 */
TALLY_API int tally_group_split(tally_group *parent, int color, int key, tally_group **group);

/*
 * Allocates zeroed memory that the other ranks can reach: collectives on it copy nothing. Other
 * memory works everywhere too, but is copied in and out. Pages are reserved now, so that a lack of
 * memory is NOMEM here and not a signal later. After a failure no rank has the memory. Collective;
 * blocks. Errors: ARG, NOMEM, exchange errors.
 */
TALLY_API int tally_group_alloc(tally_group *group, size_t bytes, void **memory);

/*
 * Frees memory of tally_group_alloc. NULL is accepted. Closing the group frees it too, and after a
 * failure of the group the call is not needed. Collective; blocks; in an aborted group it returns
 * at once. Errors: ARG.
 */
TALLY_API int tally_group_free(tally_group *group, void *memory);

/* ---- jobs, lanes, futures ------------------------------------------------------------------ */

/*
 * Asynchronous work is a job, submitted to a lane of the group; the caller gets a future. A lane
 * runs its jobs one at a time, in the order of submission. Every rank submits the same jobs to the
 * same lanes in the same order. Inside a job, blocking collectives take the lane as their first
 * argument: the type says that you are in a job.
 *
 * Each lane has a thread of tally. A thread of the application that waits without a deadline, in
 * tally_future_wait or in any other function that blocks, may run jobs that have not begun in place
 * of that thread, because waking a thread takes longer than a small exchange. The rules for
 * a job are the same on both: it must not block except in functions that take the lane, and it has
 * tally's floating-point environment. After some calls of tally_future_wait in a row that came
 * right after the submission, tally expects the next one too; if it does not come, the job starts
 * up to half a millisecond later.
 *
 * A job that fails on one rank fails on every rank, with the same status and text. The group stays
 * usable.
 */
typedef struct tally_future tally_future;

/* A job. Runs on the lane, on its thread or on one that waits, and returns a status; tally_job_fail
 * gives a failure its text. */
typedef int (*tally_job_fn)(tally_lane *lane, void *user);

/* Runs on the lane's thread when a job is done (with lanes = 0, on the thread that waits). It must
 * neither block nor free the future. */
typedef void (*tally_done_fn)(void *user, int status, const char *text);

/*
 * Submits a job to lane number lane, 0 <= lane < lanes; with lanes = 0 only to lane 0. future may
 * be NULL if nobody will ask for the result. Any thread; collective; does not wait for the job.
 * Errors: ARG, NOMEM, ABORTED if the group was aborted.
 */
TALLY_API int tally_submit(tally_group *group, int lane, tally_job_fn job, void *user,
                           tally_future **future);

/*
 * Waits for the job and returns its status; tally_last_error() then has its text. It may be called
 * several times. If the lane is idle, it runs the jobs submitted so far, up to this one, except
 * jobs with a callback and jobs after them; with lanes = 0 it runs these too. Any thread; blocks.
 * Errors: those of the job.
 */
TALLY_API int tally_future_wait(tally_future *future);

/*
 * As tally_future_wait, but returns TIMEOUT if the job is not done after this many seconds. The job
 * continues. This call runs no jobs, except with lanes = 0. Any thread; blocks. Errors: those of
 * the job, TIMEOUT.
 */
TALLY_API int tally_future_wait_for(tally_future *future, double seconds);

/*
 * Sets *done to 1 if the job is done, else to 0. With lanes = 0 no job is done before a wait. Any
 * thread; never blocks. Errors: ARG.
 */
TALLY_API int tally_future_test(const tally_future *future, int *done);

/*
 * Calls done(user, ...) when the job is done; if it is done already, at once and on this thread. A
 * job that has not begun then stays on the lane's thread. A future takes one callback. Any thread;
 * never blocks. Errors: ARG; STATE if there is a callback already.
 */
TALLY_API int tally_future_on_done(tally_future *future, tally_done_fn done, void *user);

/*
 * Returns the payload bytes that the finished job has sent to other ranks; 0 while it runs. Any
 * thread; never blocks; cannot fail.
 */
TALLY_API unsigned long long tally_future_bytes_sent(const tally_future *future);

/*
 * Frees a future. A job that is not done continues. NULL is accepted. Any thread; never blocks.
 */
TALLY_API void tally_future_free(tally_future *future);

/*
 * Returns the lane of a sub-group that shares the thread of lane, for jobs that use several
 * groups; NULL if the group does not share threads with the group of lane. If such a job fails on
 * one rank while others are in a collective of the sub-group, the sub-group is aborted; the group
 * of the job stays usable. Inside a job; never blocks.
 */
TALLY_API tally_lane *tally_lane_for(tally_lane *lane, tally_group *group);

/* Return the group and the number of a lane. Inside a job; never block. */
TALLY_API tally_group *tally_lane_group(const tally_lane *lane);
TALLY_API int tally_lane_index(const tally_lane *lane);

/*
 * Records the text of a failure and returns status: `return tally_job_fail(...);`. Inside a job,
 * or, with lane NULL, in a function of your own table that runs outside a job; never blocks.
 */
TALLY_API int tally_job_fail(tally_lane *lane, int status, const char *text);

/* ---- collectives --------------------------------------------------------------------------- */

/*
 * Sums are taken in rank order 0..size-1. fp16 and bf16 are added in fp32 and rounded once. Integer
 * sums wrap around. The mean is the sum divided by the number of ranks; for integers the sum is
 * taken in 64 bits, and the division truncates. A NaN on any rank makes minimum and maximum NaN.
 */
typedef enum tally_op { TALLY_SUM = 0, TALLY_MEAN = 1, TALLY_MIN = 2, TALLY_MAX = 3 } tally_op;

/*
 * Computes the shard of a rank in tally_lane_reduce_scatter of count elements: n elements from
 * offset on. Any thread; never blocks; cannot fail.
 */
TALLY_API void tally_shard(size_t count, int size, int rank, size_t *offset, size_t *n);

/*
 * Collectives inside a job. All are collective over the lane's group, and all block. count, dtype,
 * op and root must be the same on all ranks; a count of 0 is valid. The result has the same bits on
 * all ranks and on every backend. Errors of each: ARG, exchange errors.
 */

/* Reduces data of all ranks element by element and leaves the result in data on every rank. */
TALLY_API int tally_lane_all_reduce(tally_lane *lane, void *data, size_t count, int dtype, int op);

/*
 * The same, but only this rank's shard (tally_shard) of data gets the result. The rest of data does
 * not change.
 */
TALLY_API int tally_lane_reduce_scatter(tally_lane *lane, void *data, size_t count, int dtype,
                                        int op);

/*
 * Concatenates the bytes of all ranks in received, in rank order: bytes[r] from rank r. The array
 * bytes is the same on every rank. send may be this rank's part of received.
 */
TALLY_API int tally_lane_all_gather(tally_lane *lane, const void *send, const size_t *bytes,
                                    void *received);

/*
 * Sends send_bytes[r] bytes to each rank r, and receives received_bytes[r] bytes from it. Both
 * arrays hold the parts in rank order without gaps. send and received must not overlap.
 */
TALLY_API int tally_lane_all_to_all(tally_lane *lane, const void *send, const size_t *send_bytes,
                                    void *received, const size_t *received_bytes);

/* Copies data from rank root to all other ranks. */
TALLY_API int tally_lane_broadcast(tally_lane *lane, void *data, size_t bytes, int root);

/* Returns when all ranks have called it. */
TALLY_API int tally_lane_barrier(tally_lane *lane);

/*
 * The same collectives as separate jobs on lane 0. They return at once, with a future. Data and
 * arrays of sizes must stay in place until the future is done. Any thread; collective; do not wait
 * for the job. Errors: as tally_submit.
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

/* ---- your own hooks ------------------------------------------------------------------------ */

/* The part of a bucket that belongs to one parameter. This struct does not grow. */
typedef struct tally_bucket_param {
    int index; /* the parameter's number, as in tally_ddp_create */
    const char *name;
    int n_dims;
    const size_t *shape;
    size_t offset;  /* of its gradient in the bucket, in elements */
    size_t n;       /* number of elements */
    void *gradient; /* the address at that offset; elements lie as the parameter's strides say */
    void *data;     /* the parameter itself */
} tally_bucket_param;

/* Gradients that travel together, as a hook sees them. A hook may write only to data. */
typedef struct tally_bucket {
    size_t size;             /* sizeof(tally_bucket) */
    int index;               /* 0..count-1: buckets are reduced in this order */
    int count;               /* number of buckets in a step */
    int is_last;             /* index == count - 1 */
    unsigned long long step; /* steps before this one, including those of a loaded run */
    unsigned generation;     /* changes when parameters move to other buckets */
    /* Divide the sum by this. It is the size of the lane's group, with two exceptions: inside hook
     * hosts it is that of the whole ddp, and with join_divides_by_active only ranks that still have
     * input count. */
    double divisor;
    int dtype;
    size_t n;   /* number of elements */
    void *data; /* all gradients, one after the other; the hook leaves the mean here */
    int n_params;
    const tally_bucket_param *params;
    int shadows;  /* this rank has run out of input (join): data is zeros, residuals stay */
    void *keeper; /* always NULL; keeps the layout of 0.1.0 */
    /* Ranks in the mean, including those that have run out of input. It is the size of the lane's
     * group, except inside hook hosts, where it is that of the whole ddp. */
    int n_ranks;
} tally_bucket;

/*
 * Error feedback. A residual is the part of a parameter's gradients that compression has left out
 * so far. A hook adds it to the next gradient, and stores what is left out then. tally keeps one
 * fp32 residual per parameter, zero at first. It stays with its elements: in the next step, in
 * other buckets, under the hook that replaces this one, and in tally_ddp_save. Results therefore do
 * not depend on the order of announcements, on bucket caps, or on views or copies.
 *
 * Sets *residual to the residual of the bucket's parameter number k, with its elements in the order
 * of the gradient. Inside reduce or scatter, on the thread that runs it; never blocks. Errors: ARG,
 * NOMEM, STATE elsewhere, UNSUPPORTED for a bucket that is not fp32.
 */
TALLY_API int tally_bucket_residual(const tally_bucket *bucket, int k, float **residual);

/* The state that a rank's hook has saved, for load. This struct does not grow. */
typedef struct tally_hook_blob {
    size_t size; /* sizeof(tally_hook_blob) */
    const void *data;
    size_t bytes;
} tally_hook_blob;

/*
 * Your own hook is a table of functions. tally passes state to each of them. reduce is required,
 * the others may be NULL; save and load need each other. Every function may give a failure its text
 * with tally_job_fail, with lane NULL outside reduce and scatter.
 */
typedef struct tally_hook_table {
    size_t size;      /* sizeof(tally_hook_table) */
    const char *name; /* for messages; ranks compare it; copied */
    /* Nonzero: reduce may run for several buckets at once, on several lanes. */
    int concurrent;
    /* Nonzero: reduce uses residuals. If a hook without feedback replaces this one, the residuals
     * are added to the gradients of the next step, so nothing is lost. */
    int feedback;
    /* Called before the first reduce. Application's thread; may block. A failure fails
     * tally_ddp_attach_hook. */
    int (*attach)(void *state, tally_ddp *ddp);
    /*
     * Replaces the bucket's gradients by their mean over all ranks. On a lane; blocks in
     * collectives, one after the other. A failure fails the step on every rank with its status and
     * text, and the gradients are then undefined.
     */
    int (*reduce)(void *state, tally_lane *lane, const tally_bucket *bucket);
    /* Called after the last reduce, when the hook is replaced or the ddp freed. Application's
     * thread. */
    void (*detach)(void *state, tally_ddp *ddp);
    /*
     * Writes the state, without residuals, to blob, which has room for *bytes, and sets *bytes to
     * the size needed; a NULL blob only asks for the size. Application's thread, between steps;
     * must not block. A failure fails tally_ddp_save.
     */
    int (*save)(void *state, void *blob, size_t *bytes);
    /*
     * Restores the state from the blobs that hooks of the same kind saved: blobs[r] from rank r of
     * n_blobs ranks. If this hook replaces another, n_blobs is 1: this rank's blob. If the hook did
     * not run on a rank (inside hook hosts), that rank's entry is rank 0's blob. The blobs are
     * complete, a checksum is verified, but they may come from another number of ranks and from a
     * hook with other options. Application's thread, between steps; must not block. A failure fails
     * tally_ddp_load and must leave the state unchanged.
     */
    int (*load)(void *state, const tally_hook_blob *blobs, size_t n_blobs);
    /* Frees state. Called when nothing uses the hook any more. */
    void (*destroy)(void *state);
    /*
     * Nonzero: the mean of an element depends on that element alone, and reduce reads only data, n,
     * dtype and divisor of the bucket, and its parameters. tally may then call reduce several times
     * for a bucket, each time with some of its parameters, the same ones on every rank: data and n
     * are those of the part, and data may be the application's own gradient array. This avoids a
     * copy if gradients are not views. Ranks compare it.
     */
    int elementwise;
    /*
     * As reduce, with the same bits, but each rank needs only its shard of the mean: for a sharded
     * optimizer (tally_optimizer_config.shard). The shard of rank r is the elements from
     * shard_starts[r] up to shard_starts[r + 1] of data, and may be empty. The other elements of
     * data are undefined afterwards. NULL: tally calls reduce instead. Ranks compare whether it is
     * NULL.
     */
    int (*scatter)(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts);
} tally_hook_table;

/*
 * Makes a hook from a table and its state. On success the hook owns state. Local; any thread; never
 * blocks. Errors: ARG naming what the table lacks, NOMEM.
 */
TALLY_API int tally_hook_create(const tally_hook_table *table, void *state, tally_hook **hook);

/*
 * Wraps any hook, including your own: text is a wrapper with its options, such as "bf16" or
 * "fp16:saturate=1". The new name is the text followed by the inner name in brackets, at most 200
 * characters. The new hook takes a reference to inner. Local; any thread; never blocks. Errors: as
 * tally_hook_parse.
 */
TALLY_API int tally_hook_wrap(const char *text, tally_hook *inner, tally_hook **hook);

/*
 * Returns the ddp's own group, whose lanes run its hook; NULL for NULL. A hook may split it
 * (tally_group_split) when it is attached, and close the sub-groups when it is detached. Any
 * thread; never blocks.
 */
TALLY_API tally_group *tally_ddp_group(const tally_ddp *ddp);

/*
 * Return the name of parameter i and the number of its elements, for a hook that prepares when it
 * is attached; NULL and 0 if there is no such parameter. The name is valid until the ddp is freed.
 * Any thread; never block.
 */
TALLY_API const char *tally_ddp_param_name(const tally_ddp *ddp, int i);
TALLY_API size_t tally_ddp_param_count(const tally_ddp *ddp, int i);

/* ---- reducers: buckets that belong to a framework ------------------------------------------- */

/*
 * A framework that collects gradients in its own buckets, such as PyTorch, hands each bucket to a
 * reducer when it is full, and gets the mean in the same place:
 *
 *     tally_reducer_reduce(reducer, params, n, data, is_last, 0, &future);
 *     ...
 *     tally_future_wait(future);     data now has the mean over all ranks
 *
 * State is kept for each parameter: residuals, PowerSGD's factors, the count of steps. So any
 * parameters may form a bucket, at any address, in each step anew. While the buckets stay the same,
 * a step costs what it costs in a ddp with the same buckets, and gives the same bits. In the step
 * in which they change, residuals move to the ranks that need them.
 *
 * Each reducer has its own group and lane thread: ranks may use several reducers and ddps in
 * different orders.
 */
typedef struct tally_reducer tally_reducer;

/*
 * Creates a reducer for n parameters, of which name, shape, strides and dtype are used; flags must
 * be 0. hook is the text of a hook; NULL: TALLY_HOOK, else "allreduce". All ranks compare both. The
 * reducer makes its own group from this one; free it before you close the group. Reducers and ddps
 * of a group are created in the same order on all ranks. Collective; blocks. Errors: ARG,
 * UNSUPPORTED, MISMATCH, NOMEM, exchange errors.
 */
TALLY_API int tally_reducer_create(tally_group *group, const tally_param *params, size_t n,
                                   const char *hook, tally_reducer **reducer);

/*
 * Frees a reducer on this rank. A rank that waits for this one in a later step gets MISMATCH. In
 * the middle of a step the call abandons the step, and the futures of the other ranks fail with
 * ABORTED. Futures must have been freed before. NULL is accepted. Local; does not wait for other
 * ranks. Errors: STATE on a lane.
 */
TALLY_API int tally_reducer_free(tally_reducer *reducer);

/*
 * Replaces the gradients of n parameters, given by their numbers, by their means. The gradients lie
 * one after the other at data, in this order, without gaps; they have one dtype, and data is
 * aligned to it. They belong to tally until the future is done. is_last is 1 for the last bucket of
 * a step: it counts the step. divisor divides the sums; 0: the number of ranks. future as in
 * tally_submit. The bucket that a hook gets has count 0, except the last one of the step.
 *
 * Where ranks that compute leave no CPU of the machine free, working beside them may gain nothing:
 * the lane thread then begins with the last bucket of a step, or within 0.1 s if that is earlier.
 *
 * All ranks give the same parameters, is_last and divisor in the same order; the first difference
 * is MISMATCH, and the reducer stays usable. If a bucket fails, its gradients are undefined, and
 * the step does not count. A parameter that comes again before is_last begins a new step.
 *
 * Any thread; collective; does not wait for communication. Errors: ARG; NOMEM, which aborts the
 * reducer's group, so that no rank waits for this one; ABORTED. Errors of the future: those of the
 * hook, NOMEM, exchange errors.
 */
TALLY_API int tally_reducer_reduce(tally_reducer *reducer, const int *params, size_t n, void *data,
                                   int is_last, double divisor, tally_future **future);

/*
 * As tally_ddp_set_hook, tally_ddp_attach_hook, tally_ddp_save, tally_ddp_load, tally_ddp_get_stats
 * and tally_ddp_get_rank_stats, whose comments say the rest. A blob of a ddp with the same
 * parameters can be loaded into a reducer, and the other way round. Between steps here means: the
 * futures of all buckets are done, and the last call was for the last bucket of a step, or failed.
 * Of the statistics only steps, buckets, bytes, counts, communication times and errors are set. A
 * rank waits for a step from its call for the last bucket on.
 */
TALLY_API int tally_reducer_set_hook(tally_reducer *reducer, const char *text);
TALLY_API int tally_reducer_attach_hook(tally_reducer *reducer, tally_hook *hook);
TALLY_API int tally_reducer_save(tally_reducer *reducer, void *blob, size_t *bytes);
TALLY_API int tally_reducer_load(tally_reducer *reducer, const void *const *blobs,
                                 const size_t *bytes, size_t n);
TALLY_API int tally_reducer_get_stats(tally_reducer *reducer, tally_ddp_stats *stats);
TALLY_API int tally_reducer_get_rank_stats(tally_reducer *reducer, int rank,
                                           tally_rank_stats *stats);

/* ---- your own optimizers ------------------------------------------------------------------- */

/* The largest number of state arrays per parameter. */
#define TALLY_MAX_STATES 8

/*
 * One parameter, or a part of one, for step_param. Elements of data, gradient and state have the
 * order in which the parameter's data lies in memory, as its strides say.
 */
typedef struct tally_step_param {
    size_t size; /* sizeof(tally_step_param) */
    int index;   /* the parameter's number, as in tally_ddp_create */
    const char *name;
    int n_dims;
    const size_t *shape;     /* of the whole parameter */
    size_t first;            /* index of the first element here in the whole parameter */
    size_t n;                /* number of elements: all, unless the table is elementwise */
    float *data;             /* n elements, and so in the next two */
    const float *gradient;   /* the mean: clipped, unscaled */
    float *const *state;     /* table.n_states arrays; zeros before the parameter's first step */
    unsigned long long step; /* number of the parameter's step, from 1 */
    double lr;               /* learning rate of its group in this step */
} tally_step_param;

/* Your own optimizer is a table of functions; step_param is required. */
struct tally_optimizer_table {
    size_t size;      /* sizeof(tally_optimizer_table) */
    const char *name; /* for messages and checkpoints; ranks compare it; copied */
    /* Nonzero: an element's update depends on that element alone. step_param may then be called for
     * parts of a parameter, several times in a step with the same step number, and shards may
     * divide parameters. */
    int elementwise;
    int n_states; /* fp32 arrays that tally keeps for each parameter: 0..TALLY_MAX_STATES */
    /*
     * Updates data and state. On a lane or the application's thread; several at once, for different
     * parameters, if the group has several lanes; must not block. A failure fails the step on every
     * rank; tally_job_fail, with lane NULL, gives it a text.
     */
    int (*step_param)(void *user, const tally_step_param *param);
    /* Frees user. Called when nothing uses the optimizer any more. May be NULL. */
    void (*destroy)(void *user);
};

#ifdef __cplusplus
}
#endif

#endif
