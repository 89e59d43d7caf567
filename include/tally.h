/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally: data-parallel training for C, and for anything that can call C.
 *
 * You hand tally your parameters, say when each gradient is ready, and choose how gradients travel.
 * It leaves the mean gradient on every rank.
 *
 * This header is the manual, and all that a program needs that trains. It is read from top to
 * bottom: status codes and error texts, groups, parameters, data-parallel training, hooks,
 * optimizers, mixed precision, averaging, saving and loading, statistics, check mode, logging and
 * environment. A second header, tally_extend.h, is for people who extend tally: jobs, lanes and
 * futures, collectives, hooks and optimizers of their own.
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
 * Rules that hold for every function below:
 *   - A function that can fail returns int: TALLY_OK (0), or one of the negative codes of
 *     TALLY_STATUS_LIST. tally_last_error() then gives the text, for the calling thread.
 *   - Outputs are written only on success.
 *   - A forked child (a data loader's worker) cannot use the objects of its parent. There, calls
 *     that take one return STATE at once, and those that return a pointer return NULL; ..._free
 *     and tally_group_close do nothing and return TALLY_OK, so destructors may run; facts such as
 *     tally_group_rank stay known. The child may open groups of its own (not over MPI).
 *   - Structs that begin with their size may grow in later versions. A program built with an older
 *     header keeps working with a newer library: fields that its structs lack are "not set". A
 *     program built with a newer header works with an older library as long as it sets no field
 *     that the library does not know; otherwise the call fails with UNSUPPORTED and says so. In
 *     answers such fields are zero.
 *   - The library never exits, installs no signal handler, and prints nothing by itself: what it
 *     has to say goes to the callback of tally_log_set(). One exception: where the program sets no
 *     callback and TALLY_LOG is set in the environment, lines go to stderr.
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
#define TALLY_VERSION_MINOR 1
#define TALLY_VERSION_PATCH 0

/*
 * The version of the library that is running, as "major.minor.patch". The macros above give the
 * version that was compiled against. Any thread; never blocks; cannot fail; the text is static.
 */
TALLY_API const char *tally_version(void);

/* ---- status -------------------------------------------------------------------------------- */

/*
 * Every status code: name, value, text. The values are pinned and never reused. They are chosen by
 * what the caller should do:
 *
 *   ARG          mend the call            STATE        call in another order
 *   NOMEM        free memory, try again   SYSTEM       look at the system (text has its words)
 *   PEER         another rank died        TIMEOUT      another rank is late (text names it)
 *   ABORTED      open a new group         MISMATCH     ranks disagree (text names both)
 *   UNSUPPORTED  not offered here         NUMERIC      infinity or NaN where none may be
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
 * The short name ("ARG") and the general text ("invalid argument") of a status code. A number that
 * is no status code gives "UNKNOWN" and "unknown status". Any thread; never blocks; static text.
 */
TALLY_API const char *tally_status_name(int status);
TALLY_API const char *tally_status_text(int status);

/*
 * What went wrong in the last failed call of this thread, in one line that names the thing; "" when
 * nothing failed yet. A successful call does not clear it. The text is valid until the next tally
 * call of this thread. Any thread; never blocks; cannot fail.
 */
TALLY_API const char *tally_last_error(void);

/* ---- groups -------------------------------------------------------------------------------- */

/*
 * A group is a set of ranks, 0..size-1, that compute together. What one rank does with a group, all
 * ranks of it must do, in the same order: such calls are called collective below.
 *
 * The ranks of a group are one process alone (backend "self"), threads of one process ("thread"),
 * processes on one machine ("shm"), or processes of MPI, on any number of machines ("mpi").
 * Everything below works alike on all of them.
 *
 * Backend "mpi" needs Open MPI or MPICH, and is chosen where mpirun, mpiexec or srun has started
 * the program. The program may have initialized MPI itself, with MPI_THREAD_MULTIPLE, or with
 * MPI_THREAD_SERIALIZED if it calls MPI only while no job of tally's is under way; with less, lanes
 * must be 0. It then finalizes MPI itself, after the groups are closed. Otherwise tally initializes
 * MPI, and finalizes it when the process ends. When a rank dies, MPI's launcher usually ends the
 * others. Where it does not, the rank is named if another one of its machine sees it die, and else
 * by the deadline.
 *
 * It fails, it does not hang. A rank that dies, or ends without closing its group, is named on
 * every other rank within a second (PEER). A rank that is late beyond the deadline is named too
 * (TIMEOUT), and so are ranks that disagree about what to do (MISMATCH). After one of these three
 * the group is given up on every rank: later calls return ABORTED at once, with the reason.
 */
typedef struct tally_group tally_group;

typedef struct tally_group_config {
    size_t size;            /* set by tally_group_config_init */
    const char *backend;    /* "self", "shm" or "mpi"; NULL: TALLY_BACKEND, else what fits */
    int rank;               /* -1: from the environment */
    int world;              /* number of ranks; 0: from the environment */
    const char *rendezvous; /* where the ranks meet: the path of a Unix socket that rank 0 makes and
                               removes, or "@name" for one without a file. NULL: environment */
    double timeout_s;       /* how long to wait in a round for a rank, not counting time during
                               which this process was stopped; 0: TALLY_TIMEOUT (600) */
    double open_timeout_s;  /* deadline for all ranks to arrive; 0: TALLY_OPEN_TIMEOUT (60) */
    int lanes;           /* lane threads; 0: jobs run inside tally_future_wait; -1: TALLY_LANES */
    const int *mpi_comm; /* the communicator whose processes are the ranks, as MPI_Comm_c2f gives
                            it; tally duplicates it. NULL: all processes of MPI */
} tally_group_config;

/* Fills a config with "not set" throughout, as far as it reaches; size is
 * sizeof(tally_group_config). The same goes for the other ..._config_init. */
TALLY_API void tally_group_config_init(tally_group_config *config, size_t size);

/*
 * Opens this process's place in a group. config may be NULL: everything then comes from the
 * environment, in this order: TALLY_RANK, TALLY_WORLD and TALLY_RENDEZVOUS, as `tally run` sets
 * them; RANK and WORLD_SIZE of other launchers on one machine, with the job's id taken from
 * TALLY_RENDEZVOUS or from MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RUN_ID; OMPI_COMM_WORLD_SIZE,
 * PMI_SIZE or SLURM_STEP_NUM_TASKS above 1, which is backend "mpi"; with nothing set, a world of
 * one. If any known launcher says that there are more ranks than that, or TALLY_RANK, RANK or
 * LOCAL_RANK above 0 or LOCAL_WORLD_SIZE above 1 comes without a number of ranks, it is an error
 * (ARG), on every backend. Backend "mpi" is UNSUPPORTED in a program that is linked statically.
 * Collective over the world; blocks until all ranks have arrived or open_timeout_s has passed.
 * Errors: ARG, TIMEOUT naming who is missing, MISMATCH when ranks disagree about the world or the
 * number of lanes, PEER, SYSTEM, NOMEM, UNSUPPORTED, STATE over MPI in a forked child or after MPI
 * has been finalized.
 */
TALLY_API int tally_group_open(const tally_group_config *config, tally_group **group);

/*
 * Opens n groups at once whose ranks are threads of this process: groups[r] is rank r's and is then
 * used by that rank's thread. Of the config (or NULL) timeout_s and lanes count. Not collective:
 * one thread calls it for all. Errors: ARG, NOMEM, SYSTEM.
 */
TALLY_API int tally_group_open_threads(const tally_group_config *config, int n,
                                       tally_group **groups);

/* Facts about a group. Any thread; never block; a NULL group is rank -1 of 0, backend "". */
TALLY_API int tally_group_rank(const tally_group *group);
TALLY_API int tally_group_size(const tally_group *group);
TALLY_API const char *tally_group_backend(const tally_group *group);

/* Payload bytes this rank has sent to others in this group since it was opened. Any thread. */
TALLY_API unsigned long long tally_group_bytes_sent(const tally_group *group);

/*
 * Leaves a group in good order: finishes the jobs that were submitted, then frees everything. Peers
 * that still wait for this rank get PEER, "closed its group". Futures of the group must have been
 * freed; memory that was not goes once all ranks have closed it. NULL is accepted. Not collective;
 * blocks until the own jobs are done.
 * Errors: STATE when a sub-group is still open.
 */
TALLY_API int tally_group_close(tally_group *group);

/*
 * Gives a group up: every rank's pending and later calls return ABORTED with this reason. The group
 * must still be closed. A call in which all ranks had met before may still succeed. A rank that
 * fails alone (its disk is full, its input is damaged) calls this before it cleans up, so that the
 * others read the reason; without it they read that this rank left. Any thread; never blocks.
 * Errors: ARG.
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

/* Bytes of one element; 0 for a number that is no dtype. */
TALLY_API size_t tally_dtype_bytes(int dtype);

typedef enum tally_param_flag {
    TALLY_PARAM_FROZEN = 1,  /* broadcast at creation, has no gradient */
    TALLY_PARAM_IGNORED = 2, /* not touched, unless an optimizer's group names it */
    TALLY_PARAM_DELAYED = 4, /* reduced by tally_ddp_reduce_delayed, not with the others */
    TALLY_PARAM_SPARSE = 8   /* refused, clearly: sparse gradients are not supported */
} tally_param_flag;

/*
 * One parameter of the model. Its number, from 0 in the order given, is what grad_ready takes. All
 * ranks give the same names, shapes, dtypes and flags in the same order. No two share memory: a
 * weight that is used in several places (tied weights) is one parameter. Data and gradients are
 * aligned to their elements.
 */
typedef struct tally_param {
    size_t size;           /* sizeof(tally_param), in every entry */
    const char *name;      /* for messages and checkpoints; unique */
    int n_dims;            /* 0 for a scalar */
    const size_t *shape;   /* n_dims entries; NULL for a scalar */
    const size_t *strides; /* in elements; NULL: row-major. Must be dense: a permutation of that */
    int dtype;             /* TALLY_F32, TALLY_F64, TALLY_F16 or TALLY_BF16 */
    void *data;            /* the parameter itself; NULL: tally provides it, see tally_ddp_data */
    void *grad;            /* its gradient; NULL: tally provides it, see tally_ddp_grad */
    unsigned flags;        /* of tally_param_flag */
} tally_param;

/* A buffer: state of the model that is not trained, such as running means. Kept equal to rank 0's.
 */
typedef struct tally_buffer {
    size_t size;      /* sizeof(tally_buffer), in every entry */
    const char *name; /* for messages; may be NULL */
    void *data;
    size_t bytes;
    int dtype; /* of tally_dtype; only config.buffer_dtype looks at it */
} tally_buffer;

/* ---- data-parallel training ---------------------------------------------------------------- */

/*
 * A ddp takes the gradients of a model, says when which of them travel, and leaves their mean. A
 * step:
 *
 *     forward();
 *     backward();                    calls tally_ddp_grad_ready(ddp, i) as each gradient completes
 *     tally_ddp_wait(ddp);           every gradient is now the mean over all ranks
 *     update();
 *
 * Gradients are grouped in buckets. A bucket is reduced on a lane as soon as its gradients, and
 * those of all buckets before it, are ready, while backward goes on.
 *
 * Accumulation: a micro-step that only adds to the gradients calls neither grad_ready nor wait.
 *
 * Views and copies. If no parameter has a gradient pointer, gradients live in the buckets: ask
 * tally_ddp_grad where. They start as zeros, their addresses never change, and gradients that are
 * there are never copied. Otherwise the application keeps its own arrays, separate ones or parts of
 * one flat array: what a hook needs side by side is copied into the bucket before it and out after
 * it, on the lane; a hook that takes each element for itself gets large gradients where they lie,
 * so that a flat array is nearly as fast as views. After the first step the buckets are arranged
 * once more by the order in which gradients became ready on rank 0, unless the group has other ddps
 * or sub-groups, the optimizer is sharded, or the hook takes a bucket for one matrix or one tensor
 * (batched_powersgd, scope=bucket): such a hook's bits do not depend on the order of announcement.
 *
 * Whose a gradient is. From grad_ready, or reduce_delayed, until wait returns it is tally's: the
 * application neither reads nor writes it.
 */
typedef struct tally_ddp tally_ddp;

/* The thread that jobs and hooks run on; see tally_extend.h. */
typedef struct tally_lane tally_lane;

typedef struct tally_ddp_config {
    size_t size;             /* set by tally_ddp_config_init */
    size_t bucket_cap_bytes; /* a bucket is full when it reaches this; 0: 25 MiB */
    size_t
        first_bucket_bytes; /* the same for the first one; 0: 1 MiB, or bucket_cap_bytes if set */
    const size_t *bucket_caps; /* instead of those two: one cap per bucket, the last one repeats */
    size_t n_bucket_caps;
    const char *hook;    /* as tally_hook_parse takes it; NULL: TALLY_HOOK, else allreduce */
    int keep_parameters; /* 1: do not start from rank 0's parameters and buffers */
    const tally_buffer *buffers; /* state that is not trained; rank 0's after every step */
    size_t n_buffers;
    int keep_buffers; /* 1: do not broadcast buffers after each step */
    /* Instead of the broadcast, if set: brings the buffers in line. On a lane; a failure fails the
     * step on every rank. */
    int (*buffer_hook)(void *user, tally_lane *lane, const tally_buffer *buffers, size_t n);
    void *buffer_hook_user;
    int find_unused;  /* 1: a gradient that was not announced before wait is absent, not missing */
    int static_graph; /* 1: what the first step announces, and how often, holds for all steps */
    int skip_unused;  /* 1: a bucket without a gradient on any rank is not reduced */
    int join;         /* 1: ranks may run out of input at different steps, see tally_ddp_join */
    int join_stops;   /* 1: when one has run out, all fail with STATE, instead of going on */
    int join_divides_by_active; /* 1: the mean is over the ranks that still have input, not all */
    /* Mixed precision, see below. Each is 0 (none), TALLY_F16 or TALLY_BF16. */
    int param_dtype;  /* of the copies that forward reads and of the gradients backward writes */
    int reduce_dtype; /* with param_dtype: what gradients are reduced in; 0: fp32 */
    int buffer_dtype; /* of the copies of buffers of dtype TALLY_F32 */
    int reserved;     /* 0 */
    /* Check mode, see below. N above 0: on, and parameters are compared every N steps; 0:
     * TALLY_CHECK, which is off unless set; -1: off. */
    int check;
} tally_ddp_config;

/* Fills a config with "not set" throughout. size is sizeof(tally_ddp_config). */
TALLY_API void tally_ddp_config_init(tally_ddp_config *config, size_t size);

/*
 * Makes a ddp for n parameters. config may be NULL. Names, shapes and data pointers are copied; the
 * arrays they point to must stay. All ranks compare parameters and config; the first difference is
 * MISMATCH and names the field that differs with both values. Arrays that overlap are ARG and name
 * both parameters. Then rank 0's parameters and buffers are copied to all; gradients are left
 * alone, so a ddp may be made after the first backward, where a program allocates gradients only
 * then. The ddp has a group of its own, made from this one, which must be closed later, with as
 * many lane threads of its own.
 *
 * Several ddps of one group (a generator and its critic) are made in the same order on all ranks.
 * From then on each keeps its own order only: ranks may announce and wait for them in different
 * orders, also from different threads, beside collectives of the group. But a step of which wait
 * itself does a part is waited for in the same order on all ranks, or each from a thread of its
 * own: with buffers, delayed parameters, join, check mode, clipping or a loss scale of the
 * optimizer, and unused parameters.
 * Without lane threads (lanes = 0) every step is: jobs then run inside wait.
 *
 * Collective; blocks. Errors: ARG, UNSUPPORTED, MISMATCH, NOMEM, those of any exchange.
 */
TALLY_API int tally_ddp_create(tally_group *group, const tally_param *params, size_t n,
                               const tally_ddp_config *config, tally_ddp **ddp);

/* Frees a ddp on this rank; waits for no other. A rank that still waits for this one in a step of
 * it gets MISMATCH. In the middle of a step it gives the step up, and the others' wait fails with
 * ABORTED. NULL is accepted. Not collective; not from a lane (STATE). */
TALLY_API int tally_ddp_free(tally_ddp *ddp);

/* How many parameters the ddp was made for. Any thread; never blocks; 0 for NULL. */
TALLY_API size_t tally_ddp_n_params(const tally_ddp *ddp);

/* Where parameter i's gradient lies, or NULL for one without. Any thread; never blocks. */
TALLY_API void *tally_ddp_grad(const tally_ddp *ddp, int i);

/* Where its mean is after a step: of the parameter's dtype, the same as tally_ddp_grad but for
 * mixed precision. NULL for one without. Any thread; never blocks. */
TALLY_API void *tally_ddp_mean(const tally_ddp *ddp, int i);

/*
 * Where parameter i lies. A parameter that came without data, unless it is ignored, lies in memory
 * that tally provides, of the group, laid out like the buckets, zeros at first: there a sharded
 * optimizer sends updated parameters from where they are to where they belong. Its address never
 * changes, and is good until the ddp is freed. Such parameters may be mixed with others, but only
 * where gradients are views. Fill them on one rank, then call tally_ddp_broadcast. NULL where there
 * is none. Any thread; never blocks.
 */
TALLY_API void *tally_ddp_data(const tally_ddp *ddp, int i);

/* Makes all parameters but the ignored ones, and all buffers, those of rank root; low copies
 * follow. Collective, between steps, before any rank is in tally_ddp_join; blocks. Errors: ARG,
 * STATE, those of any exchange. */
TALLY_API int tally_ddp_broadcast(tally_ddp *ddp, int root);

/*
 * Says that parameter i's gradient is complete for this step. Any thread, several at once; does not
 * wait for communication. Errors: ARG, STATE for a gradient announced twice, ABORTED.
 */
TALLY_API int tally_ddp_grad_ready(tally_ddp *ddp, int i);

/* Says that parameter i has no gradient in this step: it counts as zeros where other ranks have
 * one; where no rank has one, the gradient is left untouched. Otherwise as tally_ddp_grad_ready;
 * also NOMEM. */
TALLY_API int tally_ddp_grad_absent(tally_ddp *ddp, int i);

/*
 * Ends the step: waits until every gradient is the mean. Collective; blocks; one thread. Errors:
 * STATE when nothing was announced or gradients are missing (the text lists them; under find_unused
 * they are absent instead), or, under static_graph, when the graph has changed; what a hook
 * returned; those of any exchange. After one of the first three the step is still open: announce
 * what is missing and wait again, or free the ddp. After any other failure, a hook's STATE among
 * them, the gradients are undefined and the next step starts afresh, unless the group was given up:
 * then other ranks may write to views until the ddp is freed, but nobody to the application's
 * arrays.
 */
TALLY_API int tally_ddp_wait(tally_ddp *ddp);

/* Whether no rank had a gradient for parameter i in the last step. Errors: ARG. */
TALLY_API int tally_ddp_is_unused(const tally_ddp *ddp, int i, int *unused);

/*
 * Between begin and end, grad_ready, grad_absent and wait exchange nothing: for programs that
 * cannot avoid calling them in an accumulation micro-step. What is announced there counts in the
 * next step, also if that has no gradient for it. Not between grad_ready and wait (STATE). Local.
 */
TALLY_API int tally_ddp_no_sync_begin(tally_ddp *ddp);
TALLY_API int tally_ddp_no_sync_end(tally_ddp *ddp);

/* Sets all gradients, those that backward writes, to zero. Local; between steps. Errors: ARG,
 * STATE.
 */
TALLY_API int tally_ddp_zero_grad(tally_ddp *ddp);

/*
 * Scales all means so that their joint 2-norm is at most max_norm, and gives the norm there was
 * before. Per-parameter norms in fp64, added in parameter order: the same bits on every rank.
 * Local; between steps. norm may be NULL. Errors: ARG, STATE, also where an optimizer is sharded,
 * since no rank has all gradients then; NUMERIC naming the first parameter
 * with an infinity or a NaN, or saying that the norm itself is beyond fp64 (nothing is scaled
 * then).
 */
TALLY_API int tally_ddp_clip_grad_norm(tally_ddp *ddp, double max_norm, double *norm);

/* Replaces n values, or one, each by its mean over all ranks, in one exchange: for losses and
 * metrics to be logged. n is the same on all ranks. Collective, between steps: so
 * not once a rank is in tally_ddp_join, which would be a MISMATCH. Blocks. Errors: ARG, STATE,
 * NOMEM, those of any exchange. */
TALLY_API int tally_ddp_mean_scalars(tally_ddp *ddp, double *values, size_t n);
TALLY_API int tally_ddp_mean_scalar(tally_ddp *ddp, double *value);

/*
 * For ranks with different amounts of input: with config.join every rank calls this when it has run
 * out. It takes part in the others' steps, with zeros, until all have run out; then the parameters
 * and buffers of the last rank that had input (the highest, if several) are everywhere. Collective
 * in that every rank calls it once; between steps; blocks. Errors: ARG, STATE without config.join,
 * or with config.join_stops when another rank still has input; what any step returns.
 */
TALLY_API int tally_ddp_join(tally_ddp *ddp);

/* Reduces the gradients of the parameters flagged DELAYED; they are launched as soon as the
 * buckets of the step under way are (a step begins, if there is none), and the next wait waits for
 * them too. A second call in a step does nothing. Not with config.join. Collective, in the same
 * step on all ranks; does not wait for communication. Errors: ARG, STATE, NOMEM, ABORTED. */
TALLY_API int tally_ddp_reduce_delayed(tally_ddp *ddp);

/* ---- hooks --------------------------------------------------------------------------------- */

typedef struct tally_hook tally_hook;

/*
 * Makes one of tally's own hooks from its text:
 *
 *     hook     name [":" option {"," option}] ["(" hook ")"]
 *     option   key "=" value
 *
 * as in "bf16", "fp16:saturate=1", "powersgd:rank=2,start=100", "bf16(powersgd:rank=4)". Blanks
 * between the parts do not count. Options belong to the name they follow. Only wrappers take a hook
 * in brackets: "fp16" and "bf16", which set how the fp32 exchanges of the hook inside travel (where
 * that hook has a form of its own on the wire, that one wins, and so does an inner wrapper);
 * "hosts", which adds up within each machine first and lets one rank of each exchange; and
 * "postlocal", which says among which ranks the hook inside exchanges, and goes with an averager
 * (tally_averager_create). Without brackets they wrap "allreduce". `tally hooks` lists all names
 * and options. A text has at most 200 characters, and 8 hooks inside one another.
 *
 * The hook's name is its text in one form, so that equal settings have equal names: without blanks,
 * with those options only that differ from their fallbacks, in the order of `tally hooks`, and
 * without brackets around "allreduce". It can be parsed again. Local; any thread. Errors: ARG
 * pointing at the column, with what would be accepted there; NOMEM.
 */
TALLY_API int tally_hook_parse(const char *text, tally_hook **hook);

/* Drops the caller's hold on a hook; a ddp that uses it keeps it until it is replaced or freed. */
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
 * Uses a hook from the next step on: by its text, as tally_hook_parse takes it; one of the ten of
 * TALLY_HOOK_LIST; or a hook object, of which the ddp takes a hold of its own. An object of tally's
 * own that quantizes, or a PowerSGD, serves one ddp at a time (STATE). Residuals pass from the old
 * hook to the new one, and so does the state of a hook of the same kind: both tally's own or both
 * the application's, with the same name but for options and wrappers. A hook that takes a bucket
 * for one matrix or one tensor gets the buckets of the plan back. Collective, between steps,
 * before any rank is in tally_ddp_join; block. Errors: ARG, STATE, MISMATCH when ranks give
 * different hooks, NOMEM, what attach returned on any rank: on all ranks, and the old hook stays,
 * with its state and all residuals.
 */
TALLY_API int tally_ddp_set_hook(tally_ddp *ddp, const char *text);
TALLY_API int tally_ddp_register_hook(tally_ddp *ddp, tally_hook_name name);
TALLY_API int tally_ddp_attach_hook(tally_ddp *ddp, tally_hook *hook);

/* What there is to parse, for lists and help. All texts are static. */
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
    const char *fallback; /* what holds when it is not given */
    const char *help;     /* one line */
} tally_hook_option;

