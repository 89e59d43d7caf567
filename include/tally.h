/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally: data-parallel training for C, and for anything that can call C.
 *
 * You hand tally your parameters, say when each gradient is ready, and choose how gradients travel.
 * It leaves the mean gradient on every rank.
 *
 * This header is the manual, and it has all that a training program needs. If you only want to
 * train, read groups, parameters and data-parallel training, in this order, and come back for
 * hooks, optimizers, mixed precision, averaging, checkpoints, saving and loading, statistics, check
 * mode, and logging and environment when you need them. A second header, tally_extend.h, is for
 * programs that extend tally: jobs, lanes and futures, collectives, and tables for your own hooks
 * and optimizers.
 *
 * A complete program. Alone it is a world of one; `tally run -n 4 ./line` starts it as four ranks:
 *
 *     #include <stdio.h>
 *     #include <tally.h>
 *
 *     int main(void)
 *     {
 *         float line[2] = {0, 0};                       // the model: y = line[0] x + line[1]
 *         const size_t shape[] = {2};
 *         const tally_param param = {sizeof param, "line", 1,    shape, NULL,
 *                                    TALLY_F32,    line,   NULL, 0};
 *         tally_group *group = NULL;
 *         tally_ddp *ddp = NULL;
 *         int rc = tally_group_open(NULL, &group);
 *
 *         if (rc == TALLY_OK) {
 *             rc = tally_ddp_create(group, &param, 1, NULL, &ddp);
 *         }
 *         for (int step = 0; step < 1000 && rc == TALLY_OK; step++) {
 *             float *gradient = tally_ddp_grad(ddp, 0);
 *             float x = (float)((tally_group_rank(group) + 3 * step) % 8) / 8;
 *             float error = line[0] * x + line[1] - (2 * x + 1);
 *
 *             gradient[0] = error * x;
 *             gradient[1] = error;
 *             rc = tally_ddp_grad_ready(ddp, 0);        // complete: from here on it travels
 *             if (rc == TALLY_OK) {
 *                 rc = tally_ddp_wait(ddp);             // now it is the mean over all ranks
 *             }
 *             for (int i = 0; i < 2 && rc == TALLY_OK; i++) {
 *                 line[i] -= 0.2f * gradient[i];
 *             }
 *         }
 *         if (rc == TALLY_OK) {
 *             printf("y = %.2f x + %.2f\n", line[0], line[1]);
 *         } else {
 *             fprintf(stderr, "%s: %s\n", tally_status_name(rc), tally_last_error());
 *         }
 *         tally_ddp_free(ddp);
 *         tally_group_close(group);
 *         return rc != TALLY_OK;
 *     }
 *
 * Rules for every function below:
 *   - A function that can fail returns int: TALLY_OK (0), or one of the negative codes of
 *     TALLY_STATUS_LIST. After a failure tally_last_error() has the text, for the calling thread.
 *   - Outputs are written only on success.
 *   - Structs that begin with their size may grow in later versions. A program built with an older
 *     header keeps working with a newer library: fields that its structs lack are "not set". A
 *     program built with a newer header works with an older library as long as it sets no field
 *     that the library does not know; otherwise the call fails with UNSUPPORTED and says so. In
 *     answers such fields are zero.
 *   - A forked child, such as a worker of a data loader, cannot use the objects of its parent. In
 *     the child, calls on such an object return STATE at once, or NULL if they return a pointer.
 *     The ..._free functions and tally_group_close do nothing and return TALLY_OK, so that
 *     destructors may run, and facts such as tally_group_rank stay available. The child may open
 *     its own groups, except over MPI.
 *   - The library never exits, installs no signal handler, and prints nothing: messages go to the
 *     callback of tally_log_set(). If the program sets no callback, two kinds of messages go to
 *     stderr: all messages if TALLY_LOG is set in the environment, and the warnings of check mode.
 *
 * Words that the comments use:
 *   collective       every rank of the group makes this call, in the same order as its other
 *                    collective calls; "local" is the opposite and involves no other rank
 *   blocks           may wait for other ranks; such a function must not be called on a lane, which
 *                    means inside a hook or a job (unless it takes a tally_lane)
 *   any thread       several threads may call it at once; other functions are called by one thread
 *                    at a time for each object
 *   between steps    at any time except from a step's first tally_ddp_grad_ready until its
 *                    tally_ddp_wait returns
 *   exchange errors  PEER, TIMEOUT, MISMATCH, ABORTED, or the error that made the same operation
 *                    fail on another rank
 */
#ifndef TALLY_H
#define TALLY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TALLY_API __attribute__((visibility("default")))
#else
#define TALLY_API
#endif

/* ---- version ------------------------------------------------------------------------------- */

#define TALLY_VERSION_MAJOR 0
#define TALLY_VERSION_MINOR 2
#define TALLY_VERSION_PATCH 0

/*
 * Returns the version of the running library as "major.minor.patch", a static text. The macros
 * above give the version of this header. Any thread; never blocks; cannot fail.
 */
TALLY_API const char *tally_version(void);

/* ---- status -------------------------------------------------------------------------------- */

/*
 * Every status code: name, value, text. The values never change and are never reused. The codes
 * say what the caller should do:
 *
 *   ARG          fix the call             STATE        call in another order
 *   NOMEM        free memory, try again   SYSTEM       look at the system (the text has its words)
 *   PEER         another rank died        TIMEOUT      another rank is late (the text names it)
 *   ABORTED      open a new group         MISMATCH     ranks disagree (the text names both)
 *   UNSUPPORTED  not offered here         NUMERIC      a value is infinite or NaN
 *   INTERNAL     a defect in tally: please report it
 */
#define TALLY_STATUS_LIST(X)                                \
    X(OK, 0, "success")                                     \
    X(ARG, -1, "invalid argument")                          \
    X(STATE, -2, "not possible in this state")              \
    X(NOMEM, -3, "out of memory")                           \
    X(SYSTEM, -4, "the operating system reported an error") \
    X(PEER, -5, "another rank failed")                      \
    X(TIMEOUT, -6, "another rank did not arrive in time")   \
    X(ABORTED, -7, "the group was given up after an error") \
    X(MISMATCH, -8, "ranks disagree")                       \
    X(UNSUPPORTED, -9, "not supported")                     \
    X(NUMERIC, -10, "a value is infinite or not a number")  \
    X(INTERNAL, -11, "internal error")

typedef enum tally_status {
#define TALLY_STATUS_ENUM(name, value, text) TALLY_##name = (value),
    TALLY_STATUS_LIST(TALLY_STATUS_ENUM)
#undef TALLY_STATUS_ENUM
} tally_status;

/*
 * Return the short name ("ARG") and the general text ("invalid argument") of a status code, both
 * static. Any other number gives "UNKNOWN" and "unknown status". Any thread; never block; cannot
 * fail.
 */
TALLY_API const char *tally_status_name(int status);
TALLY_API const char *tally_status_text(int status);

/*
 * Returns one line on the last call of this thread that failed: what went wrong, and with what. ""
 * if no call has failed yet; a successful call does not clear the text. The text is valid until the
 * next tally call of this thread. Any thread; never blocks; cannot fail.
 */
TALLY_API const char *tally_last_error(void);

/* ---- groups -------------------------------------------------------------------------------- */

/*
 * A group is a set of ranks, numbered 0..size-1, that compute together. Collective calls on a group
 * are made by all of its ranks, in the same order.
 *
 * The ranks of a group are one process alone (backend "self"), threads of one process ("thread"),
 * processes on one machine ("shm"), or MPI processes on any number of machines ("mpi"). Everything
 * below works the same on all of them.
 *
 * Backend "mpi" needs Open MPI or MPICH. It is chosen if mpirun, mpiexec or srun has started the
 * program. The program may initialize MPI itself: with MPI_THREAD_MULTIPLE; with
 * MPI_THREAD_SERIALIZED if it calls MPI only while no job of tally is running; with less, lanes
 * must be 0. Such a program also finalizes MPI, after it has closed its groups. Otherwise tally
 * initializes MPI, and finalizes it when the process ends. When a rank dies, the MPI launcher
 * usually ends the others. If it does not, the dead rank is named as soon as another rank on its
 * machine sees the death, or else when the deadline passes.
 *
 * tally fails rather than hangs. A rank that dies, or ends without closing its group, is named on
 * every other rank within a second (PEER). A rank that misses the deadline is named (TIMEOUT), and
 * so are ranks that disagree about what to do (MISMATCH). After each of these three the group is
 * aborted on every rank: later calls return ABORTED at once, with the reason.
 */
typedef struct tally_group tally_group;

typedef struct tally_group_config {
    size_t size;            /* set by tally_group_config_init */
    const char *backend;    /* "self", "shm" or "mpi"; NULL: TALLY_BACKEND, else chosen */
    int rank;               /* -1: from the environment */
    int world;              /* number of ranks; 0: from the environment */
    const char *rendezvous; /* meeting point: the path of a Unix socket that rank 0 creates
                               and removes, or "@name" for one without a file. NULL: environment */
    double timeout_s;       /* longest wait of an exchange for a rank, not counting time in which
                               this process was stopped; 0: TALLY_TIMEOUT (600) */
    double open_timeout_s;  /* deadline for all ranks to arrive; 0: TALLY_OPEN_TIMEOUT (60) */
    int lanes;              /* number of lane threads, which communicate in the background; 0: none,
                               communication happens in calls that wait; -1: TALLY_LANES */
    const int *mpi_comm;    /* the communicator whose processes are the ranks, as MPI_Comm_c2f
                               returns it; tally duplicates it. NULL: all MPI processes */
} tally_group_config;

/*
 * Sets all fields of a config to "not set"; size is sizeof(tally_group_config). The other
 * ..._config_init functions do the same for their configs. Local; never blocks; cannot fail.
 */
TALLY_API void tally_group_config_init(tally_group_config *config, size_t size);

