/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casting gradients. A parameter has three dtypes: grad.dtype, in which backward writes the
 * gradient; reduce_dtype, in which it travels in the bucket; and dtype, that of the parameter and
 * of the mean. They are equal, or dtype is fp32 and grad.dtype is a half:
 *
 *   reduce_dtype     gradient -> bucket        bucket -> mean
 *   fp32             cast on the lane          the mean is the bucket's memory
 *   grad.dtype       nothing, or copied        cast on the lane, to a separate array
 *   the other half   cast on the lane          cast on the lane, to a separate array
 */
#ifndef TALLY_DDP_GRAD_CAST_H
#define TALLY_DDP_GRAD_CAST_H

#include "ddp/ddp.h"

/* Multiplies an array of floats of any width. */
void tally__scale_array(int dtype, size_t n, void *x, double factor);

/* Whether the mean does not replace the gradient, because its dtype differs. */
static inline bool tally__mean_is_apart(const struct tally__param *param)
{
    return param->dtype != param->grad.dtype;
}

/* The gradient goes into the bucket, and the hook's result becomes the mean. */
void tally__grad_gather(const struct tally__param *param, void *in_bucket);
void tally__grad_spread(const struct tally__param *param, const void *in_bucket);

#endif
