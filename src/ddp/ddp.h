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
#include "ddp/observer.h"
#include "exchange/reduction.h"
#include "hook/hook.h"
#include "tally_extend.h"

/* From here on a gradient's copy costs more than an exchange of its own. Measured on two ranks. */
#define TALLY__LARGE_BYTES ((size_t)16 << 10)

/* Where a parameter's gradient stands in this step. From READY or ABSENT on its bytes belong to the
 * bucket. */
enum tally__grad_state { TALLY__GRAD_WAITING, TALLY__GRAD_READY, TALLY__GRAD_ABSENT };

struct tally__param {
    char *name;
    int n_dims;
    size_t *shape;
    bool permuted;    /* not row-major */
    uint64_t strides; /* a checksum of those that matter, to compare */
    int dtype;        /* of data and mean */
    int grad_dtype;   /* of the gradient as backward writes it */
    int reduce_dtype; /* of the gradient in the bucket; see grad_cast.h */
    unsigned flags;
    size_t n;
    size_t bytes; /* of data */
    size_t grad_bytes;
    void *data;
    bool provided;   /* data is ours: a place in data_memory, once there is that */
    void *grad;      /* what the application sees: its own array, ours, or a place in a bucket; NULL
                      for one without */
    void *own_grad;  /* the array we made for it when it keeps copies and gave none */
    void *place;     /* where steps leave the mean: grad, the bucket, or own_mean */
    float *own_mean; /* the array we made for that when it cannot be in the bucket */
    void *mean; /* place, where the last step left the mean, the same on all ranks; NULL: it left
                   none. Before the first step, the gradient of one that is not delayed */
    void *local_grad; /* of one that is ignored: the application's, which nobody reduces */
    int bucket;       /* -1: has no gradient */
    size_t offset;    /* in its bucket, in bytes */
    enum tally__grad_state state;
    bool accumulated; /* announced under no_sync since the last step */
    int n_announced;  /* in this step */
    int n_expected;   /* per step, under static_graph */
    bool unused;      /* no rank had a gradient in the last step */
    bool sharded;     /* the observer leaves its mean in shards: no rank has all of it */
};

/* Who owns a bucket's bytes: the application's threads while it fills, the lane once launched. */
enum tally__bucket_state { TALLY__BUCKET_FILLING, TALLY__BUCKET_LAUNCHED };

/* When a bucket was complete, launched, begun and done, and what that cost. */
struct tally__bucket_times {
    uint64_t ready_ns;
    uint64_t launch_ns;
    uint64_t start_ns;
    uint64_t done_ns;
    uint64_t after_ns; /* when the observer had used the mean; done_ns if it did nothing */
    uint64_t bytes_sent;
    uint64_t aside_bytes; /* of these, about who has which gradient: not the bucket's own */
    uint64_t late_bytes;  /* and what was sent for it at the end of the step instead, */
    uint64_t late_ns;     /* and how long that took */
    struct tally__counts counts;
};

struct tally__bucket {
    tally_bucket seen; /* what the hook sees */
    tally_ddp *ddp;
    size_t n_missing; /* gradients that are neither ready nor absent; of a delayed one, all until
                         it is asked for */
    enum tally__bucket_state state;
    tally_future *future;
    unsigned char *saved; /* gradients in view mode that were absent, as they were; maybe NULL */
    double factor; /* gradients are multiplied by it: before the hook if the bucket has fp32, after
                      it otherwise. Belongs to the lane until collected, like the next */
    bool skipped;  /* it was not reduced: no rank had a gradient for it, or the observer said so */
    bool sharded;  /* the observer cuts it into shards and returns residuals itself */
    struct tally__bucket_times
        now; /* the step under way; start, done and updated are the lane's too */
    struct tally__bucket_times last; /* the last step; guarded by the mutex */
};

/* What is said about the last step, and summed over all. Guarded by the mutex. */
struct tally__step_stats {
    uint64_t first_ns;      /* the first announcement of the step under way */
    uint64_t last_first_ns; /* of the last step */
    uint64_t last_end_ns;   /* when its wait returned; 0: there was none */
    uint64_t forward_ns;    /* from the end of the step before to the last one's beginning */
    uint64_t backward_ns;
    uint64_t comm_ns;
    uint64_t exposed_ns;
    uint64_t wire_bytes;
    uint64_t other_bytes; /* beside the buckets, since the step before */
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
    uint64_t taken_other_bytes; /* up to the end of the last step */
    bool rebuilt;
    int error; /* of the last call that failed, in which step, and why */
    unsigned long long error_step;
    char error_text[sizeof((tally_ddp_stats *)NULL)->error_text];
};

