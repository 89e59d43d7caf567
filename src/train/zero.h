/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZeRO-1: of every bucket a rank has a part (zero_shards.h). It keeps the optimizer's state of that
 * part alone, updates it, and sends the updated parameters to all.
 */
#ifndef TALLY_TRAIN_ZERO_H
#define TALLY_TRAIN_ZERO_H

#include "ddp/ddp.h"

/* How one bucket is shared out. */
struct tally__zero_part {
    bool is_shared; /* a group has some of its parameters; otherwise all is as without optimizer */
    bool keeps_means;     /* no group has some others: all means stay in place, on every rank */
    size_t *shard_starts; /* one entry more than there are ranks */
    size_t *bytes;        /* per rank: room for the sizes of an all-gather */
    unsigned char *used; /* per parameter: whether any rank has a gradient, in the step under way */
};

struct tally__zero {
    struct tally__zero_part *parts; /* per bucket; guarded as the bucket is */
    size_t *numbers;                /* memory of shard_starts and bytes */
    unsigned char *flags;           /* what used points into */
    double *squares; /* per parameter: the squared norm of its mean, if it lies in parts */
};

/* Shares all buckets out and makes room for this rank's state. Local. Errors: NOMEM. */
int tally__zero_make(tally_optimizer *optimizer);
void tally__zero_free(tally_optimizer *optimizer);

/* The elements of a shared bucket's parameter that rank has. */
struct tally__zero_run {
    size_t first;
    size_t n;
};
struct tally__zero_run tally__zero_run(const struct tally__bucket *bucket,
                                       const tally_bucket_param *entry, int rank);

/* Marks the ddp's sharded buckets and parameters, while the optimizer is the ddp's; and unmarks
 * them. */
void tally__zero_mark(const tally_optimizer *optimizer, bool is_sharded);

/* On a lane, for a bucket that is shared: ranks agree on what has a gradient, then the mean of this
 * rank's part is left in the bucket, or of all of it where the hook cannot do less. */
int tally__zero_reduce(tally_lane *lane, struct tally__bucket *bucket);

/* Behind it: updates this rank's part; then all ranks have all updated parameters. */
int tally__zero_update(tally_lane *lane, struct tally__bucket *bucket);

/* In a job at the end of a step: whether the means of this rank's parts are finite. */
bool tally__zero_is_finite(const tally_optimizer *optimizer);

/* In the job at the end of a step, where updates waited: all ranks learn the squared norms, in
 * squares; and then the updates of all buckets, by the means times factor. */
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
