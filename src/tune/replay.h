/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays one step: backward makes buckets ready, a bucket starts when it is ready and its lane is
 * free, codes, takes its turn on the line, and ends after its rounds. While lanes use CPU time that
 * backward shares, backward takes longer, and later buckets are ready later. Pure arithmetic.
 */
#ifndef TALLY_TUNE_REPLAY_H
#define TALLY_TUNE_REPLAY_H

#include <stddef.h>

#include "tune/cost.h"

#define TALLY__REPLAY_MOST_LANES 64

/* A bucket in the replay: filled before it, except the span. Times count from the first
 * announcement of the step. */
struct tally__replay_bucket {
    double ready_s; /* of backward alone */
    struct tally__load load;
    double cpu_s; /* that the lane uses for it */
    /* The span, as replayed. */
    double start_s;
    double done_s;
};

struct tally__replay {
    double backward_s; /* alone */
    double cpu_share;  /* seconds that backward loses for each second of CPU that lanes use; 0..1 */
    size_t lanes;
    size_t n;
    struct tally__replay_bucket *buckets;
};

struct tally__replayed {
    double backward_s; /* with communication beside it */
    double exposed_s;  /* from its end to that of the last bucket */
};

struct tally__replayed tally__replay(struct tally__replay *replay);

#endif
