/* SPDX-License-Identifier: Apache-2.0 */
/* The ddp object, as the files of ddp share it. */
#ifndef TALLY_DDP_DDP_H
#define TALLY_DDP_DDP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/agree.h"
#include "comm/group.h"
#include "ddp/lateness.h"
#include "ddp/observer.h"
#include "exchange/reduction.h"
#include "hook/hook.h"
#include "tally_extend.h"
#include "trace/tracer.h"

/* Gradients of at least this size are reduced in place: copying costs more than a separate
 * exchange. Measured on two ranks. */
#define TALLY__LARGE_BYTES ((size_t)16 << 10)

/* A gradient in the step under way. From READY or ABSENT on, its bytes belong to the bucket. */
enum tally__grad_state { TALLY__GRAD_WAITING, TALLY__GRAD_READY, TALLY__GRAD_ABSENT };

/* A parameter's gradient on this rank; grad_cast.h explains the dtypes. */
struct tally__gradient {
    int dtype;        /* as backward writes it */
    int reduce_dtype; /* as it travels in the bucket */
    size_t bytes;     /* as backward writes it */
    void *array;      /* backward writes to it: the application's array, owned, or the bucket;
                         NULL: the parameter has no gradient */
    void *owned;      /* the array that tally allocated for it, or NULL */
    void *local;      /* the gradient of an ignored parameter: it never travels */
};

/* A parameter's mean gradient; its dtype is the parameter's. */
struct tally__mean {
    void *array;  /* steps leave it here: the gradient's array, the bucket, or owned */
    void *owned;  /* the array that tally allocated for it, or NULL */
    void *last;   /* the last step's mean, equal on all ranks; NULL: the step left none. Before the
                     first step array, except for a delayed parameter */
    bool sharded; /* the observer shards it: no rank has all of it */
};

/* A parameter's announcements in the step under way. */
struct tally__announcements {
    enum tally__grad_state state;
    int n_announced;
    bool accumulated; /* announced under no_sync since the last step */
};

struct tally__param {
    char *name;
    int n_dims;
    size_t *shape;
    bool permuted;    /* not row-major */
    size_t *steps;    /* if permuted: the strides, in elements; else NULL */
    uint64_t strides; /* a hash of those of dimensions with several elements; blobs contain it */
    unsigned flags;
    size_t n;
    int dtype;
    size_t bytes;
    void *data;
    bool provided; /* by tally: data lies in data_memory, once that is allocated */
    struct tally__gradient grad;
    struct tally__mean mean;
    int bucket;    /* -1: has no gradient */
    size_t offset; /* in its bucket, in bytes */
    struct tally__announcements now;
    int n_expected; /* announcements per step, under static_graph */
    bool unused;    /* no rank had a gradient in the last step */
};

/* Also says which threads may touch a bucket's bytes: the application's while it fills, the lane
 * once it is launched. */
enum tally__bucket_state { TALLY__BUCKET_FILLING, TALLY__BUCKET_LAUNCHED };

/* Times and bytes of a bucket in one step. */
struct tally__bucket_times {
    uint64_t ready_ns;
    uint64_t launch_ns;
    uint64_t start_ns;
    uint64_t done_ns;
    uint64_t after_ns; /* when the observer had used the mean; done_ns if it did nothing */
    uint64_t bytes_sent;
    uint64_t aside_bytes; /* part of bytes_sent that is not the bucket's: questions between ranks */
    uint64_t late_bytes;  /* sent for the bucket at the end of the step instead, */
    uint64_t late_ns;     /* and the time that took */
    struct tally__counts counts;
};

struct tally__bucket {
    tally_bucket seen; /* as the hook sees it */
    tally_ddp *ddp;
    size_t n_missing; /* gradients that are neither ready nor absent; all of a delayed bucket, until
                         the application asks for it */
    enum tally__bucket_state state;
    tally_future *future;
    unsigned char *saved; /* copies of views that were absent, or NULL */
    double factor; /* gradients are multiplied by it: before the hook if the bucket has fp32, after
                      it otherwise. Belongs to the lane until collected, like the next */
    bool skipped;  /* it was not reduced: no rank had a gradient for it, or the observer said so */
    bool is_run;   /* its gradients are one array of the application, in this order; on all ranks */
    bool sharded;  /* the observer divides it into shards, and returns residuals itself */
    struct tally__bucket_times now;  /* the step under way; the lane writes start, done and after */
    struct tally__bucket_times last; /* the last step; guarded by the mutex */
};