/* How many hooks there are; one of them; one of its options. Any thread; never block. Errors: ARG.
 */
TALLY_API size_t tally_hook_count(void);
TALLY_API int tally_hook_describe(size_t index, tally_hook_info *info);
TALLY_API int tally_hook_describe_option(size_t index, size_t option, tally_hook_option *described);

/* ---- optimizers ---------------------------------------------------------------------------- */

/*
 * An optimizer updates parameters by their mean gradients. tally's own are chosen by a text, in the
 * grammar of tally_hook_parse without brackets: "sgd:lr=0.1,momentum=0.9", "adamw:lr=3e-4". They
 * are sgd, adam, adamw, adagrad, rmsprop, adadelta, adamax and rprop, with the formulas, options
 * and fallbacks of PyTorch; `tally optimizers` lists them, docs/optimizers.md has the formulas. The
 * arithmetic is fp32, the same bits on every instruction set; each parameter counts its own steps.
 * Any other is a table of one's own (tally_extend.h).
 */

/*
 * The object. It belongs to one ddp and updates its parameters, all or some, by groups that are
 * updated alike. A step with one:
 *
 *     backward();                       calls tally_ddp_grad_ready(ddp, i)
 *     tally_ddp_wait(ddp);              overlap: all parameters are updated when this returns
 *     tally_optimizer_step(optimizer);  without overlap: here
 *
 * With overlap each bucket's parameters are updated on its lane as soon as its mean is there, while
 * backward goes on: so backward must not read a parameter whose gradient it has announced. What
 * needs all buckets, such as clipping, makes updates wait for the last one, in tally_ddp_wait.
 *
 * Either way parameters get the same bits as in the plain loop: wait, tally_ddp_clip_grad_norm,
 * then every parameter by itself.
 *
 * Who is updated in a step: the parameters of all groups, but for those no rank had a gradient for,
 * whose count of steps stays; delayed ones only in steps that reduced them; frozen ones never. A
 * step that only accumulates updates nothing. A parameter that is ignored is updated if a group
 * names it, by the local gradient in its grad, at the end of each step; clipping leaves it alone.
 *
 * Sharded, with config.shard (ZeRO-1): each rank has a share of every bucket. It keeps the state of
 * that share alone, gets the mean of no more where the hook can do so (allreduce, fp16, bf16),
 * updates it, and sends the updated parameters to all. Shares are even, and cut parameters, unless
 * a group's table in the bucket is not elementwise: then they end where parameters end. Parameters
 * get the same bits as without; only the joint norm of max_norm is added up share by share, and may
 * differ in its last bit. The hook must leave the same mean on every rank, as postlocal and noop do
 * not: a share is updated by its owner's. After a step the gradients of all parameters that a group
 * has are undefined, unless release_gradients makes them zeros. Buckets are not arranged by ready
 * order.
 *
 * Under config.join a rank without input takes part: it updates its parameters like the others,
 * with the learning rates of a rank that has input; ignored ones stay as they are.
 *
 * A step that fails may have updated some parameters already, not the same ones on all ranks: go on
 * from a checkpoint.
 */
