/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the profile bench: a model with a backward pass, and what is timed of its steps. */
#ifndef TALLY_BENCH_PROFILE_STEPS_H
#define TALLY_BENCH_PROFILE_STEPS_H

#include <stdint.h>
#include <tally_extend.h>

#include "bench/backward.h"
#include "bench/hooks_input.h"
#include "bench/profile_bench.h"

/* A ddp with a hook, and where its gradients are. */
struct profile_side {
    tally_ddp *ddp;
    float **gradients;
};

/* The objects and arrays of one rank. */
struct profile_work {
    const struct profile_bench *bench;
    int rank;
    tally_group *group;
    tally_group *alone; /* of this rank */
    struct hooks_input input;
    float *source; /* the gradients of this rank */
    float *data;   /* the parameters, of all sides */
    struct backward backward;
    uint64_t *units; /* of backward, per parameter */
    size_t n_buckets;
    struct profile_side plain; /* allreduce among all ranks */
    struct profile_side coder; /* int8 in a group of one: a lane that codes and sends nothing */
};

/* Makes all except group, which is open. Collective. */
int profile_work_make(struct profile_work *work);
int profile_work_free(struct profile_work *work);

/* Collective over group. */
int profile_side_make(struct profile_work *work, tally_group *group, const char *hook,
                      struct profile_side *side);
int profile_side_free(struct profile_side *side);

enum profile_kind {
    PROFILE_BACKWARD,   /* backward without announcing anything; side is not used */
    PROFILE_BESIDE,     /* all gradients announced, then backward, then wait */
    PROFILE_OVERLAPPED, /* backward, announcing each gradient when it is complete; wait */
    PROFILE_AT_ONCE     /* all gradients announced; wait */
};

#define PROFILE_MAX_BUCKETS 512

/* Times in seconds, maxima over ranks: medians of all steps, or the shortest where it says so. */
struct profile_times {
    double step_s;
    double backward_s; /* in PROFILE_BACKWARD and PROFILE_BESIDE */
    double spread_s;   /* standard deviation of a rank's step, over steps and ranks */
    double comm_s;
    double wire_bytes; /* that this rank sent in a step */
    double bytes[PROFILE_MAX_BUCKETS];
    double sent[PROFILE_MAX_BUCKETS];     /* wire bytes */
    double bucket_s[PROFILE_MAX_BUCKETS]; /* start to end, the shortest */
};

/* Takes warm-up steps, then bench->n_steps that count. Collective. */
int profile_steps(struct profile_work *work, const struct profile_side *side,
                  enum profile_kind kind, struct profile_times *times);

/* The relative error of the sum of the means of bench->n_steps steps. Collective. Errors: INTERNAL
 * if it is no number. */
int profile_error(struct profile_work *work, const struct profile_side *side, double *error);

/* Makes values the maxima over all ranks. Collective. */
int profile_max(struct profile_work *work, double *values, size_t n);
int profile_barrier(tally_group *group);

/* The hosts of all ranks, and the most ranks that one of them has. Collective. */
int profile_count_hosts(struct profile_work *work, double *hosts, double *ranks_per_host);

#endif