/* Figures of the last step, and sums over all steps. Guarded by the mutex. */
struct tally__step_stats {
    uint64_t first_ns;      /* first announcement of the step under way */
    uint64_t last_first_ns; /* first announcement of the last step */
    uint64_t last_begin_ns; /* end of the step before the last one, or its first announcement */
    uint64_t last_end_ns;   /* end of the last step's wait; 0: there was none */
    uint64_t forward_ns;    /* from the end of the step before to the start of the last one */
    uint64_t backward_ns;
    uint64_t comm_ns;
    uint64_t exposed_ns;
    uint64_t wire_bytes;
    uint64_t other_bytes; /* sent since the step before, not for buckets */
    size_t n_reduced;
    size_t n_ready;
    unsigned long long n_steps; /* in which this rank had input */
    uint64_t total_forward_ns;
    uint64_t total_backward_ns;
    uint64_t total_comm_ns;
    uint64_t total_exposed_ns;
    uint64_t total_wire_bytes;
    struct tally__counts counts;
    struct tally__counts total_counts;
    uint64_t total_other_bytes;
    uint64_t taken_other_bytes; /* part of total_other_bytes up to the end of the last step */
    bool rebuilt;
    int error; /* of the last call that failed; its step and text follow */
    unsigned long long error_step;
    char error_text[sizeof((tally_ddp_stats *)NULL)->error_text];
};

/* The ranks that have input, under config.join. Jobs of lane 0 write it, and later jobs read it. */
struct tally__presence {
    bool active;   /* this rank has input */
    int n_active;  /* number of ranks that have */
    int root;      /* the highest rank that has; once none has, the one of the last step */
    bool stopped;  /* a rank has none, and config.join_stops ends the run */
    int who_ended; /* the lowest rank without input */
    tally_future *future;
};

/* The buckets, and the position of each parameter in them. */
struct tally__buckets {
    size_t n;         /* buckets of a step */
    size_t n_delayed; /* buckets of delayed parameters; they follow the others */
    struct tally__bucket *bucket;
    tally_bucket_param *params; /* of all buckets, one after the other */
    void *memory;               /* of the group: all gradients */
    bool pinned;                /* the observer depends on the layout: it must stay */
};

/* Orders in which gradients became ready. */
struct tally__ready {
    size_t n;    /* ready in the step under way */
    int *order;  /* of the step under way */
    int *last;   /* of the last step */
    int *agreed; /* of the rank that decides how buckets are arranged */
};

/* The step under way. The mutex guards it; after the last launch only wait uses the end's fields.
 */
struct tally__step_state {
    bool begun; /* a gradient was announced since the last wait */
    bool delayed_asked;
    size_t next_bucket; /* the next to be launched */
    uint64_t marked_ns; /* when the gradient was announced that is being handled; 0: none is */
    tally_future *end_future; /* the end of the step, if it was launched before wait */
    bool end_collected;       /* it was launched before wait, which has collected it */
    bool has_means;           /* the step counts; lane 0 sets it at the end of the step */
    size_t n_absent;          /* gradients that this rank lacks */
    bool lacks_gradients;     /* n_absent > 0 when the last bucket was launched; for its lane */
    bool is_counted;          /* a rank lacks one: the last bucket's lane has counted */
    int32_t *used; /* per parameter: 1 if this rank has a gradient; at the end of the step, the
                      number of ranks that had one. The lane counts in a second array of n_params */
};

/* The words for a ddp and its steps in messages. */
struct tally__ddp_words {
    const char *object;
    const char *steps;
    const char *step_call; /* NULL: messages name the step and the bucket */
};

/* The ddp in traces. */
struct tally__ddp_trace {
    struct tally__tracer *tracer;       /* of this rank */
    uint8_t number;                     /* from 1, the same on all ranks */
    struct tally__status_entry *status; /* or NULL; texts are guarded by the mutex */
    /* The layout that the open file was told last. */
    uint64_t told_file;
    unsigned told_generation;
    const tally_hook *told_hook;
    uint64_t told_explained; /* hook->private.n_explained then */
};

struct tally__metrics;

#define TALLY__BUFFER TALLY__SIZED(tally_buffer, bytes)