typedef struct tally_optimizer tally_optimizer;

typedef struct tally_averager tally_averager;

/* An optimizer of one's own; see tally_extend.h. */
typedef struct tally_optimizer_table tally_optimizer_table;

/* Parameters that are updated alike. */
typedef struct tally_optimizer_group {
    size_t size;                        /* sizeof(tally_optimizer_group), in every entry */
    const char *text;                   /* one of tally's own; NULL: table */
    const tally_optimizer_table *table; /* one's own; copied */
    void *user;                         /* with table; the optimizer's, once it is created */
    double lr;                          /* with table: the learning rate to begin with, 0..1e38 */
    const int *params; /* their numbers; frozen ones are left out. NULL: all with a gradient that no
                          other group names */
    size_t n_params;
} tally_optimizer_group;

typedef struct tally_optimizer_config {
    size_t size;                         /* set by tally_optimizer_config_init */
    const tally_optimizer_group *groups; /* NULL: one group of all, by the text of create */
    size_t n_groups;
    int overlap;           /* 1: tally_ddp_wait updates, and lanes before it; 0: on call */
    int shard;             /* 1: each rank keeps its share of the state, see above; with overlap */
    int release_gradients; /* 1: a gradient is set to zero once it is used, still in the caches */
    double max_norm;       /* > 0: the joint 2-norm of all means is clipped to this first, as by
                              tally_ddp_clip_grad_norm */
    /* > 0: gradients are of the loss times a scale that begins as this, a power of two for exact
     * results; see tally_optimizer_loss_scale. */
    double loss_scale;
    double loss_scale_growth;  /* what it is multiplied by after so many good steps; 0: 2 */
    double loss_scale_backoff; /* and after a step that was skipped; 0: 0.5 */
    int loss_scale_interval;   /* good steps in a row before it grows; 0: 2000 */
    tally_averager *averager;  /* called after each update, saved and loaded with the state; freed
                                  after the optimizer */
} tally_optimizer_config;

