/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision. The application's parameters and buffers are fp32. Forward reads low copies of
 * them (param_dtype, buffer_dtype), backward writes low gradients (param_dtype), and these travel
 * as reduce_dtype; ddp casts them (ddp/grad_cast.h). Without mixed precision these functions do
 * nothing.
 */
#ifndef TALLY_TRAIN_MIXED_H
#define TALLY_TRAIN_MIXED_H

#include "ddp/ddp.h"

/* The low copy of a buffer, and the fp32 array that it copies; NULL: the buffer has none. */
struct tally__low_buffer {
    void *low;
    float *given;
};

struct tally__mixed {
    size_t n_params;
    void **low; /* per parameter, NULL for one without; NULL: mixed precision is off */
    size_t n_buffers;
    struct tally__low_buffer *buffers; /* per buffer; NULL: buffer_dtype is not set */
};

/* Checks the config, sets the dtypes of gradients, and allocates low copies. Errors: ARG;
 * UNSUPPORTED for a parameter that is not fp32; NOMEM. */
int tally__mixed_prepare(struct tally__mixed *mixed, tally_ddp *ddp);
void tally__mixed_free(struct tally__mixed *mixed);

/* Once, when the ddp works: fills the low copies, and low buffers replace the given ones in the
 * ddp. */
void tally__mixed_start(const struct tally__mixed *mixed, tally_ddp *ddp);

/* Copies parameters to their low copies: all, or one. */
void tally__mixed_refresh(const tally_ddp *ddp);
void tally__mixed_refresh_param(const tally_ddp *ddp, size_t i);

/* Copies the low buffers to the given ones. */
void tally__mixed_raise_buffers(const tally_ddp *ddp);

#endif