/*
 * Opens a group, of which this process is one rank. config may be NULL. Fields that the config
 * leaves open come from the environment, in this order:
 *   - TALLY_RANK, TALLY_WORLD and TALLY_RENDEZVOUS, as `tally run` sets them;
 *   - RANK and WORLD_SIZE of other launchers on one machine; the job is identified by
 *     TALLY_RENDEZVOUS, or by MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RUN_ID;
 *   - OMPI_COMM_WORLD_SIZE, PMI_SIZE or SLURM_STEP_NUM_TASKS above 1: backend "mpi";
 *   - none of these: a world of one.
 * It is an error (ARG), on every backend, if the variables of any known launcher name more ranks
 * than the group would have. So it is if they give no number of ranks, but TALLY_RANK, RANK or
 * LOCAL_RANK is above 0, or LOCAL_WORLD_SIZE above 1. Backend "mpi" is UNSUPPORTED in a statically
 * linked program.
 *
 * Collective over all ranks; blocks until all have arrived or open_timeout_s has passed. Errors:
 * ARG; TIMEOUT naming the missing ranks; MISMATCH if ranks disagree about the number of ranks or
 * lanes; PEER; SYSTEM; NOMEM; UNSUPPORTED; STATE over MPI in a forked child or after MPI has been
 * finalized.
 */
TALLY_API int tally_group_open(const tally_group_config *config, tally_group **group);

/*
 * Opens n groups at once whose ranks are threads of this process: groups[r] is the group of rank r,
 * for the thread that is rank r. Of the config, which may be NULL, only timeout_s and lanes are
 * used. Local: one thread calls it for all ranks; never blocks. Errors: ARG, NOMEM, SYSTEM.
 */
TALLY_API int tally_group_open_threads(const tally_group_config *config, int n,
                                       tally_group **groups);

/*
 * Return this rank's number, the number of ranks, and the name of the backend (a static text); for
 * a NULL group -1, 0 and "". Any thread; never block; cannot fail.
 */
TALLY_API int tally_group_rank(const tally_group *group);
TALLY_API int tally_group_size(const tally_group *group);
TALLY_API const char *tally_group_backend(const tally_group *group);

/*
 * Returns the payload bytes that this rank has sent to others in this group since it was opened.
 * Any thread; never blocks; cannot fail.
 */
TALLY_API unsigned long long tally_group_bytes_sent(const tally_group *group);

/*
 * Closes a group: finishes the jobs that this rank has submitted, then frees everything. Other
 * ranks that still wait for this one get PEER, "closed its group". The program must have freed the
 * futures of the group before. Group memory you did not free is released when the last rank has
 * closed the group. NULL is accepted. Local; blocks until this rank's jobs are done. Errors: STATE
 * if a sub-group is still open.
 */
TALLY_API int tally_group_close(tally_group *group);

/*
 * Aborts a group: pending and later calls of every rank return ABORTED with this reason. A call
 * in which all ranks have already met may still succeed. The group must still be closed. A rank
 * that fails alone (its disk is full, its input is damaged) calls this before it cleans up, so that
 * the other ranks get the reason; otherwise they only learn that this rank left. Local; any thread;
 * never blocks. Errors: ARG.
 */
TALLY_API int tally_group_abort(tally_group *group, const char *reason);

/* ---- parameters ---------------------------------------------------------------------------- */

typedef enum tally_dtype {
    TALLY_F32 = 0,
    TALLY_F64 = 1,
    TALLY_F16 = 2,
    TALLY_BF16 = 3,
    TALLY_I32 = 4,
    TALLY_I64 = 5,
    TALLY_U8 = 6
} tally_dtype;

/*
 * Returns the size of one element in bytes; 0 for a number that is not a dtype. Any thread; never
 * blocks; cannot fail.
 */
TALLY_API size_t tally_dtype_bytes(int dtype);

typedef enum tally_param_flag {
    TALLY_PARAM_FROZEN = 1,  /* broadcast at creation, has no gradient */
    TALLY_PARAM_IGNORED = 2, /* not touched, unless a group of an optimizer names it */
    TALLY_PARAM_DELAYED = 4, /* reduced by tally_ddp_reduce_delayed, not with the others */
    TALLY_PARAM_SPARSE = 8   /* refused: sparse gradients are not supported */
} tally_param_flag;

/*
 * One parameter of the model. Its index in the array given to tally_ddp_create, from 0, is the
 * number that tally_ddp_grad_ready and other functions take. All ranks give the same names, shapes,
 * dtypes and flags in the same order. No two parameters may share memory: a weight that is used in
 * several places (tied weights) is one parameter. Data and gradients are aligned to their elements.
 */
typedef struct tally_param {
    size_t size;           /* sizeof(tally_param), in every entry */
    const char *name;      /* for messages and checkpoints; unique */
    int n_dims;            /* 0 for a scalar */
    const size_t *shape;   /* n_dims entries; NULL for a scalar */
    const size_t *strides; /* in elements, of a dense array in any order of dimensions; NULL:
                              row-major */
    int dtype;             /* TALLY_F32, TALLY_F64, TALLY_F16 or TALLY_BF16 */
    void *data;            /* the parameter; NULL: tally provides memory, see tally_ddp_data */
    void *grad;            /* its gradient; NULL: tally provides memory, see tally_ddp_grad */
    unsigned flags;        /* of tally_param_flag */
} tally_param;

/*
 * A buffer: state of the model that is not trained, such as running means. It takes rank 0's values
 * after every step.
 */
typedef struct tally_buffer {
    size_t size;      /* sizeof(tally_buffer), in every entry */
    const char *name; /* for messages; may be NULL */
    void *data;
    size_t bytes;
    int dtype; /* of tally_dtype; used only with config.buffer_dtype */
} tally_buffer;

/* ---- data-parallel training ---------------------------------------------------------------- */

/*
 * A ddp holds the parameters of a model. It decides when their gradients travel, and replaces each
 * gradient by its mean over all ranks. A step:
 *
 *     forward();
 *     backward();                    calls tally_ddp_grad_ready(ddp, i) as each gradient completes
 *     tally_ddp_wait(ddp);           every gradient is now the mean over all ranks
 *     update();
 *
 * Gradients travel in buckets. A bucket is reduced on a lane, while backward goes on, as soon as
 * its gradients and those of all earlier buckets are ready.
 *
 * Accumulation: a micro-step that only adds to the gradients calls neither tally_ddp_grad_ready nor
 * tally_ddp_wait.
 *
 * Views. If no parameter has a gradient pointer, gradients live in the buckets, and tally_ddp_grad
 * returns their addresses. The gradients start as zeros, their addresses never change, and they are
 * never copied.
 *
 * Copies. If parameters have gradient pointers, the program keeps its own arrays, separate ones or
 * parts of one flat array. The lane copies gradients into the bucket before the hook and back after
 * it. Nothing is copied if the gradients lie one after the other in one flat array, in the order of
 * parameters, on all ranks: hooks then work on that array. With separate arrays, a hook that treats
 * each element alone reads and writes large gradients in their arrays, without a copy.
 *
 * After the first step the buckets of copies are rearranged once, in the order in which gradients
 * became ready on rank 0. They are not rearranged if the group has other ddps or sub-groups, if the
 * optimizer is sharded, or if the hook treats a whole bucket as one matrix or one tensor
 * (batched_powersgd, scope=bucket). So the bits of such a hook do not depend on the order of
 * announcement. They depend on the order of gradients inside a bucket: the order of the parameters
 * for a flat array, otherwise the reverse. Where buckets may be rearranged, the hook "auto" may
 * also change their cap between two steps.
 *
 * Gradient ownership. From tally_ddp_grad_ready, or tally_ddp_reduce_delayed, until tally_ddp_wait
 * returns, a gradient belongs to tally: the program must neither read nor write it.
 */
typedef struct tally_ddp tally_ddp;

/* Runs hooks, one at a time; see tally_extend.h. */
typedef struct tally_lane tally_lane;

typedef struct tally_ddp_config {
    size_t size;             /* set by tally_ddp_config_init */
    size_t bucket_cap_bytes; /* a bucket is full when it reaches this size; 0: 25 MiB */
    /* The same for the first bucket; 0: 1 MiB, or bucket_cap_bytes if that is set. */
    size_t first_bucket_bytes;
    /* Replaces those two: one cap for each bucket; the last cap repeats. */
    const size_t *bucket_caps;
    size_t n_bucket_caps;
    const char *hook;            /* the text of a hook; NULL: TALLY_HOOK, else "allreduce" */
    int keep_parameters;         /* 1: do not start from rank 0's parameters and buffers */
    const tally_buffer *buffers; /* state that is not trained; takes rank 0's after every step */
    size_t n_buffers;
    int keep_buffers; /* 1: do not broadcast buffers after each step */
    /* If set, makes the buffers equal on all ranks, in place of the broadcast. Runs on a lane; a
     * failure fails the step on every rank. */
    int (*buffer_hook)(void *user, tally_lane *lane, const tally_buffer *buffers, size_t n);
    void *buffer_hook_user;
    int find_unused;  /* 1: a gradient not announced before wait is absent; 0: it is missing */
    int static_graph; /* 1: all steps announce what the first one does, equally often */
    int skip_unused;  /* 1: a bucket without a gradient on any rank is not reduced */
    int join;         /* 1: ranks may run out of input at different steps, see tally_ddp_join */
    int join_stops;   /* 1: when one rank has run out of input, all fail with STATE */
    int join_divides_by_active; /* 1: the mean is over the ranks that still have input */
    /* Mixed precision, see that section. Each is 0 (none), TALLY_F16 or TALLY_BF16. */
    int param_dtype;  /* of the copies that forward reads and the gradients that backward writes */
    int reduce_dtype; /* with param_dtype: the dtype in which gradients travel; 0: fp32 */
    int buffer_dtype; /* of the copies of buffers of dtype TALLY_F32 */
    int reserved;     /* not used; keeps the layout of 0.1.0 */
    /* Check mode, see that section. N > 0: on, and parameters are compared every N steps; 0:
     * TALLY_CHECK decides, which is off unless set; -1: off. */
    int check;
} tally_ddp_config;