/* Fills a config with "not set" throughout. size is sizeof(tally_optimizer_config). */
TALLY_API void tally_optimizer_config_init(tally_optimizer_config *config, size_t size);

/*
 * Makes an optimizer for a ddp, which has no other: by text, or by config->groups. config may be
 * NULL. All memory for state is reserved now. On failure what groups have as user is still the
 * caller's. Collective, between steps; blocks. Errors: ARG, as for the text, or naming what a group
 * or a table lacks or the parameter two groups have; UNSUPPORTED for a parameter in a group that is
 * not fp32, without overlap under config.join, and where config.shard meets an averager or the hook
 * "postlocal"; STATE when there is one already; MISMATCH when
 * ranks give different groups or configs; NOMEM; those of any exchange: on all ranks.
 */
TALLY_API int tally_optimizer_create(tally_ddp *ddp, const char *text,
                                     const tally_optimizer_config *config,
                                     tally_optimizer **optimizer);

/* Frees an optimizer; its ddp goes on without, or may have been freed before. NULL is accepted.
 * Local, but on all ranks between the same steps (STATE in the middle of one). */
TALLY_API int tally_optimizer_free(tally_optimizer *optimizer);

/*
 * Updates the parameters by the means that tally_ddp_wait has left. Under no_sync it does nothing.
 * Local; between steps; one thread. Errors: ARG; STATE with overlap, or without a new mean; NUMERIC
 * from clipping, and nothing is updated; what a step_param returned on this rank. With
 * config.averager it is collective, a failure is everybody's, and those of averaging come besides;
 * a step that is NUMERIC counts for it, as it does for the hook.
 */
