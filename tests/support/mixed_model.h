/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of the ddp tests in mixed precision: fp32 masters, low gradients, and the means that
 * must come out by a literal reference: each rank's low gradient cast to what it travels as, added
 * in rank order, divided, rounded to that, cast up.
 */
#ifndef TALLY_TESTS_MIXED_MODEL_H
#define TALLY_TESTS_MIXED_MODEL_H

#include "support/ddp_model.h"

/* One way to set it up. */
struct mixed_case {
    int param_dtype;
    int reduce_dtype;
    bool copies; /* the application has its own gradient arrays */
};

#define MIXED_N_CASES 8
extern const struct mixed_case mixed_cases[MIXED_N_CASES];

/* A scalar, a matrix, nothing, one that hooks may take where it lies, a frozen one, and an ignored
 * one of another dtype. */
extern const struct ddp_spec mixed_specs[];
#define MIXED_N_PARAMS 6

/* A model whose masters are rank's own, and a config for it. */
int mixed_make(struct ddp_model *model, const struct mixed_case *of, int rank,
               tally_ddp_config *config);

/* One element of dtype F16, BF16 or F32. */
double mixed_get(int dtype, const void *array, size_t e);
void mixed_put(int dtype, void *array, size_t e, double value);

/* Rank's low gradient of parameter i. */
void mixed_fill(const struct ddp_model *model, const tally_ddp *ddp, const struct mixed_case *of,
                size_t i, unsigned seed, int rank);

/* The reference for one element. */
float mixed_mean(const struct mixed_case *of, size_t i, size_t e, struct ddp_mean mean);

/* Number of elements of parameter i's mean that differ from it, to the bit. */
size_t mixed_wrong(const struct ddp_model *model, const tally_ddp *ddp, const struct mixed_case *of,
                   size_t i, struct ddp_mean mean);

/* Number of elements of low copies that are not the rounded masters; the ignored one is skipped. */
size_t mixed_wrong_lows(const struct ddp_model *model, const tally_ddp *ddp, int param_dtype);

/* A whole step on all parameters that are not delayed, and its means are right. */
int mixed_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
               const struct mixed_case *of, unsigned seed);
int mixed_right_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                     const struct mixed_case *of, unsigned seed);

#endif