/* Sets all fields to "not set"; size is sizeof(tally_ddp_config). Local; never blocks. */
TALLY_API void tally_ddp_config_init(tally_ddp_config *config, size_t size);

/*
 * Creates a ddp for n parameters. config may be NULL. tally copies names, shapes and pointers; the
 * arrays of data and gradients must stay in place. All ranks compare parameters and config; the
 * first difference is MISMATCH, and the text has the field and both values. Arrays that overlap are
 * ARG, and the text names both parameters. Then all ranks get rank 0's parameters and buffers.
 * Gradients are not touched, so a program that allocates gradients during the first backward may
 * create its ddp after that. The ddp makes its own group from this one, with the same number of
 * lane threads; free the ddp before you close the group.
 *
 * Several ddps on one group (a generator and its critic) are created in the same order on all
 * ranks. After that each ddp has its own order: ranks may announce gradients and wait for the ddps
 * in different orders, from different threads, and alongside collectives of the group. There are
 * exceptions: steps that need information from tally_ddp_wait. All ranks must wait for such steps
 * in the same order, or wait for each ddp on a separate thread; otherwise they get TIMEOUT:
 *
 * - buffers: they travel with the values they have when wait is called;
 * - find_unused: wait tells which gradients are absent, unless tally_ddp_grad_absent did before;
 * - delayed parameters: the application may ask for them until it calls wait;
 * - ignored parameters that an optimizer updates: their gradients may change until wait;
 * - join: the wait of one rank meets tally_ddp_join of another;
 * - check mode: buckets are launched inside wait;
 * - an averager of the optimizer: it averages inside wait;
 * - lanes = 0: all jobs run inside wait.
 *
 * Collective; blocks. Errors: ARG, UNSUPPORTED, MISMATCH, NOMEM, exchange errors.
 */
TALLY_API int tally_ddp_create(tally_group *group, const tally_param *params, size_t n,
                               const tally_ddp_config *config, tally_ddp **ddp);

/*
 * Frees a ddp on this rank. A rank that waits for this one in a later step gets MISMATCH. In the
 * middle of a step the call abandons the step, and the wait of the other ranks fails with ABORTED.
 * NULL is accepted. Local; does not wait for other ranks. Errors: STATE on a lane.
 */
TALLY_API int tally_ddp_free(tally_ddp *ddp);

/*
 * Returns the number of parameters that the ddp was created with; 0 for NULL. Any thread; never
 * blocks; cannot fail.
 */
TALLY_API size_t tally_ddp_n_params(const tally_ddp *ddp);

/*
 * Returns the address of parameter i's gradient, which backward writes; NULL if it has none. Any
 * thread; never blocks.
 */
TALLY_API void *tally_ddp_grad(const tally_ddp *ddp, int i);

/*
 * Returns the address of parameter i's mean gradient after a step, in the parameter's dtype; NULL
 * if it has none. Without mixed precision this is tally_ddp_grad. Any thread; never blocks.
 */
TALLY_API void *tally_ddp_mean(const tally_ddp *ddp, int i);

/*
 * Returns the address of parameter i, or NULL if there is none. If tally_param.data was NULL, and
 * the parameter is not ignored, the parameter lies in memory of the group, laid out like the
 * buckets and zero at first; a sharded optimizer sends updated parameters from there without a
 * copy. Such an address never changes and is valid until the ddp is freed. Parameters with and
 * without their own data may be mixed, but only if gradients are views. Fill the parameters on one
 * rank, then call tally_ddp_broadcast. Any thread; never blocks.
 */
TALLY_API void *tally_ddp_data(const tally_ddp *ddp, int i);

/*
 * Copies all parameters except ignored ones, and all buffers, from rank root to all ranks; low
 * copies are updated. Collective; between steps, before any rank is in tally_ddp_join; blocks.
 * Errors: ARG, STATE, exchange errors.
 */
TALLY_API int tally_ddp_broadcast(tally_ddp *ddp, int root);

/*
 * Announces that parameter i's gradient is complete in this step. Any thread; does not wait for
 * communication. Errors: ARG, STATE for a gradient announced twice, ABORTED.
 */
TALLY_API int tally_ddp_grad_ready(tally_ddp *ddp, int i);

/*
 * Announces that parameter i has no gradient on this rank in this step. It counts as zeros if
 * another rank has one; if no rank has one, the gradient stays untouched. Any thread; does not wait
 * for communication. Errors: as tally_ddp_grad_ready, and NOMEM.
 */
TALLY_API int tally_ddp_grad_absent(tally_ddp *ddp, int i);

/*
 * Ends the step: returns when every gradient is the mean. Hooks and updates that no lane thread has
 * begun may run on this thread. One thread; collective; blocks. Errors:
 *   - STATE if nothing was announced, if gradients are missing (the text lists them; with
 *     find_unused they count as absent), or if the graph has changed under static_graph. The step
 *     stays open: announce what is missing and wait again, or free the ddp.
 *   - The error of a hook, STATE included, and exchange errors. The gradients are undefined, and
 *     the next step starts anew. If the group was aborted, other ranks may still write to views
 *     until the ddp is freed, but never to the program's own arrays.
 */
TALLY_API int tally_ddp_wait(tally_ddp *ddp);

/*
 * Sets *unused to 1 if no rank had a gradient for parameter i in the last step, else to 0. Local;
 * never blocks. Errors: ARG.
 */
TALLY_API int tally_ddp_is_unused(const tally_ddp *ddp, int i, int *unused);

/*
 * Between begin and end, tally_ddp_grad_ready, tally_ddp_grad_absent and tally_ddp_wait exchange
 * nothing, for programs that cannot avoid calling them in an accumulation micro-step. A gradient
 * announced there counts in the next step, even if that step announces none for the parameter.
 * Local; between steps; never block. Errors: ARG, STATE.
 */
TALLY_API int tally_ddp_no_sync_begin(tally_ddp *ddp);
TALLY_API int tally_ddp_no_sync_end(tally_ddp *ddp);

/*
 * Sets all gradients that backward writes to zero, and forgets what was announced under no_sync.
 * Local; between steps; never blocks. Errors: ARG, STATE.
 */
TALLY_API int tally_ddp_zero_grad(tally_ddp *ddp);

/*
 * Scales all means so that their joint 2-norm is at most max_norm. *norm, unless norm is NULL, is
 * set to the norm before. The norm of each parameter is computed in fp64, and they are added in
 * parameter order: the bits are the same on every rank. Local; between steps; never blocks. Errors:
 * ARG; STATE, also if an optimizer is sharded, because no rank then has all gradients; NUMERIC,
 * with nothing scaled, naming the first parameter with an infinity or a NaN, or saying that the
 * norm itself exceeds fp64.
 */
TALLY_API int tally_ddp_clip_grad_norm(tally_ddp *ddp, double max_norm, double *norm);

/*
 * Replace each of n values, or one, by its mean over all ranks, in one exchange: for losses and
 * metrics to be logged. n is the same on all ranks. Collective; between steps, before any rank is
 * in tally_ddp_join; block. Errors: ARG, STATE, NOMEM, exchange errors; MISMATCH if a rank is in
 * tally_ddp_join.
 */
TALLY_API int tally_ddp_mean_scalars(tally_ddp *ddp, double *values, size_t n);
TALLY_API int tally_ddp_mean_scalar(tally_ddp *ddp, double *value);

/*
 * For ranks with different amounts of input: with config.join every rank calls this once, when it
 * has run out of input. The call takes part in the steps of the other ranks, with zeros, until all
 * have run out. Then every rank gets the parameters and buffers of the last rank that had input
 * (the highest, if several). Collective; between steps; blocks. Errors: ARG; STATE without
 * config.join, or with config.join_stops if another rank still has input; those of tally_ddp_wait.
 */
TALLY_API int tally_ddp_join(tally_ddp *ddp);

/*
 * Reduces the gradients of the parameters flagged DELAYED. They are launched after the buckets of
 * the current step (the call begins a step if there is none), and the next tally_ddp_wait waits for
 * them too. A second call in the same step does nothing. Not with config.join. Collective, in the
 * same step on all ranks; does not wait for communication. Errors: ARG, STATE, NOMEM, ABORTED.
 */
TALLY_API int tally_ddp_reduce_delayed(tally_ddp *ddp);

/* ---- hooks --------------------------------------------------------------------------------- */

/*
 * A hook decides how the gradients of a bucket travel, and leaves their mean in the bucket. Most
 * programs name one by its text, in tally_ddp_set_hook or tally_ddp_config.hook, or by TALLY_HOOK
 * in the environment. An object made from a text, or from your own table (tally_extend.h), is
 * attached with tally_ddp_attach_hook.
 */
typedef struct tally_hook tally_hook;

/*
 * Makes one of tally's hooks from its text:
 *
 *     hook     name [":" option {"," option}] ["(" hook ")"]
 *     option   key "=" value
 *
 * for example "bf16", "fp16:saturate=1", "powersgd:rank=2,start=100", "bf16(powersgd:rank=4)".
 * Blanks between the parts are ignored. Options belong to the name before them. Only wrappers take
 * a hook in brackets; without brackets they wrap "allreduce":
 *   - "fp16" and "bf16" set the wire type of the fp32 exchanges of the inner hook. If the inner
 *     hook has its own wire format, or is itself such a wrapper, the inner one wins.
 *   - "hosts" sums within each machine first; then one rank of each machine takes part in the
 *     exchange between machines.
 *   - "postlocal" restricts the exchange of the inner hook to some of the ranks, and is used with
 *     an averager (tally_averager_create).
 * `tally hooks` lists all names and options. A text has at most 200 characters and nests at most 8
 * hooks.
 *
 * The name of the hook is its text in a canonical form, so that equal settings have equal names: no
 * blanks, only those options that differ from their default, in the order of `tally hooks`, and no
 * brackets around "allreduce". The name can be parsed again.
 *
 * Local; any thread; never blocks. Errors: ARG with the column of the mistake and what is accepted
 * there; NOMEM.
 */
