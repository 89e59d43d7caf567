/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile: what was measured of one training job, in one text file, from which steps on other
 * machines are computed (cost.h). The file is JSON with all keys in a fixed order, which are the
 * names of the fields below. Times are in seconds.
 */
#ifndef TALLY_TUNE_PROFILE_H
#define TALLY_TUNE_PROFILE_H

#include <stddef.h>

#include "tune/cost.h"

#define TALLY__PROFILE_VERSION 1
/* Longest name of a hook, as its text; longest other text. */
#define TALLY__PROFILE_NAME 200
#define TALLY__PROFILE_WORD 31

/* A hook's work on one bucket. */
struct tally__coding {
    double bytes;  /* one rank's contribution as it travels */
    double code_s; /* CPU time to encode, add and decode it */
};

struct tally__profile_bucket {
    double bytes;   /* of the gradients */
    double ready_s; /* from the first announcement to its last gradient, without communication */
};

struct tally__profile_hook {
    char name[TALLY__PROFILE_NAME + 1];
    double exchanges;             /* one after the other, for a bucket */
    double error;                 /* relative, of the sum over the steps measured */
    struct tally__coding *coding; /* one per bucket */
};

struct tally__profile {
    char library[TALLY__PROFILE_WORD + 1];
    char source[TALLY__PROFILE_WORD + 1]; /* the program that measured: "auto" */
    double hosts;
    double ranks_per_host;
    double lanes;
    double forward_s;      /* end of a step to the first announcement of the next */
    double backward_s;     /* first announcement to wait, without communication */
    double spread_s;       /* standard deviation of forward and backward, over ranks and steps */
    double cpu_share;      /* seconds that backward loses for each second of CPU that lanes use */
    double cpu_s_per_byte; /* CPU time of sending and receiving a byte */
    struct tally__link link;
    struct tally__link memory;
    size_t n_buckets;
    struct tally__profile_bucket *buckets;
    size_t n_hooks;
    struct tally__profile_hook *hooks; /* the first is allreduce, with any options */
};

/*
 * Reads a profile; name is that of the file, for messages. Errors: ARG naming the line and what was
 * expected there, NOMEM. profile_free frees what it read; also an empty profile.
 */
int tally__profile_read(const char *name, const char *text, size_t n,
                        struct tally__profile *profile);
void tally__profile_free(struct tally__profile *profile);

/* Allocates the buckets and hooks of a profile. Errors: NOMEM; then it is empty. */
int tally__profile_make(size_t n_buckets, size_t n_hooks, struct tally__profile *profile);

/* Writes the text, as far as room allows, with a NUL, and returns its whole length. */
size_t tally__profile_write(const struct tally__profile *profile, char *text, size_t room);

/* The hook of this name; NULL: none. */
const struct tally__profile_hook *tally__profile_hook(const struct tally__profile *profile,
                                                      const char *name);

#endif
