/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The observer of a ddp: the code that uses the means, such as an optimizer. ddp calls this table
 * and knows nothing else about its observer. An entry may be NULL: the observer has nothing to do
 * then, and a NULL reduce is tally__bucket_reduce. All entries of tally__observer_none are NULL.
 *
 * The observer may write these fields of ddp.h, which ddp reads:
 *
 *   struct tally__gradient      dtype, reduce_dtype     in prepare
 *   struct tally__mean          sharded                 between steps
 *                               last = NULL             in step_end: it drops the mean
 *   struct tally__bucket        sharded                 between steps
 *                               factor, skipped         in reduce
 *   struct tally__bucket_times  after_ns, aside_bytes   in reduce and after_reduce
 *                               late_bytes, late_ns     in step_end
 *   struct tally__buckets       pinned                  between steps
 *   struct tally_ddp            ends_in_wait            between steps
 */
#ifndef TALLY_DDP_OBSERVER_H
#define TALLY_DDP_OBSERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "tally.h"

struct tally__bucket;
struct tally__trace_step;

/* The observer's knowledge of the parameters, for check mode and metrics. */
struct tally__observed {
    bool averages;     /* it averages parameters that ranks update separately */
    bool may_differ;   /* parameters may differ between ranks until it averages again */
    const bool *equal; /* per parameter: all ranks averaged it since the last step; or NULL */
    unsigned long long skipped; /* steps that it dropped: they changed no parameter */
};

struct tally__observer {
    void *user;

    /* Creation on this rank: config, parameters and buffers have been copied. May change the dtypes
     * of gradients. An error fails the creation on all ranks. */
    int (*prepare)(void *user, tally_ddp *ddp);
    /* Refuses a hook that does not go with the observer: the same answer on all ranks. */
    int (*accept_hook)(void *user, const tally_hook *hook);
    /* In a job: parameters and buffers have just become one rank's. */
    void (*values_changed)(void *user);

    /* In a job, under config.join: a step begins; root is the highest rank with input. */
    int (*step_begin)(void *user, tally_lane *lane, int root);
    /* On the bucket's lane: leaves the mean, or sets bucket->skipped. */
    int (*reduce)(void *user, tally_lane *lane, struct tally__bucket *bucket);
    /* On the bucket's lane, after reduce, unless the bucket was skipped: uses the mean. Sets
     * bucket->now.after_ns if it did something. */
    int (*after_reduce)(void *user, tally_lane *lane, struct tally__bucket *bucket);
    /* In a job on lane 0, after all buckets, maybe before the application calls wait: all ranks
     * know the means, and which parameters have one. Collective. */
    int (*step_end)(void *user, tally_lane *lane);
    /* In wait, with the ddp's mutex held: records the observer's times of this step; returns the
     * part that wait was kept waiting since called_ns. */
    uint64_t (*step_times)(void *user, uint64_t called_ns);
    /* In wait, after step_times: fills in what traces and metrics say of updates and loss
     * scaling. */
    void (*step_facts)(void *user, struct tally__trace_step *step);
    /* At the end of wait or of a step without input, however it went. counts: the step has means.
     * Returns status, or the observer's own error. Collective if the step counts. */
    int (*step_over)(void *user, int status, bool counts);

    struct tally__observed (*ask)(const void *user);
};

extern const struct tally__observer tally__observer_none;

#endif