TALLY_API int tally_optimizer_step(tally_optimizer *optimizer);

/* Sets the learning rate of a group, or of all (-1), for the next steps; and tells it, or -1 where
 * there is no such group. Groups are numbered from 0 as in the config. Local: call it on all ranks
 * alike; between steps. Errors: ARG, also for a rate that is not in 0..1e38; STATE. */
TALLY_API int tally_optimizer_set_lr(tally_optimizer *optimizer, int group, double lr);
TALLY_API double tally_optimizer_lr(const tally_optimizer *optimizer, int group);

/*
 * Dynamic loss scaling, by config.loss_scale: multiply the loss, or the gradient backward begins
 * with, by this; the same on all ranks; 1 without. It changes in tally_ddp_wait alone: the
 * micro-steps of an accumulation have the same. The lanes divide by it: means are of the loss
 * itself.
 *
 * A step in which any rank has an infinity or a NaN in a gradient, or a mean that overflowed, is
 * skipped on all ranks, and tally_ddp_wait returns TALLY_OK: parameters, state and step counts, and
 * what compression has left out, are as they were, to the bit; there are no means; the scale is
 * multiplied by loss_scale_backoff. Updates wait for the last bucket. Local; between steps.
 */
TALLY_API double tally_optimizer_loss_scale(const tally_optimizer *optimizer);

/* What there is to choose by text, for lists and help. All texts are static. */
typedef struct tally_optimizer_info {
    size_t size;      /* set by the caller: sizeof(tally_optimizer_info) */
    const char *name; /* "adamw" */
    const char *help; /* one line: when to use it */
    size_t n_options;
} tally_optimizer_info;

typedef tally_hook_option tally_optimizer_option;

/* How many optimizers there are; one of them; one of its options. Any thread; never block. Errors:
 * ARG. */
TALLY_API size_t tally_optimizer_count(void);
TALLY_API int tally_optimizer_describe(size_t index, tally_optimizer_info *info);
TALLY_API int tally_optimizer_describe_option(size_t index, size_t option,
                                              tally_optimizer_option *described);

/* ---- mixed precision ----------------------------------------------------------------------- */

