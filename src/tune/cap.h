/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket cap with which a step is shortest: packs the parameters of a profile (profile.h) into
 * buckets of other sizes, and replays the step. Pure arithmetic.
 */
#ifndef TALLY_TUNE_CAP_H
#define TALLY_TUNE_CAP_H

#include <stddef.h>

#include "tune/profile.h"

/* A parameter: its gradient, and the bucket of the profile that it is in. */
struct tally__cap_part {
    double bytes;
    size_t bucket;
};

struct tally__cap_question {
    const struct tally__profile *profile;
    const unsigned char *choice; /* per bucket: the hook by which it travels */
    /* All parameters, bucket by bucket, in the order in which they become ready. */
    const struct tally__cap_part *parts;
    size_t n;
};

struct tally__cap_answer {
    size_t cap_bytes;
    double step_s; /* with this cap */
    double now_s;  /* with the buckets of the profile */
};

/* Errors: NOMEM. */
int tally__cap_choose(const struct tally__cap_question *question, struct tally__cap_answer *answer);

#endif
