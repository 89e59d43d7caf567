/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision. Masters are fp32: the application's parameters. Forward reads low copies of them
 * (param_dtype), backward writes low gradients (param_dtype), these travel as reduce_dtype, and the
 * mean is fp32 again:
 *
 *   reduce_dtype     gradient -> bucket        bucket -> mean
 *   fp32             cast on the lane          the mean is the bucket's memory
 *   param_dtype      nothing, or copied        cast on the lane, to an array of its own
 *   the other half   cast on the lane          cast on the lane, to an array of its own
 *
 * Without mixed precision these functions copy, or do nothing.
 */
#ifndef TALLY_TRAIN_MIXED_H
#define TALLY_TRAIN_MIXED_H

#include "ddp/ddp.h"

/* Whether the dtypes of a config go together. Errors: ARG. */
int tally__mixed_check(const tally_ddp_config *config);

/* Says what gradients are written as and travel as, and makes low copies and room for means.
 * Errors: UNSUPPORTED for a master that is not fp32, NOMEM. */
int tally__mixed_params_make(tally_ddp *ddp);

/* Brings low copies in line with the masters: all, or one. */
void tally__mixed_refresh(const tally_ddp *ddp);
void tally__mixed_refresh_param(const struct tally__param *param);

/* Where steps leave the mean of a parameter that has this place in its bucket. */
void *tally__mixed_place(const struct tally__param *param, void *in_bucket);

/* A gradient as it was written, to its place in the bucket. */
void tally__mixed_gather(const struct tally__param *param, void *in_bucket);
/* And back: what the hook left there, to the mean. */
void tally__mixed_spread(const struct tally__param *param, const void *in_bucket);

/* Means that are in buckets move with them. */
void tally__mixed_carry_means(tally_ddp *ddp, const struct tally__buckets *old);

/* Room for low copies of buffers; errors: ARG, NOMEM. Then, once: they take the place of the arrays
 * given. After each step: those arrays get what the low copies are. */
int tally__mixed_buffers_make(tally_ddp *ddp, const tally_ddp_config *config);
void tally__mixed_buffers_lower(tally_ddp *ddp);
void tally__mixed_buffers_raise(const tally_ddp *ddp);
void tally__mixed_buffers_free(tally_ddp *ddp);

#endif