/*
 * With config.param_dtype the parameters given to tally_ddp_create are masters: TALLY_F32, what is
 * updated and saved. Forward reads the low copy of each, backward writes a gradient of the same
 * dtype, and the mean is fp32:
 *
 *     forward();                     reads tally_ddp_low(ddp, i)
 *     backward();                    writes tally_ddp_grad(ddp, i), calls tally_ddp_grad_ready
 *     tally_ddp_wait(ddp);           tally_ddp_mean(ddp, i) is now the mean, fp32
 *     update();                      of the masters, from the means
 *     tally_ddp_refresh_low(ddp);    unless an optimizer of tally's own made the update
 *
 * Gradients travel as config.reduce_dtype. If that is fp32, the lane casts them into the bucket,
 * and the mean is there: hooks with error feedback work as ever, and sums lose nothing. If it is
 * param_dtype and the application gave no arrays, gradients live in the buckets and are never
 * copied; the lane casts the mean up to fp32 memory of its own. Hooks that quantize take fp32 only.
 *
 * A gradient that the application gives in tally_param.grad is of param_dtype too, and so are
 * micro-steps that accumulate there. After wait what the gradient holds is undefined: zero it
 * (tally_ddp_zero_grad) or overwrite it. Caps of buckets count bytes of reduce_dtype.
 *
 * What is flagged IGNORED has no low copy, and any dtype; what is FROZEN has one. Buffers of dtype
 * TALLY_F32 get low copies by config.buffer_dtype: cast once, at creation; forward uses the copy,
 * it is what is broadcast and what config.buffer_hook is given, and after each step data is the
 * copy cast up.
 */

/* The copy of parameter i that forward reads: the master rounded to config.param_dtype, elements in
 * the same order; NULL where there is none. Any thread; never blocks. */
TALLY_API void *tally_ddp_low(const tally_ddp *ddp, int i);

/* Brings the low copies in line with the masters, after the application changed those. Local;
 * between steps. Errors: ARG, STATE. */
TALLY_API int tally_ddp_refresh_low(tally_ddp *ddp);

/* The low copy of buffer i, NULL where there is none. Any thread; never blocks. */
TALLY_API void *tally_ddp_low_buffer(const tally_ddp *ddp, int i);

/* ---- averaging parameters ------------------------------------------------------------------ */

/*
 * Post-local SGD: after a warm-up in which all ranks exchange gradients in every step, only ranks
 * of a group do (the hook "postlocal"), or none, and an averager brings the parameters together
 * every few steps. Far fewer bytes travel; docs/post-local-sgd.md has the formula and what it
 * costs. A step:
 *
 *     tally_ddp_wait(ddp);
 *     update();
 *     tally_averager_step(averager, NULL);
 *
 * Levels say who averages how often. Each has a period and groups of consecutive ranks, made of
 * whole groups of the level before; the last one has all ranks. When the periods of several levels
 * have passed, the last of these counts, alone. Steps are counted from 0, and periods from the end
 * of the warm-up: an averaging is due after step warmup, and then whenever period steps have
 * passed. So the first one is of all ranks.
 *
 * The averages may travel by any hook. One that loses something is given what parameters have
 * changed since all ranks last had the same ones, not the parameters; what it leaves out comes with
 * the next averaging, if it has error feedback. The first averaging sends parameters as they are.
 *
 * An outer optimizer, as in DiLoCo, takes the mean change of all ranks as a gradient, and moves
 * what all ranks last had by it: "sgd:lr=0.7,momentum=0.9,nesterov=1". It is called by averagings
 * of all ranks but the first, which only makes them equal.
 *
 * After an averaging, the ranks that took part have the same bits. Under mixed precision it is the
 * masters that are averaged; low copies follow.
 */

typedef struct tally_averager_level {
    int period; /* steps; at least 1, and more than that of the level before */
    int group;  /* consecutive ranks that average together; 0: all */
} tally_averager_level;

typedef struct tally_averager_config {
    size_t size;                        /* set by tally_averager_config_init */
    const tally_averager_level *levels; /* the last one is of all ranks; copied */
    size_t n_levels;                    /* at least 1 */
    int warmup;        /* steps without averaging; the start of the hook "postlocal" */
    const int *params; /* numbers of the parameters to average; NULL: all with a gradient */
    size_t n_params;
    const char *hook;  /* how averages travel, as tally_hook_parse takes it; NULL: "allreduce" */
    const char *outer; /* an optimizer, as below, on the mean change; NULL: none */
} tally_averager_config;

/* Fills a config with "not set" throughout. size is sizeof(tally_averager_config). */
TALLY_API void tally_averager_config_init(tally_averager_config *config, size_t size);

/*
 * Makes an averager for the parameters of a ddp, which has no other. It takes room for each of them
 * once more, and with a hook that loses something, or an outer optimizer, for an anchor besides.
 * Must be freed before the ddp. Collective, between steps; blocks. Errors: ARG naming what is wrong
 * with a level, the hook or the optimizer, or when the ddp has a hook "postlocal" whose start is
 * not warmup (as tally_ddp_set_hook then refuses such a hook); UNSUPPORTED with config.join, and
 * with a sharded optimizer, and with outer for a parameter that is not fp32; STATE when there is
 * one already; MISMATCH when ranks give different configs; NOMEM; those of any exchange: on all
 * ranks.
 */
TALLY_API int tally_averager_create(tally_ddp *ddp, const tally_averager_config *config,
                                    tally_averager **averager);

/* Frees an averager on this rank, between steps; waits for no other. NULL is accepted. Not
 * collective. Errors: STATE from a lane, and while an optimizer calls it. */
TALLY_API int tally_averager_free(tally_averager *averager);

/*
 * After each update: counts a step, and averages when it is time. n_averaged, which may be NULL, is
 * then the number of ranks averaged over; 0: none was due. Collective, between steps; blocks when
 * one is due. Errors: ARG; STATE, also where an optimizer calls it; what the hook returned, those
 * of any exchange; the step does not count then, and parameters are as they were.
 */
TALLY_API int tally_averager_step(tally_averager *averager, int *n_averaged);

/*
 * Averages the parameters over all ranks now, whatever the periods: at the end of training, before
 * a checkpoint or a validation. Counts no step. An outer optimizer takes part as in any averaging
 * of all ranks. Collective, between steps, also where an optimizer calls the averager; blocks.
 * Errors: as tally_averager_step.
 */
TALLY_API int tally_averager_average(tally_averager *averager);

/* Steps counted so far, those of the run loaded too. Not during a step; 0 for NULL. */
TALLY_API unsigned long long tally_averager_steps(const tally_averager *averager);

/* ---- save and load ------------------------------------------------------------------------- */

/*
 * Writes the state of the hook and the residuals of this rank to blob, which has room for *bytes,
 * and sets *bytes to what it takes; a NULL blob only asks for that. A checkpoint has the blobs of
 * all ranks. Local, not collective; between steps. Errors: ARG when there is too little room,
 * STATE, what the hook's save returned.
 */
TALLY_API int tally_ddp_save(tally_ddp *ddp, void *blob, size_t *bytes);