TALLY_API int tally_hook_parse(const char *text, tally_hook **hook);

/*
 * Releases the caller's reference to a hook. A ddp that uses the hook keeps it until it gets
 * another hook or is freed. NULL is accepted. Local; any thread; never blocks.
 */
TALLY_API void tally_hook_free(tally_hook *hook);

/* The ten hooks that PyTorch's DDP has names for, with its settings: name, value, text. */
#define TALLY_HOOK_LIST(X)                                              \
    X(ALLREDUCE, 0, "allreduce")                                        \
    X(FP16_COMPRESS, 1, "fp16")                                         \
    X(BF16_COMPRESS, 2, "bf16")                                         \
    X(QUANTIZE_PER_TENSOR, 3, "quantize_per_tensor")                    \
    X(QUANTIZE_PER_CHANNEL, 4, "quantize_per_channel")                  \
    X(POWER_SGD, 5, "powersgd:rank=1,start=1000")                       \
    X(POWER_SGD_RANK2, 6, "powersgd:rank=2,start=1000")                 \
    X(BATCHED_POWER_SGD, 7, "batched_powersgd:rank=1,start=1000")       \
    X(BATCHED_POWER_SGD_RANK2, 8, "batched_powersgd:rank=2,start=1000") \
    X(NOOP, 9, "noop")

typedef enum tally_hook_name {
#define TALLY_HOOK_ENUM(name, value, text) TALLY_HOOK_##name = (value),
    TALLY_HOOK_LIST(TALLY_HOOK_ENUM)
#undef TALLY_HOOK_ENUM
} tally_hook_name;

/*
 * Set the hook of a ddp from the next step on: by its text (tally_hook_parse), by one of the ten
 * names of TALLY_HOOK_LIST, or as an object, to which the ddp takes a reference. A quantizing,
 * PowerSGD, hosts or postlocal hook object can be attached to one ddp at a time; a second attach is
 * STATE.
 *
 * Residuals pass from the old hook to the new one. So does the state, if both hooks are of the same
 * kind: both from tally or both from the program, with the same name apart from options and
 * wrappers. A hook that treats a bucket as one matrix or one tensor gets the original buckets back,
 * if they had been rearranged.
 *
 * Collective; between steps, before any rank is in tally_ddp_join; block. Errors: ARG; STATE;
 * MISMATCH if ranks give different hooks; NOMEM; the error of the hook's attach on any rank. All
 * ranks fail together, and the old hook stays, with its state and all residuals.
 */
TALLY_API int tally_ddp_set_hook(tally_ddp *ddp, const char *text);
TALLY_API int tally_ddp_register_hook(tally_ddp *ddp, tally_hook_name name);
TALLY_API int tally_ddp_attach_hook(tally_ddp *ddp, tally_hook *hook);

/* One of tally's hooks, for lists and help. All texts are static. */
typedef struct tally_hook_info {
    size_t size;      /* set by the caller: sizeof(tally_hook_info) */
    const char *name; /* "fp16" */
    const char *help; /* one line: when to use it */
    int wraps;        /* takes a hook in brackets */
    size_t n_options;
} tally_hook_info;

typedef struct tally_hook_option {
    size_t size;          /* set by the caller: sizeof(tally_hook_option) */
    const char *name;     /* "saturate" */
    const char *accepts;  /* "0|1", or a range such as "64..4096" */
    const char *fallback; /* the default */
    const char *help;     /* one line */
} tally_hook_option;

/*
 * Return the number of tally's hooks; describe hook number index; describe one of its options. Any
 * thread; never block. Errors: ARG.
 */
TALLY_API size_t tally_hook_count(void);
TALLY_API int tally_hook_describe(size_t index, tally_hook_info *info);
TALLY_API int tally_hook_describe_option(size_t index, size_t option, tally_hook_option *described);

/* ---- optimizers ---------------------------------------------------------------------------- */

/*
 * An optimizer updates parameters with their mean gradients. tally's optimizers are chosen by a
 * text, with the grammar of tally_hook_parse but without brackets: "sgd:lr=0.1,momentum=0.9",
 * "adamw:lr=3e-4". They are sgd, adam, adamw, adagrad, rmsprop, adadelta, adamax and rprop, with
 * the formulas, options and defaults of PyTorch. `tally optimizers` lists them; docs/optimizers.md
 * has the formulas. The arithmetic is fp32, with the same bits on every instruction set. Each
 * parameter counts its own steps. Your own optimizer is a table of functions (tally_extend.h).
 *
 * An optimizer belongs to one ddp and updates its parameters, all or some. Parameters that are
 * updated in the same way form a group. A step with an optimizer:
 *
 *     backward();                       calls tally_ddp_grad_ready(ddp, i)
 *     tally_ddp_wait(ddp);              overlap: all parameters are updated when this returns
 *     tally_optimizer_step(optimizer);  without overlap: here
 *
 * With overlap, the lane updates the parameters of a bucket as soon as their mean is there, while
 * backward goes on: backward must not read a parameter after it has announced its gradient. If
 * the update needs all buckets, as for clipping, it happens after the last one, in tally_ddp_wait.
 *
 * With or without overlap, parameters get the same bits as in the plain loop: tally_ddp_wait,
 * tally_ddp_clip_grad_norm, then each parameter alone.
 *
 * A step updates the parameters of all groups, with these exceptions. A parameter for which no rank
 * had a gradient is not updated, and its count of steps stays. Delayed parameters are updated only
 * in steps that reduced them, frozen ones never. A step that only accumulates updates nothing. An
 * ignored parameter is updated only if a group names it, with the local gradient in its grad, at
 * the end of each step; clipping does not touch it.
 *
 * Sharding (config.shard, ZeRO-1). Each rank owns a shard of every bucket. It keeps the state of
 * that shard only, updates the parameters of that shard, and sends them to all ranks. If the hook
 * supports it (allreduce, fp16, bf16, or your own hook with scatter), a rank receives only its
 * shard of the mean. Shards are equal in size and may divide parameters, unless the bucket has a
 * parameter whose table is not elementwise: then shards end where parameters end. Parameters get
 * the same bits as without sharding, with one exception: the joint norm for max_norm is added up
 * shard by shard and may differ in its last bit. A shard is updated with its owner's mean, so the
 * hook must leave the same mean on every rank. postlocal does not and is refused (UNSUPPORTED).
 * With noop each shard is updated with its owner's own gradients, and all ranks get the result.
 * After a step the gradients of all parameters in groups are undefined, unless release_gradients
 * sets them to zero. Buckets are not rearranged.
 *
 * With config.join a rank without input updates its parameters like the others, with the learning
 * rates of a rank that has input; its ignored parameters stay as they are.
 *
 * A step that fails may already have updated some parameters, and different ones on each rank:
 * continue from a checkpoint.
 */
typedef struct tally_optimizer tally_optimizer;

/* Averages parameters, see that section. */
typedef struct tally_averager tally_averager;

/* Your own optimizer; see tally_extend.h. */
typedef struct tally_optimizer_table tally_optimizer_table;

/* Parameters that are updated in the same way. */
typedef struct tally_optimizer_group {
    size_t size;                        /* sizeof(tally_optimizer_group), in every entry */
    const char *text;                   /* one of tally's optimizers; NULL: table */
    const tally_optimizer_table *table; /* your own; copied */
    void *user;                         /* with table; owned by the optimizer once created */
    double lr;                          /* with table: the first learning rate, 0..1e38 */
    /* Numbers of the parameters; frozen ones are left out. NULL: all with a gradient that no other
     * group names. */
    const int *params;
    size_t n_params;
} tally_optimizer_group;

typedef struct tally_optimizer_config {
    size_t size;                         /* set by tally_optimizer_config_init */
    const tally_optimizer_group *groups; /* NULL: one group of all, by the text of create */
    size_t n_groups;
    int overlap; /* 1: tally_ddp_wait and the lanes update; 0: tally_optimizer_step does */
    int shard;   /* 1: each rank keeps the state of its shard, see above; needs overlap */
    int release_gradients; /* 1: set a gradient to zero after use, while it is still in the cache */
    /* > 0: clip the joint 2-norm of all means to this before the update, as
     * tally_ddp_clip_grad_norm does. */
    double max_norm;
    /* > 0: backward starts from the loss times a scale, and this is its first value; a power of two
     * gives exact results. See tally_optimizer_loss_scale. */
    double loss_scale;
    double loss_scale_growth;  /* factor after loss_scale_interval good steps in a row; 0: 2 */
    double loss_scale_backoff; /* factor after a skipped step; 0: 0.5 */
    int loss_scale_interval;   /* good steps in a row before the scale grows; 0: 2000 */
    tally_averager *averager;  /* called after each update, saved and loaded with the optimizer;
                                  free it after the optimizer */
} tally_optimizer_config;

/* Sets all fields to "not set"; size is sizeof(tally_optimizer_config). Local; never blocks. */
TALLY_API void tally_optimizer_config_init(tally_optimizer_config *config, size_t size);

/*
 * Creates an optimizer for a ddp that has none, from a text or from config->groups. config may be
 * NULL. All memory for state is reserved now. After a failure the caller still owns the user
 * pointers of the groups. Collective; between steps; blocks. Errors, on all ranks:
 *   - ARG for the text, for a group or a table that lacks something, and for a parameter in two
 *     groups; the text names it;
 *   - UNSUPPORTED for a parameter in a group that is not fp32, without overlap under config.join,
 *     and for config.shard with an averager or the hook "postlocal";
 *   - STATE if the ddp has an optimizer; MISMATCH if ranks give different groups or configs; NOMEM;
 *     exchange errors.
 */
