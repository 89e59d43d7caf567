/* SPDX-License-Identifier: Apache-2.0 */
/* The joint norm of the means of a step. */
#ifndef TALLY_TRAIN_NORM_H
#define TALLY_TRAIN_NORM_H

#include "ddp/ddp.h"

/* squares: per parameter, the squared norm of a sharded mean; or NULL. Errors: NUMERIC naming the
 * first parameter with an infinity or a NaN, or if the norm exceeds fp64. */
int tally__joint_norm(const tally_ddp *ddp, const double *squares, double *norm);

/* Multiplies a parameter's mean, if it has one. */
void tally__scale_mean(const struct tally__param *param, double factor);

#endif
