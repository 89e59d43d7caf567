/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZeRO-1: a rank owns a shard of every bucket (zero_shards.h). It keeps only that shard's optimizer
 * state, updates the shard's parameters, and sends them to all ranks.
 */
#ifndef TALLY_TRAIN_ZERO_H
#define TALLY_TRAIN_ZERO_H

#include "ddp/ddp.h"

/* The shards of one bucket. */
struct tally__bucket_shards {
    bool is_sharded;     /* only if some of its parameters are in a group */
    bool keeps_means;    /* other parameters are in no group: every rank keeps all means */
    size_t *starts;      /* one entry more than there are ranks */
    size_t *bytes;       /* per rank: the sizes of an all-gather */
    unsigned char *used; /* per parameter: whether any rank has a gradient, in the step under way */
};

struct tally__zero {
    struct tally__bucket_shards *buckets; /* per bucket; guarded as the bucket is */
    size_t *numbers;                      /* memory of starts and bytes */
    unsigned char *flags;                 /* the memory of used */
    double *squares; /* per parameter: the squared norm of its mean, if it is sharded */
};

/* Shards all buckets and allocates this rank's state. Local. Errors: NOMEM. */
int tally__zero_make(tally_optimizer *optimizer);
void tally__zero_free(tally_optimizer *optimizer);

/* The elements of a sharded bucket's parameter that rank owns. */
struct tally__zero_run {
    size_t first;
    size_t n;
};
struct tally__zero_run tally__zero_run(const struct tally__bucket *bucket,
                                       const tally_bucket_param *entry, int rank);

/* Marks the ddp's sharded buckets and parameters when the optimizer is created, and unmarks them
 * when it is freed. */
void tally__zero_mark(const tally_optimizer *optimizer, bool is_sharded);

/* On a lane, for a sharded bucket: ranks agree which parameters have a gradient, then the hook
 * leaves the mean of this rank's shard, or of the whole bucket if it cannot do less. */
int tally__zero_reduce(tally_lane *lane, struct tally__bucket *bucket);

/* Afterwards: updates this rank's shard; then all ranks have all updated parameters. */
int tally__zero_update(tally_lane *lane, struct tally__bucket *bucket);

/* In a job at the end of a step: whether the means of this rank's shards are finite. */
bool tally__zero_is_finite(const tally_optimizer *optimizer);

/* In the job at the end of a step, if updates waited: all ranks learn the squared norms, in
 * squares; then the updates of all buckets, by the means times factor. */
int tally__zero_norms(tally_lane *lane, tally_optimizer *optimizer);
int tally__zero_update_all(tally_lane *lane, tally_optimizer *optimizer, float factor);

/*
 * zero_state.c: the state of all ranks, on root; NULL on others. Without wants, which counts on
 * root, only its size is right. Collective. Errors: ARG for root, NOMEM, those of any exchange: on
 * all ranks.
 */
struct tally__updated;
int tally__zero_collect(tally_optimizer *optimizer, int root, bool wants,
                        struct tally__updated **whole);
void tally__zero_collected_free(const tally_optimizer *optimizer, struct tally__updated *whole);

#endif
