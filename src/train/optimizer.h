/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer object, and its part in the ddp's steps. */
#ifndef TALLY_TRAIN_OPTIMIZER_H
#define TALLY_TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp/ddp.h"
#include "ddp/ddp_state.h"
#include "optim/moments.h"
#include "optim/rule.h"
#include "train/loss_scale.h"
#include "train/zero.h"

/* The optimizer's data of one parameter. */
struct tally__updated {
    int group; /* -1: in none, never updated */
    struct tally__moments moments;
};

/* Durations of updates; guarded by the ddp's mutex. */
struct tally__update_times {
    uint64_t start_ns; /* of the updates after the last bucket, in the step under way; */
    uint64_t done_ns;  /* the update job writes it, and wait reads it afterwards; without */
    uint64_t sent_ns;  /* the time of sending updated parameters */
    uint64_t update_ns;
    uint64_t exposed_ns;
    uint64_t total_update_ns;
    uint64_t total_exposed_ns;
    unsigned long long n; /* updates in the totals */
};

struct tally_optimizer {
    tally_ddp *ddp;                /* NULL: the ddp was freed first */
    tally_optimizer_config config; /* its groups are not kept */
    size_t n_params;               /* of the ddp */
    size_t n_groups;
    struct tally__rule **rules;     /* per group */
    double *lr;                     /* per group; changes between steps only */
    struct tally__updated *updated; /* per parameter of the ddp */
    struct tally__zero *zero;       /* the shards of the state; NULL: every rank has all of it */
    bool overlaps;                  /* updates happen in the ddp's steps */
    bool waits;                     /* all updates wait for the last bucket */
    bool due;                       /* without overlap: means that were not used yet */
    unsigned long long n_updates;
    unsigned long long n_skipped;
    double norm; /* before clipping, in the last step; 0 without */
    struct tally__loss_scale loss;
    struct tally__update_times times;
};

/* TALLY_OK between steps; ARG for NULL; STATE inside a step and if the ddp was freed. Names the
 * call. */
int tally__optimizer_check(const tally_optimizer *optimizer, const char *call);

/* optimizer_state.c: fills state[0] with the optimizer's state, and, if it calls an averager,
 * state[1] and state[2] with those of the averager and of the averager's ddp. is_whole: for saving
 * one blob for all ranks. */
void tally__optimizer_state(tally_optimizer *optimizer, bool is_whole,
                            struct tally__state state[3]);

/* On a lane, after the hook: updates the parameters that this rank had a gradient for, or its
 * shard. */
int tally__update_bucket(tally_optimizer *optimizer, tally_lane *lane,
                         struct tally__bucket *bucket);

/* Updates the part of parameter i whose state this rank has, by its gradient times factor. */
int tally__update_param(tally_optimizer *optimizer, size_t i, const float *gradient, float factor);

/* The local gradient of an ignored parameter i, if it is in a group and this rank has input; else
 * NULL. */
float *tally__update_local(const tally_optimizer *optimizer, size_t i);

/* In the job that ends a step, when all ranks know which parameters have a mean: updates the
 * remaining parameters. Collective. */
int tally__update_end(tally_optimizer *optimizer, tally_lane *lane);

/* In wait, after a step with this status: counts the update; if the step counts, runs the averager,
 * if there is one. Returns the status, or the averager's error. Collective if the step counts. */
int tally__update_over(tally_optimizer *optimizer, int status, bool counts);

/* Records the time of the step's updates; returns the part that wait was kept waiting. With the
 * mutex held. */
uint64_t tally__update_take(tally_optimizer *optimizer, uint64_t called_ns);

#endif
