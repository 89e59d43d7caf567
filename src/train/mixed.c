/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision: low copies of parameters and buffers, and the casts around a bucket's hook. Not
 * responsible for when these happen (launch.c, step_end.c). Gathering and spreading runs on lanes,
 * for different parameters at once; the rest on the application's thread, between steps.
 */
#include "train/mixed.h"

#include "base/memory.h"
#include "base/status.h"
#include "num/num.h"

#define CHUNK 1024

static bool is_half(int dtype)
{
    return dtype == TALLY_F16 || dtype == TALLY_BF16;
}

static void lower(int dtype, size_t n, const float *x, uint16_t *y)
{
    (dtype == TALLY_F16 ? tally__f32_to_f16 : tally__f32_to_bf16)(n, x, y);
}

static void raise_to(int dtype, size_t n, const uint16_t *x, float *y)
{
    (dtype == TALLY_F16 ? tally__f16_to_f32 : tally__bf16_to_f32)(n, x, y);
}

/* From one half to the other. */
static void convert(const struct tally__param *param, const uint16_t *x, uint16_t *y)
{
    for (size_t i = 0; i < param->n; i += CHUNK) {
        size_t n = param->n - i < CHUNK ? param->n - i : CHUNK;
        float wide[CHUNK];

        raise_to(param->grad_dtype, n, x + i, wide);
        lower(param->reduce_dtype, n, wide, y + i);
    }
}

/* ---- parameters ---- */

int tally__mixed_check(const tally_ddp_config *config)
{
    const struct {
        const char *name;
        int dtype;
    } given[] = {{"param_dtype", config->param_dtype},
                 {"reduce_dtype", config->reduce_dtype},
                 {"buffer_dtype", config->buffer_dtype}};

    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (given[i].dtype != 0 && !is_half(given[i].dtype)) {
            return tally__fail(TALLY_ARG,
                               "config: %s is %d; accepted: 0, TALLY_F16 (%d), TALLY_BF16 (%d)",
                               given[i].name, given[i].dtype, TALLY_F16, TALLY_BF16);
        }
    }
    if (config->reduce_dtype && !config->param_dtype) {
        return tally__fail(TALLY_ARG, "config: reduce_dtype goes with param_dtype; without, the "
                                      "hooks fp16 and bf16 make fp32 gradients travel as halves");
    }
    return TALLY_OK;
}

static int make_param(const tally_ddp *ddp, struct tally__param *param)
{
    if (param->dtype != TALLY_F32) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "parameter '%s' has dtype %d: with config.param_dtype all but those "
                           "flagged IGNORED are TALLY_F32",
                           param->name, param->dtype);
    }
    param->grad_dtype = ddp->config.param_dtype;
    param->reduce_dtype = ddp->config.reduce_dtype;
    param->grad_bytes = param->n * tally_dtype_bytes(param->grad_dtype);
    param->low = tally__alloc(param->grad_bytes, "a low copy");
    if (!param->low) {
        return TALLY_NOMEM;
    }
    if (param->reduce_dtype != TALLY_F32 && !(param->flags & TALLY_PARAM_FROZEN)) {
        param->own_mean = tally__alloc(param->bytes, "a mean gradient");
        if (!param->own_mean) {
            return TALLY_NOMEM;
        }
    }
    return TALLY_OK;
}

int tally__mixed_params_make(tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params && ddp->config.param_dtype; i++) {
        if (!(ddp->params[i].flags & TALLY_PARAM_IGNORED)) {
            TRY(make_param(ddp, &ddp->params[i]));
        }
    }
    return TALLY_OK;
}

void tally__mixed_refresh_param(const struct tally__param *param)
{
    if (param->low) {
        lower(param->grad_dtype, param->n, param->data, param->low);
    }
}

void tally__mixed_refresh(const tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        tally__mixed_refresh_param(&ddp->params[i]);
    }
}

void *tally_ddp_low(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? ddp->params[i].low : NULL;
}