/* Who takes part in a step under config.join; by the lane, read by later jobs of the same lane. */
struct tally__presence {
    bool active;   /* this rank has input */
    int n_active;  /* ranks that have */
    int root;      /* the highest of them */
    bool stopped;  /* some have not, and config.join_stops says to end there */
    bool was_last; /* this rank had input in the last step there was */
    int who_ended; /* the lowest rank without input, then */
    tally_future *future;
};

/* The buckets and which parameter lies where in them. */
struct tally__buckets {
    size_t n;         /* buckets of a step */
    size_t n_delayed; /* those of delayed parameters, behind them */
    struct tally__bucket *bucket;
    tally_bucket_param *params; /* of all buckets, one after the other */
    void *memory;               /* of the group: all gradients */
    bool pinned;                /* the observer depends on the layout: it must stay */
};

/* The words for a ddp and its steps in messages. */
struct tally__ddp_words {
    const char *object;
    const char *steps;
    const char *step_call; /* NULL: messages name the step and the bucket */
};

#define TALLY__BUFFER TALLY__SIZED(tally_buffer, bytes)

struct tally_ddp {
    tally_group *group; /* our own */
    tally_ddp_config config;
    size_t *caps;
    size_t n_caps;
    tally_buffer *buffers;      /* the arrays that travel; names are copies */
    tally_buffer *hook_buffers; /* the same for buffer_hook: entries have the size and the distance
                                   of the application's */
    size_t n_buffers;
    size_t n_params;
    struct tally__param *params;
    int *order; /* parameters with a gradient, in the order the plan takes them */
    size_t n_order;
    struct tally__buckets buckets;
    void *data_memory; /* of the group: the parameters that tally provides; NULL: none */
    bool provides;     /* all gradients: no array for one is the application's; buckets then stay */
    bool views;        /* and they are in the buckets */
    bool rebuild_due;
    unsigned generation;
    unsigned long long step;
    unsigned long long steps_before; /* those of the run that was loaded; step counts on from 0 */
    const char *call; /* the function of the application's that is under way, for messages */
    struct tally__ddp_words words;
    tally_hook *hook;
    struct tally__residuals *residuals;
    struct tally__observer observer;
    struct tally__checks *checks; /* check mode; NULL: off */
    bool warned_local;            /* of a hook that needs averaging, and the observer has none */

    pthread_mutex_t mutex; /* guards what follows, and the state of parameters and buckets */
    bool in_step;          /* something was announced since the last wait */
    bool no_sync;
    bool recording; /* static_graph: the first step, which only counts */
    bool delayed_asked;
    size_t next_bucket;
    size_t n_ready;
    int *ready_order;
    int *last_order;   /* ready_order of the last step */
    int *agreed_order; /* ready_order of the rank that decides, for the rebuild */
    struct tally__step_stats stats;
    struct tally__presence presence;
    unsigned char *stage;     /* TALLY__TOGETHER_BYTES (broadcast.h); jobs of lane 0 use it */
    tally_future *end_future; /* of the end of the step, if it was launched before wait */
    bool end_ran;             /* it was, and was waited for */
    int32_t *used; /* per parameter: 1 if this rank has a gradient; after the step, on how many.
                      Behind these n_params, the end of the step counts on its lane */
};

/* ddp.c: tally_ddp_create with an observer, whose user must live as long as the ddp; and freeing.
 * Collective, and local. */
int tally__ddp_create(tally_group *group, const tally_param *params, size_t n,
                      const tally_ddp_config *config, const struct tally__observer *observer,
                      tally_ddp **ddp);
void tally__ddp_free(tally_ddp *ddp);

/* params.c */
int tally__params_copy(tally_ddp *ddp, const tally_param *params, size_t n);
/* Once dtypes are known: checks arrays, orders parameters, and allocates gradients and means. */
int tally__params_place(tally_ddp *ddp);
void tally__params_free(tally_ddp *ddp);
/* In a job: all parameters but the ignored ones become root's; all buffers do. */
int tally__params_broadcast(tally_lane *lane, const tally_ddp *ddp, int root);
int tally__buffers_broadcast(tally_lane *lane, const tally_ddp *ddp, int root);

/* param_arrays.c: ARG naming two parameters with one name or with memory in common, or an array
 * that is not aligned. */
int tally__params_check_arrays(const tally_ddp *ddp);

