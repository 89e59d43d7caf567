/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer object, and where the ddp's steps hand over to it. */
#ifndef TALLY_TRAIN_OPTIMIZER_H
#define TALLY_TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp/ddp.h"
#include "optim/moments.h"
#include "optim/rule.h"
#include "train/loss_scale.h"
#include "train/zero.h"

/* One parameter's share. */
struct tally__updated {
    int group; /* -1: in none, never updated */
    struct tally__moments moments;
};

/* Durations of updates; guarded by the ddp's mutex. */
struct tally__update_times {
    uint64_t start_ns; /* of those that waited for the last bucket, in the step under way; */
    uint64_t done_ns;  /* written by the job that did them, read once it is done; without what */
    uint64_t sent_ns;  /* sending updated parameters took */
    uint64_t update_ns;
    uint64_t exposed_ns;
    uint64_t total_update_ns;
    uint64_t total_exposed_ns;
    unsigned long long n; /* updates in the totals */
};

struct tally_optimizer {
    tally_ddp *ddp;                /* NULL: it was freed first */
    tally_optimizer_config config; /* its groups are not kept */
    size_t n_params;               /* of the ddp */
    size_t n_groups;
    struct tally__rule **rules;     /* per group */
    double *lr;                     /* per group; changes between steps only */
    struct tally__updated *updated; /* per parameter of the ddp */
    struct tally__zero *zero;       /* how they are shared out; NULL: every rank has all */
    bool overlaps;                  /* updates happen in the ddp's steps */
    bool waits;                     /* for the last bucket, before the first update */
    bool due;                       /* without overlap: means that were not used yet */
    unsigned long long n_updates;
    unsigned long long n_skipped;
    double norm; /* before clipping, in the last step; 0 without */
    struct tally__loss_scale loss;
    struct tally__update_times times;
};

/* TALLY_OK between steps; ARG for NULL; STATE inside a step and when the ddp is gone. Names the
 * call. */
int tally__optimizer_check(const tally_optimizer *optimizer, const char *call);

/* On a lane, after the hook: updates the parameters that this rank had a gradient for, or its
 * shard. */
int tally__update_bucket(tally_optimizer *optimizer, tally_lane *lane,
                         struct tally__bucket *bucket);

/* Updates what this rank has the state of, of parameter i, by its gradient times factor. */
int tally__update_param(tally_optimizer *optimizer, size_t i, const float *gradient, float factor);

/* The gradient of parameter i that nobody reduces, if a group has it and this rank has input; else
 * NULL. */
float *tally__update_local(const tally_optimizer *optimizer, size_t i);

/* At the end of a step, when all know who had a gradient for what: updates the rest. Collective. */
int tally__update_end(tally_optimizer *optimizer);

/* Behind a step that counts, whose update ended so: the averager's turn, if there is one. Returns
 * how the update ended, or why averaging failed. Collective. */
int tally__update_average(const tally_optimizer *optimizer, int updated);

/* Takes down how long the updates of the step took; returns how long wait saw them. With the
 * mutex held. */
uint64_t tally__update_take(tally_optimizer *optimizer, uint64_t called_ns);

#endif