/*
 * Takes up the state that all ranks of a run saved: blobs[r] of bytes[r] bytes is rank r's, n of
 * them, the same on every rank. The ddp has the same parameters. With as many ranks as then and the
 * same hook, it goes on to the bit as it would have, in whatever buckets; a hook that takes a
 * bucket for one matrix or one tensor does so with the same caps of buckets. For the application's
 * own hooks, gradients that are copies get the buckets of the run that saved, unless they have been
 * arranged already. Another hook gets the residuals as if it replaced the one that saved, and the
 * state if it is of the same kind (tally_ddp_set_hook). With more or fewer ranks every rank takes
 * the mean of the residuals: nothing is lost, but the bits differ. Collective, between steps;
 * blocks. Errors: ARG naming the blob that is damaged, incomplete or of something else; MISMATCH
 * when ranks give different blobs; STATE; NOMEM; what the hook's load returned: on all ranks, and
 * nothing has changed on any.
 */
TALLY_API int tally_ddp_load(tally_ddp *ddp, const void *const *blobs, const size_t *bytes,
                             size_t n);

/*
 * Writes the state of this rank to blob, which has room for *bytes, and sets *bytes to what it
 * takes; a NULL blob only asks for that. A checkpoint has the parameters and the blobs of all
 * ranks. Local, not collective; between steps. Errors: ARG when there is too little room, STATE.
 */
TALLY_API int tally_optimizer_save(tally_optimizer *optimizer, void *blob, size_t *bytes);

/*
 * The same as one blob on rank root, with the state of all ranks; root's of an ignored parameter,
 * and where an averager lets ranks differ; UNSUPPORTED if its hook leaves something out.
 * On other ranks blob and bytes are not looked at. Collective, between steps; blocks. Errors: as
 * tally_optimizer_save, on all ranks; ARG for root; those of any exchange.
 */
TALLY_API int tally_optimizer_consolidate(tally_optimizer *optimizer, int root, void *blob,
                                          size_t *bytes);

/*
 * Takes up the state that all ranks of a run saved, blobs[r] of bytes[r] bytes that of rank r, n of
 * them, or one consolidated blob: the same on every rank. Parameters and groups are those of then,
 * each with the same optimizer; its other options are those it has now, the learning rates those of
 * then. config.averager was set then if it is now. There may be more or fewer ranks. With the same
 * parameters and gradients it goes on to the bit as it would have. Collective, between steps;
 * blocks. Errors: ARG naming the blob that is damaged, incomplete or of something else; MISMATCH
 * when ranks give different blobs; STATE; NOMEM: on all ranks, and nothing has changed on any.
 */
TALLY_API int tally_optimizer_load(tally_optimizer *optimizer, const void *const *blobs,
                                   const size_t *bytes, size_t n);

/*
 * As tally_ddp_save and tally_ddp_load: a blob per rank, and those of all ranks. Steps, the anchor,
 * the outer optimizer's state, and what the hook has left out; not the parameters, which between
 * averagings differ from rank to rank. The averager that loads has the same parameters, hook and
 * outer optimizer; levels, warm-up and the number of ranks may be others. Errors: as there.
 */
TALLY_API int tally_averager_save(tally_averager *averager, void *blob, size_t *bytes);
TALLY_API int tally_averager_load(tally_averager *averager, const void *const *blobs,
                                  const size_t *bytes, size_t n);

/* ---- statistics ---------------------------------------------------------------------------- */

/*
 * Times are in seconds. Those of the last step that succeeded and, with mean_, averages over all of
 * them; steps of others that this rank took part in from tally_ddp_join count in step alone.
 */
typedef struct tally_ddp_stats {
    size_t size;             /* set by the caller: sizeof(tally_ddp_stats) */
    unsigned long long step; /* synchronised steps so far */
    int rank;
    int world;
    const char *backend;   /* of the group; static text */
    size_t n_params;       /* with a gradient */
    unsigned dtypes;       /* of their gradients: 1 << TALLY_F32 and so on, added up */
    size_t gradient_bytes; /* of all of them */
    size_t buffer_bytes;
    size_t first_bucket_bytes; /* the caps that hold: of the first bucket, */
    size_t bucket_cap_bytes;   /* and of the last */
    size_t n_buckets;
    size_t n_delayed_buckets; /* of delayed parameters, behind those */
    size_t n_reduced;         /* buckets that were reduced in the last step */
    size_t unused_bytes;      /* gradients no rank had in the last step */
    int views;
    int find_unused; /* as in the config, and the next two */
    int static_graph;
    int join;
    int rebuilt;                   /* buckets are arranged by ready order */
    const char *hook;              /* its name; valid until it is replaced */
    unsigned long long wire_bytes; /* payload this rank sent for the buckets of the last step */
    unsigned long long total_wire_bytes; /* in all steps */
    /* Payload it sent besides, since the step before: who has which gradient, buffers, delayed
     * gradients, tally_ddp_mean_scalar, agreeing on hooks, the steps of others. Not at creation. */
    unsigned long long other_wire_bytes;
    unsigned long long total_other_wire_bytes; /* up to now */
    /* Values of the last step, and of all, that fp16:saturate=1 held at the largest there is. */
    unsigned long long saturated;
    unsigned long long total_saturated;
    /* Elements that PowerSGD compressed, parameters it lets be among them, and as how many they
     * travelled: in the last step, and in all. Their ratio is the rate of compression. */
    unsigned long long compressed_from;
    unsigned long long compressed_to;
    unsigned long long total_compressed_from;
    unsigned long long total_compressed_to;
    double forward_s;  /* end of the step before to the first announcement; 0 in the first step */
    double backward_s; /* first announcement to the call of wait */
    double comm_s;     /* lanes busy reducing buckets, one after the other */
    double exposed_s;  /* what wait waited, but for an optimizer's updates */
    double overlap;    /* part of comm_s that wait did not see, 0..1 */
    double mean_forward_s;
    double mean_backward_s;
    double mean_comm_s;
    double mean_exposed_s;
    int error; /* status of the last call on this ddp that failed on this rank; 0: none did */
    unsigned long long error_step; /* the number of steps there had been then */
    char error_text[256];          /* what tally_last_error() said, cut if it is longer */
    /* Payload of the last step, and of all, that this rank sent to ranks of its own host, through
     * memory: with hook "hosts". What the leaders of hosts send to one another is wire_bytes. */
    unsigned long long host_bytes;
    unsigned long long total_host_bytes;
} tally_ddp_stats;

/* One bucket in the last step; times count from the step's first announcement. */
typedef struct tally_bucket_stats {
    size_t size;  /* set by the caller: sizeof(tally_bucket_stats) */
    int measured; /* 0: no step yet with the buckets as they are now; no times, no wire_bytes then
                   */
    size_t n_params;
    size_t bytes;
    double ready_s;  /* its last gradient was announced */
    double launch_s; /* it was handed to its lane */
    double start_s;  /* the lane began */
    double done_s;   /* the lane was done */
    unsigned long long wire_bytes;
    unsigned long long host_bytes; /* as in tally_ddp_stats */
} tally_bucket_stats;