/* param_compare.c: in a job, all ranks compare what they were given. */
int tally__params_compare(tally_lane *lane, const tally_ddp *ddp);

/* buckets.c */
/* Buckets for the parameters with a gradient, in this order; touches nothing else. Collective: on
 * failure all ranks fail. */
int tally__buckets_make(tally_ddp *ddp, const int *order, struct tally__buckets *buckets);
/* Makes them the ddp's. */
void tally__buckets_adopt(tally_ddp *ddp, const struct tally__buckets *buckets);
/* Afterwards: means that lay in the old buckets move to the new ones. */
void tally__buckets_move_means(tally_ddp *ddp, const struct tally__buckets *old);
/* Collective. */
void tally__buckets_free(tally_ddp *ddp, struct tally__buckets *buckets);
unsigned char *tally__slice(const tally_ddp *ddp, const struct tally__param *param);

/* param_memory.c: memory for the parameters that tally provides, until the group is closed.
 * Collective. */
int tally__param_memory_make(tally_ddp *ddp);
/* Where the parameters of a bucket lie one after the other, as their gradients do; NULL where they
 * do not. */
void *tally__bucket_run(const struct tally__bucket *bucket);

/* ddp_hook.c */
/* Makes all residuals plain, and passes on what is owned, as how says. Collective. Errors: NOMEM on
 * any rank: on all of them, and no residual is lost. */
int tally__ddp_move_residuals(tally_ddp *ddp, enum tally__move how);
/* Sets the hook that config or environment names. Collective. */
int tally__hook_start(tally_ddp *ddp);

/* launch.c: with the mutex held. The second launches every complete bucket whose turn it is. */
int tally__launch(tally_ddp *ddp, struct tally__bucket *bucket);
int tally__launch_complete(tally_ddp *ddp);
/* Without the mutex. Waits for all that was launched; the first failure counts, with its text. What
 * is delayed, or another rank's step, counts as beside the buckets. */
int tally__collect(tally_ddp *ddp);
/* On a lane. Leaves the mean of a bucket, or skips it if no rank has a gradient for it. */
int tally__bucket_reduce(tally_lane *lane, struct tally__bucket *bucket);
/* Its parts: gradients go into the bucket; the hook runs, and may leave the mean in this rank's
 * shard only if shard_starts is given; means go back. */
void tally__bucket_gather(const struct tally__bucket *bucket);
int tally__bucket_run_hook(tally_lane *lane, const struct tally__bucket *bucket,
                           const size_t *shard_starts);
void tally__bucket_spread(const struct tally__bucket *bucket);

/* reducer.c */
/* Ends a step that cannot be finished: gives the ddp's group up, waits for what was launched, and
 * returns status with the text there was. */
int tally__step_give_up(tally_ddp *ddp, int status);
void tally__step_reset(tally_ddp *ddp);
/* Takes part in a step of others with zeros. With presence agreed on already. Collective. */
int tally__shadow_step(tally_ddp *ddp);

/* step_end.c: with the mutex held, once every bucket was launched. Begins the end of the step,
 * unless that needs what only wait knows; then wait does. */
int tally__step_end_launch(tally_ddp *ddp);

/* join.c: says whether this rank has input, and learns who has; a job on lane 0. */
int tally__presence_job(tally_lane *lane, void *user);
/* The error of a step that config.join_stops ended. */
int tally__join_stopped(const tally_ddp *ddp);

/* Whether there is a parameter i, and this process may use it: a forked child may not. */
static inline bool tally__has_param(const tally_ddp *ddp, int i)
{
    return ddp && i >= 0 && (size_t)i < ddp->n_params && tally__is_owner(&ddp->group->owner);
}

/* TALLY_OK, ARG for NULL, or STATE in a forked child. Before any lock is taken: base/owner.h. */
int tally__check_ddp(const tally_ddp *ddp, const char *call);

/* The same, and STATE naming the call when a step is under way. */
int tally__check_between_steps(tally_ddp *ddp, const char *call);

/* Runs a job on the ddp's lane 0 and waits for it. The bytes it sends count as other_wire_bytes. */
int tally__ddp_run(tally_ddp *ddp, tally_job_fn job, void *user);

/* The same, after a part that may have failed on this rank, with status and the thread's error
 * text: then the job fails with them on all ranks before it does anything. job may be NULL: ranks
 * only agree on the status. */
int tally__ddp_agree(tally_ddp *ddp, int status, tally_job_fn job, void *user);

#endif