TALLY_API int tally_optimizer_create(tally_ddp *ddp, const char *text,
                                     const tally_optimizer_config *config,
                                     tally_optimizer **optimizer);

/*
 * Frees an optimizer. Its ddp continues without one; the ddp may also have been freed before. NULL
 * is accepted. Local, but all ranks call it between the same two steps; never blocks. Errors: STATE
 * in the middle of a step.
 */
TALLY_API int tally_optimizer_free(tally_optimizer *optimizer);

/*
 * Updates the parameters with the means that tally_ddp_wait has left. Does nothing between
 * tally_ddp_no_sync_begin and tally_ddp_no_sync_end. One thread; between steps; local, never
 * blocks. Errors: ARG; STATE with overlap, or without a new mean; NUMERIC from clipping, with
 * nothing updated; the error of your own table's step_param on this rank. With config.averager
 * the call is collective and blocks, a failure is that of all ranks, and the errors of averaging
 * are added; a step that fails with NUMERIC still advances the averager's and the hook's step
 * counts.
 */
TALLY_API int tally_optimizer_step(tally_optimizer *optimizer);

/*
 * Set the learning rate of a group for the next steps, or of all groups (-1); return the learning
 * rate of a group, or -1 if there is no such group. Groups are numbered from 0 as in the config.
 * Local, but call it on all ranks alike; between steps; never block. Errors: ARG, also for a rate
 * outside 0..1e38; STATE.
 */
TALLY_API int tally_optimizer_set_lr(tally_optimizer *optimizer, int group, double lr);
TALLY_API double tally_optimizer_lr(const tally_optimizer *optimizer, int group);

/*
 * Dynamic loss scaling (config.loss_scale). Returns the scale: multiply the loss, or the gradient
 * that backward starts with, by it. It is the same on all ranks; 1 without loss scaling. It changes
 * only in tally_ddp_wait, so all micro-steps of an accumulation have the same scale. The lanes
 * divide by it: means are of the unscaled loss.
 *
 * If any rank has an infinity or a NaN in a gradient, or a mean overflows, all ranks skip the step,
 * and tally_ddp_wait returns TALLY_OK. Parameters, state, counts of steps and residuals then keep
 * their bits, there are no means, and the scale is multiplied by loss_scale_backoff. With loss
 * scaling, updates wait for the last bucket. Local; between steps; never blocks.
 */
TALLY_API double tally_optimizer_loss_scale(const tally_optimizer *optimizer);

/* One of tally's optimizers, for lists and help. All texts are static. */
typedef struct tally_optimizer_info {
    size_t size;      /* set by the caller: sizeof(tally_optimizer_info) */
    const char *name; /* "adamw" */
    const char *help; /* one line: when to use it */
    size_t n_options;
} tally_optimizer_info;

typedef tally_hook_option tally_optimizer_option;

/*
 * Return the number of tally's optimizers; describe optimizer number index; describe one of its
 * options. Any thread; never block. Errors: ARG.
 */
TALLY_API size_t tally_optimizer_count(void);
TALLY_API int tally_optimizer_describe(size_t index, tally_optimizer_info *info);
TALLY_API int tally_optimizer_describe_option(size_t index, size_t option,
                                              tally_optimizer_option *described);

/* ---- mixed precision ----------------------------------------------------------------------- */

/*
 * With config.param_dtype the parameters given to tally_ddp_create are masters: they are TALLY_F32,
 * and they are what is updated and saved. Forward reads a low copy of each, in param_dtype;
 * backward writes gradients in param_dtype; the mean is fp32:
 *
 *     forward();                     reads tally_ddp_low(ddp, i)
 *     backward();                    writes tally_ddp_grad(ddp, i), calls tally_ddp_grad_ready
 *     tally_ddp_wait(ddp);           tally_ddp_mean(ddp, i) is now the mean, fp32
 *     update();                      updates the masters with the means
 *     tally_ddp_refresh_low(ddp);    not needed if an optimizer of tally made the update
 *
 * Gradients travel in config.reduce_dtype. If that is fp32, the lane casts them into the bucket,
 * where the mean appears: hooks with error feedback work as usual, and sums lose nothing. If it is
 * param_dtype and the program gave no gradient arrays, gradients live in the buckets and are never
 * copied; the lane casts the mean to separate fp32 memory. Hooks that quantize accept fp32 only.
 *
 * A gradient array given in tally_param.grad has param_dtype too, also while micro-steps accumulate
 * in it. After tally_ddp_wait its contents are undefined: set it to zero (tally_ddp_zero_grad) or
 * overwrite it. Bucket caps count bytes of reduce_dtype.
 *
 * A parameter flagged IGNORED may have any dtype and has no low copy; one flagged FROZEN has one.
 * With config.buffer_dtype, buffers of dtype TALLY_F32 have low copies too, cast once at creation.
 * Forward uses the low copy; it is what is broadcast and what config.buffer_hook gets. After each
 * step tally_buffer.data is the low copy cast back to fp32.
 */

/*
 * Returns the copy of parameter i that forward reads: the master rounded to config.param_dtype,
 * with its elements in the same order; NULL if there is none. Any thread; never blocks.
 */
TALLY_API void *tally_ddp_low(const tally_ddp *ddp, int i);

/*
 * Updates the low copies after the program has changed the masters. Local; between steps; never
 * blocks. Errors: ARG, STATE.
 */
TALLY_API int tally_ddp_refresh_low(tally_ddp *ddp);

/* Returns the low copy of buffer i; NULL if there is none. Any thread; never blocks. */
TALLY_API void *tally_ddp_low_buffer(const tally_ddp *ddp, int i);

/* ---- averaging parameters ------------------------------------------------------------------ */

/*
 * Post-local SGD. During a warm-up all ranks exchange gradients in every step. After that only
 * small sets of ranks do (the hook "postlocal"), or none, and an averager makes the parameters
 * equal every few steps. Far fewer bytes travel; docs/post-local-sgd.md has the formula and the
 * costs. A step:
 *
 *     tally_ddp_wait(ddp);
 *     update();
 *     tally_averager_step(averager, NULL);
 *
 * Levels say which ranks average how often. Each level has a period and sets of consecutive ranks;
 * a set consists of whole sets of the level before, and the last level has one set of all ranks. If
 * the periods of several levels end in the same step, only the last of these levels averages. Steps
 * are counted from 0, periods from the end of the warm-up: the first averaging comes after step
 * number warmup, then one after each period. At step `warmup` the periods of all levels end
 * together, so the first averaging is of all ranks.
 *
 * Averages may travel by any hook. A hook that loses precision is given the change of the
 * parameters since all ranks last had equal ones, instead of the parameters. If it has error
 * feedback, what it leaves out is added to the next averaging. The first averaging sends the
 * parameters as they are.
 *
 * An outer optimizer, as in DiLoCo, takes the mean change of all ranks as a gradient and updates
 * the parameters that all ranks last had in common: "sgd:lr=0.7,momentum=0.9,nesterov=1". It runs
 * in every averaging of all ranks except the first, which only makes the parameters equal.
 *
 * After an averaging, the ranks that took part have the same bits. With mixed precision, masters
 * are averaged and low copies are updated.
 */

typedef struct tally_averager_level {
    int period; /* in steps; at least 1, and more than that of the level before */
    int group;  /* number of consecutive ranks that average together; 0: all */
} tally_averager_level;

typedef struct tally_averager_config {
    size_t size;                        /* set by tally_averager_config_init */
    const tally_averager_level *levels; /* the last one has all ranks; copied */
    size_t n_levels;                    /* at least 1 */
    int warmup;        /* steps without averaging; equal to start of the hook "postlocal" */
    const int *params; /* numbers of the parameters to average; NULL: all with a gradient */
    size_t n_params;
    const char *hook;  /* the text of the hook by which averages travel; NULL: "allreduce" */
    const char *outer; /* the text of an outer optimizer; NULL: none */
} tally_averager_config;

/* Sets all fields to "not set"; size is sizeof(tally_averager_config). Local; never blocks. */
TALLY_API void tally_averager_config_init(tally_averager_config *config, size_t size);

/*
 * Creates an averager for the parameters of a ddp that has none. It allocates a copy of each
 * parameter, and with a hook that loses precision or an outer optimizer a second one, the anchor.
 * Free it before the ddp. Collective; between steps; blocks. Errors, on all ranks:
 *   - ARG for a level, the hook or the optimizer, naming what is wrong, and if the ddp has a hook
 *     "postlocal" whose start is not warmup (tally_ddp_set_hook later refuses such a hook too);
 *   - UNSUPPORTED with config.join, with a sharded optimizer, and with outer for a parameter that
 *     is not fp32;
 *   - STATE if the ddp has an averager; MISMATCH if ranks give different configs; NOMEM; exchange
 *     errors.
 */
TALLY_API int tally_averager_create(tally_ddp *ddp, const tally_averager_config *config,
                                    tally_averager **averager);

/*
 * Frees an averager on this rank. NULL is accepted. Local; between steps; does not wait for other
 * ranks. Errors: STATE on a lane, and while an optimizer uses the averager.
 */
TALLY_API int tally_averager_free(tally_averager *averager);

/*
 * Call it after each update: counts a step, and averages if an averaging is due. *n_averaged,
 * unless n_averaged is NULL, is set to the number of ranks that averaged together; 0: none was due.
 * Collective; between steps; blocks if an averaging is due. Errors: ARG; STATE, also if an
 * optimizer calls the averager; the hook's error and exchange errors. After a failure the step does
 * not count, and parameters are as before.
 */
TALLY_API int tally_averager_step(tally_averager *averager, int *n_averaged);