/* Any thread; between steps for figures that belong together; never blocks long. Errors: ARG. */
TALLY_API int tally_ddp_get_stats(tally_ddp *ddp, tally_ddp_stats *stats);
TALLY_API int tally_ddp_get_bucket_stats(tally_ddp *ddp, size_t bucket, tally_bucket_stats *stats);

/* Which parameters a bucket has, in its order: up to n parameter numbers; returns how many there
 * are. Delayed buckets follow the others. 0 for a NULL and where there is no such bucket. Likewise.
 */
TALLY_API size_t tally_ddp_bucket_params(tally_ddp *ddp, size_t bucket, int *params, size_t n);

/* In which order gradients became ready in the last step: up to n parameter numbers; returns how
 * many there are. Likewise. */
TALLY_API size_t tally_ddp_ready_order(tally_ddp *ddp, int *order, size_t n);

/* Times are in seconds: of the last update and, with mean_, averages over all; steps of others that
 * this rank took part in from tally_ddp_join apart. */
typedef struct tally_optimizer_stats {
    size_t size;                /* set by the caller: sizeof(tally_optimizer_stats) */
    unsigned long long step;    /* updates so far */
    unsigned long long skipped; /* steps that a gradient that is not finite made all ranks skip */
    double loss_scale;          /* of the next step; 1 without scaling */
    double norm;                /* before clipping, in the last update; 0 without max_norm */
    size_t state_bytes;         /* of state on this rank */
    double update_s;            /* lanes, or tally_optimizer_step, busy with updates */
    double exposed_update_s;    /* the part that wait or step saw */
    double mean_update_s;
    double mean_exposed_update_s;
} tally_optimizer_stats;

/* Any thread; between steps for figures that belong together; never blocks long. Errors: ARG,
 * STATE when the ddp was freed. */
TALLY_API int tally_optimizer_get_stats(tally_optimizer *optimizer, tally_optimizer_stats *stats);

/* Times are in seconds. */
typedef struct tally_averager_stats {
    size_t size;             /* set by the caller: sizeof(tally_averager_stats) */
    unsigned long long step; /* as tally_averager_steps */
    unsigned long long n_averagings;
    unsigned long long wire_bytes; /* payload this rank sent for the parameters in the last one */
    unsigned long long total_wire_bytes;       /* in all */
    unsigned long long total_other_wire_bytes; /* that it sent besides, to agree */
    double average_s;                          /* how long the last one waited for the exchange */
    double mean_average_s;
    /* Payload that stayed within the hosts of hook "hosts", beside wire_bytes: last, and in all. */
    unsigned long long host_bytes;
    unsigned long long total_host_bytes;
} tally_averager_stats;

/* Between steps; never blocks long. Errors: ARG. */
TALLY_API int tally_averager_get_stats(tally_averager *averager, tally_averager_stats *stats);

/* ---- check mode ---------------------------------------------------------------------------- */

/*
 * Check mode, by TALLY_CHECK=1 or config.check, finds mistakes that otherwise give wrong results
 * without a word. Buckets are launched inside wait only. A gradient that was written to between its
 * announcement and wait makes wait fail with STATE, on all ranks, by name. Every N steps the
 * parameters of all ranks are compared as by tally_ddp_check, and wait fails with MISMATCH. After
 * three steps there is a warning, by name, of gradients that were always zeros and of parameters
 * that never changed; it goes to stderr if neither a callback nor TALLY_LOG says otherwise. The
 * means have the same bits as without. Communication is not hidden behind backward, and every
 * gradient is read twice more.
 */

/*
 * Compares all parameters but the ignored ones between ranks, bit by bit (a checksum of each
 * travels). For tests, for programs that update parameters themselves, and when a run behaves
 * strangely; docs/when-ranks-disagree.md says what to look for. Costs one pass over the
 * parameters. Collective, between steps, before any rank is in tally_ddp_join; blocks. Errors:
 * MISMATCH naming the first parameter that differs, the ranks, and the number of steps, on all
 * ranks, and the group lives on; STATE where ranks may differ until the next averaging; ARG; those
 * of any exchange.
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
 * Receives one line, without a newline. It may be called from any thread, also from threads of
 * tally's own, by several at once; it must not call tally.
 */
typedef void (*tally_log_fn)(void *user, int level, const char *text);

/*
 * Sends messages of max_level and more urgent ones to fn(user, ...). A NULL fn switches logging
 * off, which is how a program starts. TALLY_LOG in the environment, if set, wins over max_level;
 * where there is no fn, its lines go to stderr, as tally_log_stderr writes them, behind the rank's
 * number in brackets where ranks are processes: "[2] tally: warning: ...". At TALLY_LOG_INFO rank 0
 * says what this run is: ranks, machines and backend, kernels and lanes, parameters, buckets and
 * hook. Any thread, but not while another thread is in a tally call: a message under way may still
 * reach the old callback. Never blocks. Errors: ARG for a level that is none of tally_log_level, or
 * an unknown value of TALLY_LOG.
 */
TALLY_API int tally_log_set(tally_log_fn fn, void *user, int max_level);

/* A ready-made tally_log_fn: one line "tally: level: text" to stderr. user is not used. */
TALLY_API void tally_log_stderr(void *user, int level, const char *text);

/* ---- environment --------------------------------------------------------------------------- */

/* One environment variable that tally reads. All texts are static, except value. */
typedef struct tally_env_var {
    size_t size;          /* set by the caller: sizeof(tally_env_var) */
    const char *name;     /* "TALLY_ISA" */
    const char *type;     /* what it accepts: "auto|ref|avx2|..." or "seconds" */
    const char *fallback; /* what holds when it is unset */
    const char *help;     /* one line */
    const char *value; /* its text now, or NULL when unset; valid until the environment changes */
} tally_env_var;

/* How many variables there are. Any thread; never blocks; cannot fail. */
TALLY_API size_t tally_env_count(void);

/*
 * Describes variable number index. Any thread, while nobody changes the environment; never blocks.
 * Errors: ARG for an index out of range, a NULL, or a size that is too small.
 */
TALLY_API int tally_env_get(size_t index, tally_env_var *var);

/*
 * Looks at every variable tally knows. Call it at start-up to hear of a mistyped value early.
 * Any thread, while nobody changes the environment; never blocks.
 * Errors: ARG naming the first variable with an unacceptable value, and what would be accepted.
 */
TALLY_API int tally_env_check(void);

/* ---- instruction set ----------------------------------------------------------------------- */

/*
 * The instruction set tally computes with: "ref", "avx2", "avx512" or "neon". It is chosen once per
 * process, at the first call that needs it: the best one this CPU has, or the one TALLY_ISA asks
 * for. Sums and casts give the same bits on all of them. Any thread; never blocks; static text.
 * Errors: ARG when name is NULL, or TALLY_ISA is unknown or asks for what this CPU lacks.
 */
TALLY_API int tally_isa(const char **name);

#ifdef __cplusplus
}
#endif

#endif