int tally_ddp_refresh_low(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_refresh_low"));
    tally__mixed_refresh(ddp);
    return TALLY_OK;
}

/* ---- gradients ---- */

void *tally__mixed_place(const struct tally__param *param, void *in_bucket)
{
    if (!param->low) {
        return param->grad;
    }
    return param->own_mean ? param->own_mean : in_bucket;
}

void tally__mixed_gather(const struct tally__param *param, void *in_bucket)
{
    if (param->grad_dtype == param->reduce_dtype) {
        tally__copy(param->grad_bytes, param->grad, in_bucket);
    } else if (param->reduce_dtype == TALLY_F32) {
        raise_to(param->grad_dtype, param->n, param->grad, in_bucket);
    } else {
        convert(param, param->grad, in_bucket);
    }
}

void tally__mixed_spread(const struct tally__param *param, const void *in_bucket)
{
    if (param->own_mean) {
        raise_to(param->reduce_dtype, param->n, in_bucket, param->own_mean);
    } else if (param->place != in_bucket) {
        tally__copy(param->bytes, in_bucket, param->place);
    }
}

void tally__mixed_carry_means(tally_ddp *ddp, const struct tally__buckets *old)
{
    for (size_t k = 0; k < ddp->n_order; k++) {
        const tally_bucket_param *was = &old->params[k];
        struct tally__param *param = &ddp->params[was->index];

        if (param->low && !param->own_mean) {
            tally__copy(param->bytes, was->gradient, param->place);
            param->mean = param->mean ? param->place : NULL;
        }
    }
}

/* ---- buffers ---- */

int tally__mixed_buffers_make(tally_ddp *ddp, const tally_ddp_config *config)
{
    ddp->low_buffers = tally__alloc_array(ddp->n_buffers, sizeof *ddp->low_buffers, "buffers");
    if (!ddp->low_buffers) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < ddp->n_buffers && config->buffer_dtype; i++) {
        const tally_buffer *buffer = &ddp->buffers[i];

        if (buffer->dtype != TALLY_F32) {
            continue;
        }
        if (buffer->bytes % sizeof(float) != 0) {
            return tally__fail(TALLY_ARG,
                               "buffer %zu has %zu bytes: not a number of floats; set its dtype", i,
                               buffer->bytes);
        }
        ddp->low_buffers[i].low = tally__alloc(buffer->bytes / 2, "a low copy of a buffer");
        if (!ddp->low_buffers[i].low) {
            return TALLY_NOMEM;
        }
    }
    return TALLY_OK;
}

void tally__mixed_buffers_lower(tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        struct tally__low_buffer *low = &ddp->low_buffers[i];
        tally_buffer *buffer = &ddp->buffers[i];

        if (low->low) {
            low->given = buffer->data;
            lower(ddp->config.buffer_dtype, buffer->bytes / sizeof(float), low->given, low->low);
            buffer->data = low->low;
            buffer->bytes /= 2;
            buffer->dtype = ddp->config.buffer_dtype;
        }
    }
}

void tally__mixed_buffers_raise(const tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        const tally_buffer *buffer = &ddp->buffers[i];

        if (ddp->low_buffers[i].given) {
            raise_to(buffer->dtype, buffer->bytes / sizeof(uint16_t), buffer->data,
                     ddp->low_buffers[i].given);
        }
    }
}

void tally__mixed_buffers_free(tally_ddp *ddp)
{
    for (size_t i = 0; ddp->low_buffers && i < ddp->n_buffers; i++) {
        tally__free(ddp->low_buffers[i].low);
    }
    tally__free(ddp->low_buffers);
}

void *tally_ddp_low_buffer(const tally_ddp *ddp, int i)
{
    return ddp && i >= 0 && (size_t)i < ddp->n_buffers && tally__is_owner(&ddp->group->owner)
               ? ddp->low_buffers[i].low
               : NULL;
}
