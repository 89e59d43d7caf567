/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic loss scaling: gradients are of the loss times a scale, so that small ones survive in
 * halves. A step in which any rank has an infinity or a NaN is skipped on all ranks, as if it had
 * not been, and the scale shrinks; after enough good steps it grows. Without it these functions do
 * nothing.
 */
#ifndef TALLY_TRAIN_LOSS_SCALE_H
#define TALLY_TRAIN_LOSS_SCALE_H

#include <stdbool.h>

#include "ddp/ddp.h"

/* A parameter's residuals as they were before the step under way. */
struct tally__kept {
    bool is_kept;
    struct tally__residual residual;
};

struct tally__loss_scale {
    double scale;             /* what the next loss is multiplied by; 0: there is no scaling */
    double used;              /* what the gradients of the last step were multiplied by */
    uint64_t n_good;          /* steps since it changed last */
    bool skips;               /* the last step was skipped */
    struct tally__kept *kept; /* per parameter; guarded as the bucket it is in */
};

/* Whether it is neither infinite in fp32 nor so small that dividing by it would be. */
bool tally__is_loss_scale(double scale);

/* Whether the config's settings go together. Errors: ARG. */
int tally__loss_check_config(const tally_optimizer_config *config);

/* Errors: NOMEM. */
int tally__loss_make(tally_optimizer *optimizer);
void tally__loss_free(tally_optimizer *optimizer);

/* On a lane, before the hook: where a gradient of any rank is not finite, all ranks leave the
 * bucket as it is: it counts as skipped. Otherwise the residuals of its parameters are kept. */
int tally__loss_look(tally_lane *lane, struct tally__bucket *bucket);

/* At the end of a step: all ranks agree whether it is skipped, and undo what it has done. Sets
 * skips. Collective. */
int tally__loss_end(tally_optimizer *optimizer);

/* Behind a step, however it ended: what was kept for it is for no other. */
void tally__loss_forget(tally_ddp *ddp);

/* On a lane: gradients of the scaled loss become such of the loss itself, in buckets of fp32 before
 * the hook, so that residuals do not know of scales; in others, which need it, behind the hook. */
void tally__loss_unscale(const struct tally__bucket *bucket, size_t n, void *gradient);
void tally__loss_unscale_late(const struct tally__bucket *bucket, int dtype, size_t n, void *mean);

/* What a gradient that nobody reduces is to be multiplied by, at the end of a step. */
float tally__loss_factor(const tally_optimizer *optimizer);

#endif