struct tally_ddp {
    tally_group *group; /* the ddp's own */
    tally_ddp_config config;
    size_t *caps;
    size_t n_caps;
    tally_buffer *buffers;      /* the arrays that travel; names are copies */
    tally_buffer *hook_buffers; /* the same buffers for buffer_hook, in entries of the size that the
                                   application's header has: use tally__sized_at */
    size_t n_buffers;
    size_t n_params;
    struct tally__param *params;
    void *data_memory; /* of the group: the parameters that tally provides; NULL: none */
    bool provides;     /* tally provides all gradients; buckets then stay */
    bool views;        /* and gradients lie in the buckets */
    bool is_flat;    /* copies: on all ranks the gradients lie one after the other, in the order of
                        parameters, and so they do in the buckets */
    bool is_reducer; /* a reducer's (reducer.c): its buckets come from outside */

    int *order; /* parameters with a gradient, in the order of the plan */
    size_t n_order;
    struct tally__buckets buckets;
    unsigned generation;
    size_t packed_cap;      /* the packing of the buckets: its cap, */
    unsigned char *classes; /* and the class of each parameter */
    bool may_rebuild;       /* gradients are copies whose buckets may change */
    bool rebuild_due;       /* by ready order */
    bool repack_due;        /* by the packing that the hook wants; lane 0 sets it */

    unsigned long long step;
    unsigned long long steps_before; /* steps of the run that was loaded */
    const char *call;                /* the application's call under way, for messages */
    struct tally__ddp_words words;

    tally_hook *hook;
    struct tally__residuals *residuals;
    struct tally__observer observer;
    bool ends_in_wait; /* the observer's step_end reads arrays that are the application's until wait
                        */
    struct tally__checks *checks; /* check mode; NULL: off */
    bool warned_local;            /* of a hook that needs averaging, and the observer has none */
    struct tally__presence presence;
    struct tally__ddp_trace trace;
    struct tally__lateness lateness;
    struct tally__metrics *metrics; /* NULL: none are written */

    pthread_mutex_t mutex; /* guards the rest, parameters' announcements, and buckets' states */
    bool no_sync;
    bool recording; /* static_graph: the first step, which only counts announcements */
    struct tally__step_state now;
    struct tally__ready ready;
    struct tally__step_stats stats;
};

/* ddp.c: tally_ddp_create with an observer, whose user must live as long as the ddp. Creating is
 * collective, freeing is local. */
int tally__ddp_create(tally_group *group, const tally_param *params, size_t n,
                      const tally_ddp_config *config, const struct tally__observer *observer,
                      tally_ddp **ddp);
void tally__ddp_free(tally_ddp *ddp);

/* params.c */
int tally__params_copy(tally_ddp *ddp, const tally_param *params, size_t n);
/* Once dtypes are known: checks arrays, orders parameters, and allocates gradients and means. */
int tally__params_allocate(tally_ddp *ddp);
void tally__params_free(tally_ddp *ddp);
/* In a job: all parameters except the ignored ones, and all buffers, become root's; or the buffers
 * only. */
int tally__values_broadcast(tally_lane *lane, const tally_ddp *ddp, int root);
int tally__buffers_broadcast(tally_lane *lane, const tally_ddp *ddp, int root);
/* After creation: parameters and buffers become root's, and the observer learns of it. */
int tally__values_take(tally_lane *lane, const tally_ddp *ddp, int root);

/* param_arrays.c: rejects two parameters that share a name or memory, and arrays that are not
 * aligned. Errors: ARG, NOMEM. */
int tally__params_check_arrays(const tally_ddp *ddp);

/* param_compare.c: in a job, compares parameters, buffers and config between ranks. */
int tally__params_compare(tally_lane *lane, const tally_ddp *ddp);

/* buckets.c */
/* Makes buckets for the parameters with a gradient, in this order and packing, and changes nothing
 * else. Collective: on failure all ranks fail. */
int tally__buckets_make(tally_ddp *ddp, const int *order, const struct tally__packing *packing,
                        struct tally__buckets *buckets);
/* The ddp uses them from now on. */
void tally__buckets_adopt(tally_ddp *ddp, const struct tally__buckets *buckets);
/* Afterwards: means that lay in the old buckets move to the new ones. */
void tally__buckets_move_means(tally_ddp *ddp, const struct tally__buckets *old);
/* Collective. */
void tally__buckets_free(tally_ddp *ddp, struct tally__buckets *buckets);
/* The parameter's gradient in its bucket. */
unsigned char *tally__slice(const tally_ddp *ddp, const struct tally__param *param);

