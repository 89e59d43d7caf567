/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic loss scaling: the application multiplies the loss by a scale, so that small gradients
 * survive in halves. If any rank has an infinity or a NaN, all ranks skip the step and undo it, and
 * the scale shrinks; after enough good steps it grows. Without a loss scale these functions do
 * nothing.
 */
#ifndef TALLY_TRAIN_LOSS_SCALE_H
#define TALLY_TRAIN_LOSS_SCALE_H

#include <stdbool.h>

#include "ddp/ddp.h"

/* A copy of a parameter's residuals from before the step under way. */
struct tally__kept {
    bool is_kept;
    bool overflowed; /* instead: its bucket has a gradient that is not finite, on some rank */
    struct tally__residual residual;
};

struct tally__loss_scale {
    double scale;             /* the next loss is multiplied by it; 0: there is no scaling */
    double last;              /* the scale of the last step's gradients */
    uint64_t n_good;          /* good steps since the scale changed */
    bool skips;               /* the last step was skipped */
    bool is_used;             /* the step under way has used scale, which is adapted after it */
    struct tally__kept *kept; /* per parameter; guarded as the bucket it is in */
};

/* Whether the scale and its inverse are finite in fp32. */
bool tally__is_loss_scale(double scale);

/* Whether the config's settings go together. Errors: ARG. */
int tally__loss_check_config(const tally_optimizer_config *config);

/* Errors: NOMEM. */
int tally__loss_make(tally_optimizer *optimizer);
void tally__loss_free(tally_optimizer *optimizer);

/* On a lane, before the hook: if a gradient of any rank is not finite, all ranks skip the bucket.
 * Otherwise its parameters' residuals are kept, and the bucket's factor removes the scale. */
int tally__loss_look(const tally_optimizer *optimizer, tally_lane *lane,
                     struct tally__bucket *bucket);

/* In the job that ends a step: all ranks agree whether it is skipped, and undo it then. Sets skips.
 * Collective. */
int tally__loss_end(tally_optimizer *optimizer, tally_lane *lane);

/* After a step, however it ended, with the ddp's mutex held: adapts the scale if the step used it,
 * and forgets what was kept for the step. */
void tally__loss_over(tally_optimizer *optimizer);

/* The factor that removes the scale from local gradients of ignored parameters, at the end of a
 * step. */
float tally__loss_factor(const tally_optimizer *optimizer);

#endif
