/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expected result of PowerSGD, by plain loops in double precision over all ranks' gradients.
 * From the library it takes only the random numbers that Q starts from, and a ddp's bucket layout.
 * And a model to try it on, with gradients that every rank can compute for all.
 */
#ifndef TALLY_TESTS_POWER_REFERENCE_H
#define TALLY_TESTS_POWER_REFERENCE_H

#include "support/ddp_model.h"

struct power_setting {
    size_t rank;
    double min_rate;
    bool feedback;
    bool warm_start;
    double epsilon;
    uint64_t seed;
    bool batched;
    /* A rank's residual lacks P times its own Q. Otherwise, as PyTorch has it, P times the mean of
     * all Q; while all ranks take part, the means are the same. */
    bool own_q;
};

/* Element e of rank's gradient number i in a step, as fp32 has it. */
typedef double power_value_fn(unsigned step, int rank, size_t i, size_t e);

/* A step: the ranks of the mask have gradients, the sum is divided by the divisor. */
struct power_step {
    unsigned number;
    unsigned active;
    double divisor;
    power_value_fn *value;
};

struct power_reference;

/* Ends the program for lack of memory. The model must stay. */
struct power_reference *power_reference_make(const struct power_setting *setting,
                                             const struct ddp_model *model, int world);
void power_reference_free(struct power_reference *reference);

/* A step of the parameters that are fp32, in the ddp's buckets of now. */
void power_reference_step(struct power_reference *reference, const tally_ddp *ddp,
                          const struct power_step *step);

/* Parameter i's mean, as the last step left it. */
const double *power_reference_mean(const struct power_reference *reference, size_t i);

/*
 * Goes on from the state of the ddp's hook, on all ranks. Error feedback sends now this direction,
 * now that: a rounding error decides which of two like ones comes first, and soon the reference and
 * the hook are on different ways, both right. Collective, between steps.
 */
int power_reference_take(struct power_reference *reference, tally_group *group, tally_ddp *ddp);

/*
 * Distance of the ddp's fp32 gradients from those means: the largest 2-norm of the difference,
 * divided by that of the mean, of all parameters; batched, of all together.
 */
double power_reference_distance(const struct power_reference *reference, const tally_ddp *ddp);

/* ---- a model ---- */

/* Matrices, vectors, a scalar, nothing, one row, one column, a convolution; one is not fp32. */
#define POWER_N_PARAMS 12
extern const struct ddp_spec power_specs[POWER_N_PARAMS];

/* Gradients that all ranks have in common, and what is each rank's and each step's own. */
double power_value(unsigned step, int rank, size_t i, size_t e);

/* A whole step of a ddp, with the gradients of value; parameters that are not fp32 have
 * ddp_model.h's. */
int power_run_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                   power_value_fn *value, unsigned step);

/* A ddp of the model: cap for all buckets, in bytes. */
int power_create(tally_group *group, const struct ddp_model *model, size_t cap, const char *hook,
                 tally_ddp **ddp);

#endif