/*
 * Averages the parameters over all ranks now, whatever the periods: at the end of training, before
 * a checkpoint or a validation. Counts no step. An outer optimizer takes part as in any averaging
 * of all ranks. Also for an averager that an optimizer calls. Collective; between steps; blocks.
 * Errors: as tally_averager_step.
 */
TALLY_API int tally_averager_average(tally_averager *averager);

/*
 * Returns the number of steps counted so far, including those of the run that was loaded; 0 for
 * NULL. Local; not during a step; never blocks.
 */
TALLY_API unsigned long long tally_averager_steps(const tally_averager *averager);

/* ---- checkpoints --------------------------------------------------------------------------- */

/*
 * A checkpoint is everything that training needs to continue: parameters (the masters in mixed
 * precision), buffers, the state of the hook with its residuals, of the optimizer and of the
 * averager, the loss scale, the number of steps, and named blobs of the application.
 *
 *     tally_checkpoint_load(ddp, "run1", &config, &info);       the newest one, if there is any
 *     for (step = info.step; step < n_steps; step++) {
 *         ...
 *         if ((step + 1) % 1000 == 0) {
 *             tally_checkpoint_save(ddp, "run1", &config);
 *         }
 *     }
 *
 * Each checkpoint is a folder in the directory, "save-000007-step-7000". It appears under this name
 * when it is complete on the disk, and not before: a process that is killed, a power cut, or a full
 * disk leaves the previous checkpoint as it was. Parameters are safetensors files, which other
 * programs can read; docs/checkpoints.md describes the format and how to read it.
 *
 * All ranks must see the directory under the same name; a rank that does not is named. Each job
 * needs its own directory, and each ddp of a program too.
 */

/* A named piece of the application's state, such as a data position or the state of a generator of
 * random numbers. The names are the same on all ranks; the contents may differ. */
typedef struct tally_checkpoint_blob {
    size_t size;         /* sizeof(tally_checkpoint_blob), in every entry */
    const char *name;    /* unique */
    void *data;          /* save reads it, load writes it */
    size_t bytes;        /* save: its size; load: the room in data */
    size_t loaded_bytes; /* load sets it, to the size that was saved */
} tally_checkpoint_blob;

typedef struct tally_checkpoint_config {
    size_t size;                  /* set by tally_checkpoint_config_init */
    tally_checkpoint_blob *blobs; /* to save or to load */
    size_t n_blobs;
    const char *name; /* load: the folder to load; NULL: the newest that is complete */
    int keep;         /* save: delete all checkpoints except the newest keep; 0: delete none */
    int async;        /* save, 1: copy everything now, and write it while training continues */
    int params_only;  /* load, 1: only parameters, buffers and blobs */
    int reserved;     /* not used */
} tally_checkpoint_config;

/* Sets all fields to "not set"; size is sizeof(tally_checkpoint_config). Local; never blocks. */
TALLY_API void tally_checkpoint_config_init(tally_checkpoint_config *config, size_t size);

/* A checkpoint that was loaded or inspected. */
typedef struct tally_checkpoint_info {
    size_t size;             /* set by the caller: sizeof(tally_checkpoint_info) */
    unsigned long long step; /* steps of the ddp when it was saved; 0 if there is no checkpoint */
    int world;               /* number of ranks that saved it; 0 if there is no checkpoint */
    int n_skipped;           /* newer folders that are not complete */
    size_t n_params;
    size_t bytes;      /* of all files */
    char name[64];     /* of the folder; "" if there is no checkpoint */
    char hook[256];    /* the hook that it was saved with */
    char skipped[512]; /* the names of those folders and the reasons, in one line; cut if longer */
} tally_checkpoint_info;

/*
 * Saves a checkpoint in directory, which is created if it does not exist; its parent must exist.
 * config may be NULL. Ranks write in parallel. A parameter or buffer that has the same bits on all
 * ranks is stored once; otherwise (an ignored parameter, or between two averagings) every rank
 * stores its own.
 *
 * With config.async the call copies everything into memory of the ddp, and returns. A separate
 * thread of tally writes the copy. The next save, load or tally_checkpoint_wait first waits for it
 * and returns its error, if it failed. The first such call allocates the memory, as much as
 * parameters and state take; later ones reuse it until tally_ddp_free, which waits for the thread.
 * In a group with lanes = 0 the call writes before it returns.
 *
 * Old checkpoints are deleted (config.keep) after the new one is complete, and so are unfinished
 * ones of former runs; if that fails, a warning is logged and the next save tries again.
 *
 * Collective; between steps, before any rank is in tally_ddp_join; blocks. Errors, on all ranks,
 * with the older checkpoints unchanged: ARG, also if directory is itself a checkpoint; STATE, also
 * if another process or another ddp of this one saves into the directory, or if gradients were
 * accumulated since tally_ddp_no_sync_begin, which a checkpoint does not have; SYSTEM naming the
 * file and the rank, if it can; NOMEM; the error of the hook's save; the error of the asynchronous
 * save before; exchange errors.
 */
TALLY_API int tally_checkpoint_save(tally_ddp *ddp, const char *directory,
                                    const tally_checkpoint_config *config);

/*
 * Loads the newest complete checkpoint of directory, or the one that config names, into a ddp with
 * the same parameters and into its optimizer and averager. config may be NULL. Folders that are not
 * complete are skipped; a warning and *info name them. If the directory does not exist or has no
 * checkpoint, the call succeeds, nothing changes, and info->world is 0. info may be NULL.
 *
 * With the same number of ranks, the same hook and the same config, training continues with the
 * same bits. Another number of ranks, another hook, other bucket caps, sharding or not: see
 * tally_ddp_load and tally_optimizer_load. If a parameter or buffer differed between ranks, each
 * rank gets its own if there are as many ranks as then and ranks may still differ (an ignored
 * parameter, an averager, a hook that leaves ranks apart); otherwise all ranks get rank 0's. Rank r
 * gets the blobs of rank r modulo the number of ranks that saved.
 *
 * Every byte that is read is verified before anything changes. The call needs memory for the
 * parameters and the state of all ranks that saved. Collective; between steps; blocks. Errors, on
 * all ranks, with nothing changed on any: ARG for a damaged file, a folder that is not complete, a
 * directory that is itself a checkpoint, a blob that is missing or does not fit, and another model,
 * naming the first parameter that differs; those of tally_ddp_load, tally_optimizer_load and
 * tally_averager_load; the error of an asynchronous save; SYSTEM; NOMEM; exchange errors.
 */
TALLY_API int tally_checkpoint_load(tally_ddp *ddp, const char *directory,
                                    const tally_checkpoint_config *config,
                                    tally_checkpoint_info *info);

/*
 * Waits for an asynchronous save and returns its status; TALLY_OK if there is none. Call it before
 * the program ends. Local; blocks. Errors: ARG; those of tally_checkpoint_save.
 */
TALLY_API int tally_checkpoint_wait(tally_ddp *ddp);

/* A part of a checkpoint: a parameter, a buffer, or a state. */
typedef struct tally_checkpoint_part {
    size_t size;         /* sizeof(tally_checkpoint_part) */
    const char *kind;    /* "parameter", "buffer", "ddp", "optimizer", "averager", "blob" or
                            "header", which is the head of a safetensors file */
    const char *name;    /* of the parameter, buffer or blob; else "" */
    const char *file;    /* its file, in the checkpoint's folder */
    int rank;            /* the rank that wrote it */
    int is_own;          /* 1: every rank has its own */
    int dtype;           /* of a parameter; else -1 */
    int n_dims;          /* of a parameter */
    const size_t *shape; /* of a parameter */
    size_t bytes;
    double norm;        /* of a parameter that is whole: its 2-norm */
    const char *damage; /* NULL: its checksum is right; else what is wrong */
} tally_checkpoint_part;

/* Receives a part of a checkpoint; the struct is valid during the call. */
typedef void (*tally_checkpoint_part_fn)(void *user, const tally_checkpoint_part *part);

/*
 * Reads a checkpoint without a ddp: the newest complete one of directory, the one called name, or,
 * if directory is itself the folder of a checkpoint, that one. First describes it in *info, which
 * is written even if a part turns out to be damaged; then reads every part, verifies its checksum,
 * and calls fn(user, ...) for it. info and fn may be NULL. Local; any thread; never waits for other
 * ranks. Errors: ARG if there is no checkpoint, or if a part is damaged or missing; the text names
 * the first one; SYSTEM; NOMEM.
 */
TALLY_API int tally_checkpoint_inspect(const char *directory, const char *name,
                                       tally_checkpoint_info *info, tally_checkpoint_part_fn fn,
                                       void *user);

/* ---- save and load ------------------------------------------------------------------------- */

/*
 * The parts of a checkpoint in memory, for programs that keep their own files.
 *
 * State is saved as one blob per rank, and loaded from the blobs of all ranks. A checkpoint has the
 * parameters, which the program saves itself, and the blobs of the ddp, the optimizer and the
 * averager from every rank.
 *
 * To save, call the function with a NULL blob to learn the size, allocate, and call it again: blob
 * has room for *bytes, and *bytes is set to the size that was needed. Saving is local, between
 * steps, and never blocks. Loading is collective, between steps, and blocks: blobs[r] of bytes[r]
 * bytes is that of rank r, n of them, and all ranks pass the same blobs. A load that fails, fails
 * on all ranks, and nothing has changed on any.
 */

/*
 * Saves the state of the hook and this rank's residuals. Errors: ARG if there is too little room;
 * STATE; the error of the hook's save.
 */
TALLY_API int tally_ddp_save(tally_ddp *ddp, void *blob, size_t *bytes);

