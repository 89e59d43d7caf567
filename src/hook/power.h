/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of PowerSGD, shared by its files. A matrix is approximated by P Q^T: it is one
 * parameter, or, batched, a whole bucket. Its factors are keyed by parameter (batched: by the
 * bucket's first), so they outlive bucket layouts.
 *
 * During consecutive steps the residual of a matrix is not stored: the array in residuals.h
 * (batched: the matrix's own) holds the corrected gradient, from which P Q^T must still be
 * subtracted (num/low_rank.h). residuals.h counts it as held, and has it written down before
 * another reader sees it; code here does not depend on its form.
 *
 * A rank subtracts what it sent: P times its own Q. PyTorch subtracts P times the mean of all Q:
 * the sum over the ranks is the same, and so are the means, but a rank's residual then also
 * accumulates the difference between its gradients and those of the others. Here it holds only what
 * no P covered, and a rank that leaves takes nothing with it that belongs to others.
 */
#ifndef TALLY_HOOK_POWER_H
#define TALLY_HOOK_POWER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "exchange/reduction.h"
#include "num/low_rank.h"
#include "tally_extend.h"

struct tally__power_options {
    size_t rank;
    uint64_t start; /* number of uncompressed steps at the start */
    double min_rate;
    bool feedback;
    bool warm_start;
    double epsilon;
    uint64_t seed;
    uint64_t report_every; /* steps */
    bool batched;
};

struct tally__power_matrix {
    struct tally__low_rank shape;
    float *p;     /* of the last step; NULL: no step yet */
    float *q;     /* of the last step; the next step starts from it */
    float *own_q; /* this rank's contribution to q. P own_q^T is to be subtracted from a held
                     residual; zeros: nothing */
    struct tally__holder holder; /* of its residuals: this matrix */
    /* Batched: */
    float *corrected;
    int n_parts;
    const tally_bucket_param *parts; /* of the bucket, in the layout in which they are held */
};

/* Squares of norms in the step that was measured last: of what this rank had to send for a bucket,
 * and of the part that it left out. */
struct tally__power_error {
    uint64_t step; /* steps of the hook before */
    double all;
    double left;
};

/* The plan of one bucket. */
struct tally__power_plan {
    unsigned generation; /* of the layout it was made for */
    int n_matrices;
    int *matrix; /* positions in the bucket of the parameters that are matrices */
    int n_rest;
    int *rest;      /* positions in the bucket of the parameters that travel unchanged */
    size_t p_count; /* elements of all P, of the rest, and of all Q */
    size_t rest_count;
    size_t q_count;
    size_t q_most; /* elements of the largest Q */
    struct tally__power_error error;
    float *message; /* room for the larger message */
    float *start;   /* room for the largest Q */
};

struct tally__power {
    struct tally__power_options options;
    pthread_mutex_t mutex; /* guards the following; plans and matrices belong to their bucket */
    size_t n_params;
    struct tally__power_matrix *matrices; /* n_params, by parameter */
    struct tally__power_plan *plans;      /* n_params, by a bucket's first parameter */
    unsigned generation;                  /* of the layout seen last */
    uint64_t n_steps;                     /* done before first_step */
    bool running;                         /* first_step and last_step count */
    unsigned long long first_step;
    unsigned long long last_step;
    uint64_t next_report;
    bool attached;
    size_t own_rank; /* in the last ddp it was attached to, and the number of ranks there */
    size_t n_ranks;
};

/* The residual of a parameter. */
static inline struct tally__residual *tally__power_residual(const tally_bucket_param *param)
{
    return &tally__reduction_here()->residuals->params[param->index];
}

/* power_plan.c */
/* The bucket's plan, made if needed, with all memory of the step. On a lane. Errors: NOMEM. */
int tally__power_plan_of(struct tally__power *power, const tally_bucket *bucket,
                         struct tally__power_plan **plan);
void tally__power_plan_clear(struct tally__power_plan *plan);
void tally__power_matrix_clear(struct tally__power_matrix *matrix);
/* Whether a matrix of this shape is worth compressing, as PyTorch decides it. */
bool tally__power_worth(const struct tally__power_options *options, size_t n, size_t m);

/* power_step.c: the reduce of the hooks. */
int tally__power_reduce(void *state, tally_lane *lane, const tally_bucket *bucket);

/* tally__hook_private.get_error. */
double tally__power_error(const void *state);

/* power_residual.c */
/* Holds the residual of a matrix, if it is not held: of the parameter, or, batched, of all
 * parameters of the bucket. On a lane. Errors: NOMEM; then nothing has changed. */
int tally__power_hold(const tally_bucket *bucket, const tally_bucket_param *param,
                      struct tally__power_matrix *matrix, bool batched);
/* Subtracts P own_q^T from the held residual, which stays held. */
void tally__power_take_away(struct tally__power_matrix *matrix, float *corrected);
/* Clears P own_q^T: nothing is to be subtracted from the held residual. */
void tally__power_forget_factors(struct tally__power_matrix *matrix);

/* power_state.c */
uint64_t tally__power_steps(const struct tally__power *power);
int tally__power_save(void *state, void *blob, size_t *bytes);
/* All residuals are plain. */
int tally__power_load(void *state, const tally_hook_blob *blobs, size_t n_blobs);

#endif
