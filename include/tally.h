/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally: data-parallel training for C, and for anything that can call C.
 *
 * You hand tally your parameters, say when each gradient is ready, and choose how gradients travel.
 * It leaves the mean gradient on every rank.
 *
 * This header is the manual. It is read from top to bottom: status codes and error texts first,
 * because every other function uses them; then logging, environment, and the instruction set.
 *
 * A complete program:
 *
 *     #include <stdio.h>
 *     #include <tally.h>
 *
 *     int main(void)
 *     {
 *         const char *isa;
 *
 *         if (tally_isa(&isa) != TALLY_OK) {
 *             fprintf(stderr, "tally: %s\n", tally_last_error());
 *             return 1;
 *         }
 *         printf("tally %s computes with %s\n", tally_version(), isa);
 *         return 0;
 *     }
 *
 * Rules that hold for every function below:
 *   - A function that can fail returns int: TALLY_OK (0), or one of the negative codes of
 *     TALLY_STATUS_LIST. tally_last_error() then gives the text, for the calling thread.
 *   - Outputs are written only on success.
 *   - The library never exits, installs no signal handler, and prints nothing by itself: what it
 *     has to say goes to the callback of tally_log_set().
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
 * off, which is how a program starts. TALLY_LOG in the environment, if set, wins over max_level.
 * Any thread, but not while another thread is in a tally call: a message under way may still reach
 * the old callback. Never blocks.
 * Errors: ARG for a level that is none of tally_log_level, or an unknown value of TALLY_LOG.
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

/* ---- groups -------------------------------------------------------------------------------- */

/*
 * A group is a set of ranks, 0..size-1, that compute together. What one rank does with a group, all
 * ranks of it must do, in the same order: such calls are called collective below.
 *
 * The ranks of a group are one process alone (backend "self"), threads of one process ("thread"),
 * or processes on one machine ("shm"). Everything below works alike on all of them.
 *
 * It fails, it does not hang. A rank that dies is named on every other rank within a second (PEER).
 * A rank that is late beyond the deadline is named too (TIMEOUT), and so are ranks that disagree
 * about what to do (MISMATCH). After one of these three the group is given up on every rank: later
 * calls return ABORTED at once, with the reason.
 */
typedef struct tally_group tally_group;

typedef struct tally_group_config {
    size_t size;            /* set by tally_group_config_init */
    const char *backend;    /* "self" or "shm"; NULL: TALLY_BACKEND, else what fits */
    int rank;               /* -1: from the environment */
    int world;              /* number of ranks; 0: from the environment */
    const char *rendezvous; /* where the ranks meet: the path of a Unix socket that rank 0 makes and
                               removes, or "@name" for one without a file. NULL: environment */
    double timeout_s;       /* deadline of an operation; 0: TALLY_TIMEOUT (600) */
    double open_timeout_s;  /* deadline for all ranks to arrive; 0: TALLY_OPEN_TIMEOUT (60) */
    int lanes; /* lane threads; 0: jobs run inside tally_future_wait; -1: TALLY_LANES */
} tally_group_config;

/* Fills a config with "not set" throughout. size is sizeof(tally_group_config). */
TALLY_API void tally_group_config_init(tally_group_config *config, size_t size);

/*
 * Opens this process's place in a group. config may be NULL: everything then comes from the
 * environment, in this order: TALLY_RANK, TALLY_WORLD and TALLY_RENDEZVOUS, as `tally run` sets
 * them; RANK and WORLD_SIZE of other launchers on one machine, with the job's id taken from
 * TALLY_RENDEZVOUS or from MASTER_ADDR, MASTER_PORT and TORCHELASTIC_RUN_ID; with nothing set, a
 * world of one. If any known launcher says that there are more ranks than that, it is an error.
 * Collective over the world; blocks until all ranks have arrived or open_timeout_s has passed.
 * Errors: ARG, TIMEOUT naming who is missing, MISMATCH when ranks disagree about the world or the
 * number of lanes, PEER, SYSTEM, NOMEM, UNSUPPORTED.
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
 * Divides a group: ranks that pass the same color form a new group, ordered by key, then by rank. A
 * negative color belongs to none and gets NULL. The new group shares the parent's lane threads and
 * must be closed before it. Collective over the parent; blocks; not from a lane.
 * Errors: ARG, NOMEM, those of any exchange.
 */
TALLY_API int tally_group_split(tally_group *parent, int color, int key, tally_group **group);

/*
 * Leaves a group in good order: finishes the jobs that were submitted, then frees everything. Peers
 * that still wait for this rank get PEER, "closed the group". Futures and memory of the group must
 * have been freed. NULL is accepted. Not collective; blocks until the own jobs are done.
 * Errors: STATE when a sub-group is still open.
 */
TALLY_API int tally_group_close(tally_group *group);

/*
 * Gives a group up: every rank's pending and later calls return ABORTED with this reason. The group
 * must still be closed. Any thread; never blocks. Errors: ARG.
 */
TALLY_API int tally_group_abort(tally_group *group, const char *reason);

/*
 * Zeroed memory that the other ranks can reach: collectives on it copy nothing. Ordinary memory
 * works everywhere too, at the price of a copy in and out. Pages are reserved now, so that a lack
 * of memory is NOMEM here and not a signal later; on failure no rank has any. Collective; blocks;
 * not from a lane. Errors: ARG, NOMEM, those of any exchange.
 */
TALLY_API int tally_group_alloc(tally_group *group, size_t bytes, void **memory);

/* Gives such memory back. NULL is accepted. Collective; blocks; not from a lane. Errors: ARG. */
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
typedef struct tally_lane tally_lane;
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
 * from a lane of the same group.
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

/* The lane of a sub-group that runs on the same thread as lane: for jobs that use several groups.
 * NULL when group does not share threads with lane's group. Inside a job. */
TALLY_API tally_lane *tally_lane_for(tally_lane *lane, tally_group *group);

/* The group and the number of a lane. Inside a job. */
TALLY_API tally_group *tally_lane_group(const tally_lane *lane);
TALLY_API int tally_lane_index(const tally_lane *lane);

/* Records a text for the failure of a job and returns status: `return tally_job_fail(...);`. */
TALLY_API int tally_job_fail(tally_lane *lane, int status, const char *text);

/* ---- collectives --------------------------------------------------------------------------- */

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
 * Sums are taken in rank order 0..size-1; fp16 and bf16 are added in fp32 and rounded once; integer
 * sums wrap around. The mean is the sum divided by the number of ranks; of integers, the sum in 64
 * bits divided with truncation. A NaN on any rank makes minimum and maximum NaN.
 */
typedef enum tally_op { TALLY_SUM = 0, TALLY_MEAN = 1, TALLY_MIN = 2, TALLY_MAX = 3 } tally_op;

/* Bytes of one element; 0 for a number that is no dtype. */
TALLY_API size_t tally_dtype_bytes(int dtype);

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

#ifdef __cplusplus
}
#endif

#endif