/*
 * Loads what tally_ddp_save wrote, for a ddp with the same parameters.
 *
 * With the same hook and the same number of ranks, training continues with the same bits, even if
 * the buckets differ. A hook that treats a bucket as one matrix or one tensor needs the same bucket
 * caps for that. With your own hook and gradient copies, load also restores the saved bucket order,
 * unless this ddp has rearranged its buckets already.
 *
 * Another hook gets the residuals as if it replaced the one that saved, and the state if it is of
 * the same kind (tally_ddp_set_hook). With another number of ranks, every rank takes the mean of
 * the residuals: nothing is lost, but the bits differ.
 *
 * Errors: ARG naming the blob that is damaged, incomplete or of another kind; MISMATCH if ranks
 * pass different blobs; STATE; NOMEM; the error of the hook's load; exchange errors.
 */
TALLY_API int tally_ddp_load(tally_ddp *ddp, const void *const *blobs, const size_t *bytes,
                             size_t n);

/* Saves this rank's optimizer state. Errors: ARG if there is too little room, STATE. */
TALLY_API int tally_optimizer_save(tally_optimizer *optimizer, void *blob, size_t *bytes);

/*
 * Saves the optimizer state of all ranks as one blob, on rank root; the other ranks' blob and bytes
 * are not used. For an ignored parameter, and where an averager lets ranks differ, the blob has
 * root's state. Collective; between steps; blocks. Errors, on all ranks: as tally_optimizer_save;
 * ARG for root; UNSUPPORTED if the averager's hook loses precision; exchange errors.
 */
TALLY_API int tally_optimizer_consolidate(tally_optimizer *optimizer, int root, void *blob,
                                          size_t *bytes);

/*
 * Loads what tally_optimizer_save wrote on all ranks, or one consolidated blob. The parameters and
 * the groups must be the same as when saving, each group with the same optimizer. Learning rates
 * are loaded; the other options stay as they are now. config.averager must have been set when
 * saving if it is set now. The number of ranks may differ. With the same parameters and gradients,
 * training continues with the same bits. Errors: ARG naming the blob that is damaged, incomplete or
 * of another kind; MISMATCH if ranks pass different blobs; STATE; NOMEM; exchange errors.
 */
TALLY_API int tally_optimizer_load(tally_optimizer *optimizer, const void *const *blobs,
                                   const size_t *bytes, size_t n);

/*
 * Save and load an averager: its steps, the anchor, the state of the outer optimizer, and the
 * residuals of its hook. The parameters are not included; between averagings they differ from rank
 * to rank. Load into an averager with the same parameters, hook and outer optimizer; levels,
 * warm-up and the number of ranks may differ. Errors: as tally_ddp_save and tally_ddp_load.
 */
TALLY_API int tally_averager_save(tally_averager *averager, void *blob, size_t *bytes);
TALLY_API int tally_averager_load(tally_averager *averager, const void *const *blobs,
                                  const size_t *bytes, size_t n);

/* ---- statistics ---------------------------------------------------------------------------- */

/*
 * Figures of a ddp. Times are in seconds: of the last step that succeeded and, with mean_, averages
 * over all such steps. Steps that this rank made inside tally_ddp_join, for other ranks, count only
 * in step.
 */
typedef struct tally_ddp_stats {
    size_t size;             /* set by the caller: sizeof(tally_ddp_stats) */
    unsigned long long step; /* synchronised steps so far */
    int rank;
    int world;
    const char *backend;       /* of the group; static text */
    size_t n_params;           /* parameters with a gradient */
    unsigned dtypes;           /* of their gradients: the sum of 1 << TALLY_F32 and so on */
    size_t gradient_bytes;     /* of all gradients */
    size_t buffer_bytes;       /* of all buffers */
    size_t first_bucket_bytes; /* the cap in effect for the first bucket, */
    size_t bucket_cap_bytes;   /* and for the last */
    size_t n_buckets;
    size_t n_delayed_buckets; /* buckets of delayed parameters, which follow the others */
    size_t n_reduced;         /* buckets that were reduced in the last step */
    size_t unused_bytes;      /* gradients that no rank had in the last step */
    int views;                /* gradients live in the buckets */
    int find_unused;          /* as in the config, and the next two */
    int static_graph;
    int join;
    int rebuilt;      /* buckets are arranged by ready order */
    const char *hook; /* its name; valid until the hook is replaced */
    /* Payload this rank sent for the buckets of the last step. With allreduce:engine=native it is
     * an estimate, since MPI does not tell: the best algorithms send 2 (W - 1) / W of the bytes. */
    unsigned long long wire_bytes;
    unsigned long long total_wire_bytes; /* in all steps */
    /* Other payload that this rank sent since the previous step: which rank has which gradient
     * (nothing where all ranks have all), buffers, delayed gradients, tally_ddp_mean_scalar,
     * agreement on hooks, steps inside tally_ddp_join. Creation does not count. */
    unsigned long long other_wire_bytes;
    unsigned long long total_other_wire_bytes; /* up to now */
    /* Values that fp16:saturate=1 limited to the largest fp16: in the last step, and in all. */
    unsigned long long saturated;
    unsigned long long total_saturated;
    /* Elements given to PowerSGD, including parameters it does not compress, and elements that
     * travelled for them: in the last step, and in all. Their ratio is the compression rate. */
    unsigned long long compressed_from;
    unsigned long long compressed_to;
    unsigned long long total_compressed_from;
    unsigned long long total_compressed_to;
    double forward_s;  /* end of the previous step to the first announcement; 0 in the first step */
    double backward_s; /* first announcement to the call of tally_ddp_wait */
    double comm_s;     /* time in which lanes reduced buckets, added up */
    double exposed_s;  /* time that tally_ddp_wait waited, not counting updates of an optimizer */
    double overlap;    /* the part of comm_s that tally_ddp_wait did not wait for, 0..1 */
    double mean_forward_s;
    double mean_backward_s;
    double mean_comm_s;
    double mean_exposed_s;
    int error; /* status of the last call on this ddp that failed on this rank; 0: none did */
    unsigned long long error_step; /* number of steps before that failure */
    char error_text[256];          /* its tally_last_error(), cut if longer */
    /* Payload that this rank sent to ranks on its own machine, through memory, with hook "hosts":
     * in the last step, and in all. Payload between machines is in wire_bytes. */
    unsigned long long host_bytes;
    unsigned long long total_host_bytes;
} tally_ddp_stats;

/* Figures of one bucket in the last step. Times count from the first announcement of the step. */
typedef struct tally_bucket_stats {
    size_t size;  /* set by the caller: sizeof(tally_bucket_stats) */
    int measured; /* 0: no step yet with the present buckets, so no times and no wire_bytes */
    size_t n_params;
    size_t bytes;
    double ready_s;  /* when its last gradient was announced */
    double launch_s; /* when it was given to its lane */
    double start_s;  /* when the lane began to reduce it */
    double done_s;   /* when the lane was done */
    /* As in tally_ddp_stats. */
    unsigned long long wire_bytes;
    unsigned long long host_bytes;
} tally_bucket_stats;

/*
 * Write the figures of a ddp, or of one of its buckets, to *stats. Any thread; call between steps
 * for figures of the same step; never wait for other ranks. Errors: ARG.
 */
TALLY_API int tally_ddp_get_stats(tally_ddp *ddp, tally_ddp_stats *stats);
TALLY_API int tally_ddp_get_bucket_stats(tally_ddp *ddp, size_t bucket, tally_bucket_stats *stats);

/* The reason why the other ranks wait for a rank. */
typedef enum tally_late_cause {
    TALLY_LATE_NOT = 0,      /* they do not */
    TALLY_LATE_COMPUTES = 1, /* it announces its gradients later than the others */
    TALLY_LATE_LANE = 2,     /* announced in time, but its lane comes late: it lacks CPU time */
    TALLY_LATE_LINK = 3      /* sent in time, but its messages come late: a slow link */
} tally_late_cause;

/*
 * Lateness of one rank. The others wait for a rank if it is the last to come to an exchange; the
 * time counts from the arrival of the last other rank, and only while all other ranks are in
 * tally_ddp_wait: before, it costs them nothing. Times are in seconds; over all steps unless stated
 * otherwise.
 */
typedef struct tally_rank_stats {
    size_t size;                 /* set by the caller: sizeof(tally_rank_stats) */
    unsigned long long n_rounds; /* exchanges of data or agreement, for buckets */
    unsigned long long n_last;   /* those to which this rank came last, by more than 20 us */
    double waited_s;             /* time that the others waited for it: the sum of the next three */
    double computes_s;           /* because of TALLY_LATE_COMPUTES, */
    double lane_s;               /* TALLY_LATE_LANE, */
    double link_s;               /* TALLY_LATE_LINK */
    double step_waited_s;        /* in the last step */
    /* Number of the last steps, in a row, in which the others waited for it longer than for any
     * other rank, by more than a tenth of the step; and the main cause in these steps. Of any ten,
     * one may be an exception. At ten steps rank 0 logs a line at level info that names the rank,
     * at most once in 1000 steps. */
    unsigned long long n_late_steps;
    tally_late_cause cause;
    /* Of a rank on another machine: its monotonic clock minus that of this rank, and the bound of
     * the error, from the fastest messages in both directions. clock_known is 0 if there were not
     * enough of them, and 1 for ranks of this machine. */
    int clock_known;
    double clock_offset_s;
    double clock_uncertainty_s;
} tally_rank_stats;

/*
 * Writes the lateness of a rank of the ddp's group, as this rank has seen it, to *stats. No message
 * is sent for it. Any thread; call between steps; never waits for other ranks. Errors: ARG.
 */
TALLY_API int tally_ddp_get_rank_stats(tally_ddp *ddp, int rank, tally_rank_stats *stats);