/* param_memory.c: allocates the parameters that tally provides, until the group is closed.
 * Collective. */
int tally__param_memory_make(tally_ddp *ddp);
/* The parameters of a bucket as one array, laid out like their gradients; NULL if they are not
 * contiguous. */
void *tally__bucket_run(const struct tally__bucket *bucket);

/* ddp_hook.c */
/* Makes all residuals plain, and moves owned ones as how says. Collective. Errors: NOMEM, on all
 * ranks, and no residual is lost. */
int tally__ddp_move_residuals(tally_ddp *ddp, enum tally__move how);
/* Sets the hook that the config or the environment names. Collective. */
int tally__hook_start(tally_ddp *ddp);

/* launch.c: with the mutex held. The second launches all complete buckets that are next in order.
 */
int tally__launch(tally_ddp *ddp, struct tally__bucket *bucket);
int tally__launch_complete(tally_ddp *ddp);
/* collect.c: without the mutex. Waits for everything that was launched; returns the first failure,
 * with its text. Bytes of delayed buckets and of steps without input count as other_wire_bytes. */
int tally__collect(tally_ddp *ddp);
/* On a lane. Leaves the mean of a bucket, or skips it if no rank has a gradient for it. */
int tally__bucket_reduce(tally_lane *lane, struct tally__bucket *bucket);
/* Its parts: gradients go into the bucket; the hook runs, on any bucket of the ddp's parameters,
 * and may leave the mean in this rank's shard only if shard_starts is given; means go back. */
void tally__bucket_gather(const struct tally__bucket *bucket);
int tally__run_hook(tally_lane *lane, tally_ddp *ddp, const tally_bucket *bucket,
                    const size_t *shard_starts);
void tally__bucket_spread(const struct tally__bucket *bucket);

/* step.c */
/* Ends a step that cannot be finished: aborts the ddp's group, waits for launched buckets, and
 * returns status with the thread's error text. */
int tally__step_abort(tally_ddp *ddp, int status);
void tally__step_reset(tally_ddp *ddp);
/* Takes part in a step of other ranks with zeros, after the presence job. Collective. */
int tally__shadow_step(tally_ddp *ddp);

/* step_end.c: with the mutex held, after every bucket was launched. Launches the end of the step,
 * unless it needs something that only wait knows: then wait runs it. */
int tally__step_end_launch(tally_ddp *ddp);

/* In wait, after tally__collect; collected is the status it returned. If that is OK and the end of
 * the step was not launched before, runs it. Counts the step if it has means. Collective. Errors:
 * collected, those of any exchange, the observer's. */
int tally__step_end(tally_ddp *ddp, int collected);

/* On the lane of the last bucket, as the end of its job: ranks agree whether any of them lacks a
 * gradient in this step. Only then do they count how many have each. */
int tally__step_count_used(tally_lane *lane, struct tally__bucket *last);

/* If no rank had a gradient, its mean is dropped. The hook may have sent residuals of former steps
 * with it: their mean lies in the bucket, and every rank takes it back as its residual. */
void tally__residual_take_back(tally_ddp *ddp, const struct tally__param *param);

/* bucket_layout.c */
/* At the end of a step, on lane 0: ranks agree on the layout of the next step. */
int tally__layout_agree(tally_lane *lane, tally_ddp *ddp, int root);
/* Whether buckets are still to be arranged by ready order: not while the observer pins them, nor
 * under a hook whose bits depend on the layout. */
bool tally__layout_may_arrange(const tally_ddp *ddp);
/* Arranges the buckets by ready.agreed, packed as the hook wants. A failure costs speed, not the
 * step. Between steps. Collective. */
void tally__layout_arrange(tally_ddp *ddp);
/* Packs the buckets as the hook wants, if they may move and are not; a failure costs speed. Between
 * steps. Collective. */
void tally__layout_repack(tally_ddp *ddp);
/* Returns buckets to the layout of the plan, unless the observer pins them. A later step arranges
 * them again, if it may. Between steps. Collective. Errors: NOMEM, on all ranks; then they stay. */
int tally__layout_restore_plan(tally_ddp *ddp);
/* After a step: changes the layout if that is due. Collective. */
void tally__layout_update(tally_ddp *ddp);