/* The decision of the hook "auto" for one bucket. Times are in seconds. */
typedef struct tally_bucket_choice {
    size_t size;           /* set by the caller: sizeof(tally_bucket_choice) */
    int settled;           /* 0: auto is still measuring, and may change the choice */
    const char *hook;      /* by which the bucket travels; valid until the ddp has another hook */
    const char *runner_up; /* the next best of auto's candidates; NULL: none */
    double predicted_s;    /* the bucket's time as computed from measurements; 0: not computed */
    double measured_s;     /* and in the last step; 0: no step yet */
    double runner_up_s;    /* the bucket's time with the runner-up, as computed; 0: not computed */
    double error;          /* the part of a sum over 32 steps that this hook leaves out */
    char reason[200];      /* one sentence */
    /* Of the whole step: the bucket_cap_bytes that auto would choose, as computed; 0: the present
     * buckets are as good, or nothing was computed. And the part of a step that it would gain.
     * Where buckets may move, auto tries it, and reason has the result. */
    size_t cap_bytes;
    double cap_gain;
} tally_bucket_choice;

/*
 * Explains by which hook a bucket travels, and why. With a hook other than "auto", hook is that
 * hook for all buckets. Between steps; never waits for other ranks. Errors: ARG for the bucket;
 * STATE in the middle of a step.
 */
TALLY_API int tally_ddp_explain(tally_ddp *ddp, size_t bucket, tally_bucket_choice *choice);

/*
 * Writes the numbers of the parameters in a bucket, in their order there, up to n of them. Returns
 * how many the bucket has; 0 for NULL or if there is no such bucket. Delayed buckets follow the
 * others. Any thread; never waits for other ranks.
 */
TALLY_API size_t tally_ddp_bucket_params(tally_ddp *ddp, size_t bucket, int *params, size_t n);

/*
 * Writes the numbers of the parameters in the order in which their gradients became ready in the
 * last step, up to n of them. Returns how many there are. Any thread; never waits for other ranks.
 */
TALLY_API size_t tally_ddp_ready_order(tally_ddp *ddp, int *order, size_t n);

/*
 * Figures of an optimizer. Times are in seconds: of the last update and, with mean_, averages over
 * all updates, not counting steps inside tally_ddp_join.
 */
typedef struct tally_optimizer_stats {
    size_t size;                /* set by the caller: sizeof(tally_optimizer_stats) */
    unsigned long long step;    /* updates so far */
    unsigned long long skipped; /* steps that all ranks skipped: a gradient was not finite */
    double loss_scale;          /* of the next step; 1 without loss scaling */
    double norm;                /* before clipping, in the last update; 0 without max_norm */
    size_t state_bytes;         /* of state on this rank */
    double update_s;            /* time spent in updates, on lanes or in tally_optimizer_step */
    double exposed_update_s;    /* the part inside tally_ddp_wait or tally_optimizer_step */
    double mean_update_s;
    double mean_exposed_update_s;
} tally_optimizer_stats;

/*
 * Writes the figures of an optimizer to *stats. Any thread; call between steps for figures of the
 * same step; never waits for other ranks. Errors: ARG; STATE if the ddp was freed.
 */
TALLY_API int tally_optimizer_get_stats(tally_optimizer *optimizer, tally_optimizer_stats *stats);

/* Figures of an averager. Times are in seconds. */
typedef struct tally_averager_stats {
    size_t size;             /* set by the caller: sizeof(tally_averager_stats) */
    unsigned long long step; /* as tally_averager_steps */
    unsigned long long n_averagings;
    /* Payload this rank sent for parameters in the last averaging; an estimate with
     * allreduce:engine=native, as in tally_ddp_stats. */
    unsigned long long wire_bytes;
    unsigned long long total_wire_bytes;       /* in all averagings */
    unsigned long long total_other_wire_bytes; /* other payload, for agreement among ranks */
    double average_s;                          /* time that the last one waited for the exchange */
    double mean_average_s;
    /* Payload that stayed within a machine, with hook "hosts", not part of wire_bytes: in the last
     * averaging, and in all. */
    unsigned long long host_bytes;
    unsigned long long total_host_bytes;
} tally_averager_stats;

/*
 * Writes the figures of an averager to *stats. Between steps; never waits for other ranks. Errors:
 * ARG.
 */
TALLY_API int tally_averager_get_stats(tally_averager *averager, tally_averager_stats *stats);

/*
 * Traces. Every rank remembers its last events: gradients that became ready, buckets on their
 * lanes, waiting for other ranks, updates, waits and steps. TALLY_TRACE=FILE in the environment
 * writes them to FILE, one file per rank: "%r" in FILE becomes the rank's number; without it,
 * ".RANK" is appended. The file never exceeds TALLY_TRACE_BYTES: the oldest steps go first. Writing
 * happens in tally_ddp_wait; if the file cannot be written, one log line says so, and training goes
 * on. A file of an earlier run is replaced; one that is being written, or that this process wrote,
 * stays, and the new one is called FILE.RANK.2 and so on.
 *
 * tally_trace_start begins such a file for this rank, tally_trace_write writes everything recorded
 * so far, and tally_trace_stop ends it; closing the group ends it, too. bytes 0 is
 * TALLY_TRACE_BYTES. Local; any thread; never wait for other ranks. Errors: ARG for NULL, an empty
 * name or too few bytes; STATE if the rank already writes a trace, or writes none; SYSTEM naming
 * the file; NOMEM.
 */
TALLY_API int tally_trace_start(tally_group *group, const char *file, unsigned long long bytes);
TALLY_API int tally_trace_write(tally_group *group);
TALLY_API int tally_trace_stop(tally_group *group);

/* ---- check mode ---------------------------------------------------------------------------- */

/*
 * Check mode finds mistakes that otherwise give wrong results silently. TALLY_CHECK=1 in the
 * environment or config.check switches it on:
 *   - If a gradient is written to between its announcement and tally_ddp_wait, tally_ddp_wait fails
 *     with STATE on all ranks and names the gradient.
 *   - Every N steps the parameters of all ranks are compared, as by tally_ddp_check, and
 *     tally_ddp_wait fails with MISMATCH if they differ.
 *   - After three steps a warning names gradients that were always zero and parameters that never
 *     changed. It goes to stderr, unless there is a log callback or TALLY_LOG is set.
 * The means have the same bits as without check mode. It is slower: buckets are launched inside
 * tally_ddp_wait only, so communication does not overlap backward, and every gradient is read two
 * more times.
 */

/*
 * Compares all parameters except ignored ones between ranks, bit by bit; a checksum of each
 * travels. For tests, for programs that update parameters themselves, and when a run behaves
 * strangely; docs/when-ranks-disagree.md says what to look for. It reads every parameter once.
 * Collective; between steps, before any rank is in tally_ddp_join; blocks. Errors: MISMATCH on all
 * ranks, naming the first parameter that differs, the ranks, and the number of steps; the group
 * stays usable. STATE where an averager lets ranks differ until the next averaging; ARG; exchange
 * errors.
 */
TALLY_API int tally_ddp_check(tally_ddp *ddp);

/* ---- logging ------------------------------------------------------------------------------- */

typedef enum tally_log_level {
    TALLY_LOG_NONE = 0,
    TALLY_LOG_ERROR = 1,
    TALLY_LOG_WARN = 2,
    TALLY_LOG_INFO = 3,
    TALLY_LOG_DEBUG = 4
} tally_log_level;

/*
 * Receives one line, without a newline. Any thread may call it, including tally's own threads, and
 * several at once. It must not call tally.
 */
typedef void (*tally_log_fn)(void *user, int level, const char *text);

/*
 * Sends messages of max_level and more urgent ones to fn(user, ...). A NULL fn, the initial state,
 * switches logging off. If TALLY_LOG is set in the environment, it overrides max_level; if there is
 * no fn, its lines go to stderr as tally_log_stderr writes them, after the rank's number in
 * brackets if ranks are processes: "[2] tally: warning: ...". At TALLY_LOG_INFO rank 0 describes
 * the run: ranks, machines and backend, kernels and lanes, parameters, buckets and hook.
 *
 * Local; never blocks. Any thread, but not while another thread is in a tally call: a message may
 * still reach the old callback. Errors: ARG for an unknown level, or an unknown value of TALLY_LOG.
 */
TALLY_API int tally_log_set(tally_log_fn fn, void *user, int max_level);

/*
 * A ready-made tally_log_fn: writes one line "tally: level: text" to stderr. user is not used. Any
 * thread.
 */
TALLY_API void tally_log_stderr(void *user, int level, const char *text);

/* ---- environment --------------------------------------------------------------------------- */

/* One environment variable that tally reads. All texts are static, except value. */
typedef struct tally_env_var {
    size_t size;          /* set by the caller: sizeof(tally_env_var) */
    const char *name;     /* "TALLY_ISA" */
    const char *type;     /* accepted values: "auto|ref|avx2|..." or "seconds" */
    const char *fallback; /* the default */
    const char *help;     /* one line */
    const char *value;    /* the present value, valid until the environment changes; NULL: unset */
} tally_env_var;

/* Returns the number of variables. Any thread; never blocks; cannot fail. */
TALLY_API size_t tally_env_count(void);

/*
 * Describes variable number index. Any thread, while none changes the environment; never blocks.
 * Errors: ARG for an index out of range, a NULL, or a size that is too small.
 */
TALLY_API int tally_env_get(size_t index, tally_env_var *var);

/*
 * Checks the values of all variables that tally reads. Call it at start-up to find a mistyped value
 * early. Any thread, while none changes the environment; never blocks. Errors: ARG naming the first
 * variable with an unacceptable value, and the values that are accepted.
 */
TALLY_API int tally_env_check(void);

/* ---- instruction set ----------------------------------------------------------------------- */

/*
 * Sets *name to the instruction set that tally computes with: "ref", "avx2", "avx512" or "neon", a
 * static text. It is chosen once per process, by the first call that needs it: the best one of this
 * CPU, or the one that TALLY_ISA names. Sums and casts give the same bits on all of them. Any
 * thread; never blocks. Errors: ARG if name is NULL, or if TALLY_ISA is unknown or not available on
 * this CPU.
 */
TALLY_API int tally_isa(const char **name);

#ifdef __cplusplus
}
#endif

#endif