/* stats.c */
/* Records the step that ends now; its wait was called at called_ns. With the mutex held. */
void tally__stats_take(tally_ddp *ddp, uint64_t called_ns);

/* Adds the figures of the last step to the sums over all steps. With the mutex held. */
void tally__stats_total(struct tally__step_stats *stats);

void tally__counts_add(struct tally__counts *to, const struct tally__counts *from);

/* The length of the last step, from the end of the step before it. */
static inline uint64_t tally__step_ns(const tally_ddp *ddp)
{
    return ddp->stats.last_end_ns - ddp->stats.last_begin_ns;
}

/* Counts bytes that were not sent for a bucket. */
void tally__stats_other(tally_ddp *ddp, uint64_t bytes);

/* Records the status and the thread's error text of a call that failed. Returns the status. */
int tally__stats_note(tally_ddp *ddp, int status);

/* ddp_trace.c */
/* Gives the ddp its number, and begins the trace that TALLY_TRACE asks for. */
void tally__ddp_trace_begin(tally_ddp *ddp);
/* Puts an event of this ddp into the thread's ring; bucket is NULL for none. ddp, bucket and, if it
 * is 0, the step under way are filled in. */
void tally__ddp_event(const tally_ddp *ddp, const struct tally__bucket *bucket,
                      const struct tally__trace_event *event);
/* A checkpoint was saved or loaded since begin_ns, or an asynchronous save was begun. */
void tally__ddp_trace_checkpoint(const tally_ddp *ddp, uint64_t begin_ns);
/* At the end of wait: records it, and the step if it succeeded. step is its number, from 1. */
struct tally__waited_step {
    unsigned long long step;
    uint64_t called_ns;
    bool has_ended;
};
void tally__ddp_trace_wait(tally_ddp *ddp, const struct tally__waited_step *waited);

/* metrics.c: the file that TALLY_METRICS names. A failure is logged once. */
void tally__metrics_make(tally_ddp *ddp);
void tally__metrics_free(tally_ddp *ddp);
/* On the thread that waits, after a step whose times are recorded. */
void tally__metrics_step(tally_ddp *ddp);

/* ddp_report.c: after a call that failed with status, with the thread's error text: writes the
 * rank's report, if this failure ended the group, and once. No job of the ddp runs. */
void tally__ddp_report(tally_ddp *ddp, int status);

/* join.c: a job on lane 0: ranks learn which of them have input. */
int tally__presence_job(tally_lane *lane, void *user);
/* Sets the error of a step that config.join_stops ended. */
int tally__join_stopped(const tally_ddp *ddp);

/* Whether this rank has no input in the step under way and only takes part in the others' steps. */
static inline bool tally__is_shadow(const tally_ddp *ddp)
{
    return ddp->config.join && !ddp->presence.active;
}

/* Whether parameter i exists and this process may use it: a forked child may not. */
static inline bool tally__has_param(const tally_ddp *ddp, int i)
{
    return ddp && i >= 0 && (size_t)i < ddp->n_params && tally__is_creator(&ddp->group->creator);
}

/* Returns ARG for NULL, STATE in a forked child. Before any lock is taken: base/creator.h. */
int tally__check_ddp(const tally_ddp *ddp, const char *call);

/* For messages: the lane is in a bucket of n parameters, of which first is the first, in the step
 * under way; -1: at the end of the step. */
void tally__doing_part(tally_lane *lane, const tally_ddp *ddp, int bucket, int first, size_t n);

/* Shows on the status page that the application is in this call. Without the mutex. */
void tally__show_state(tally_ddp *ddp, enum tally__status_state state, const char *call);

/* As tally__check_ddp, and STATE naming the call if a step is under way; shows a collective call.
 */
int tally__check_between_steps(tally_ddp *ddp, const char *call);

/* Runs a job on the ddp's lane 0 and waits for it. The bytes it sends count as other_wire_bytes. */
int tally__ddp_run(tally_ddp *ddp, tally_job_fn job, void *user);

/* The same, after a part that may have failed on this rank, with status and the thread's error
 * text: then the job fails with them on all ranks before it does anything. job may be NULL: ranks
 * only agree on the status. */
int tally__ddp_agree(tally_ddp *ddp, int status, tally_job_fn job, void *user);

/* Whether the application is between tally_ddp_no_sync_begin and _end. */
bool tally__is_no_sync(tally_ddp *ddp);

#endif
