/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision: low copies of parameters and buffers. Not responsible for casting gradients
 * (ddp/grad_cast.c). The application's thread enters between steps; an optimizer's updates refresh
 * low copies on lanes, for different parameters at once.
 */
#include "train/mixed.h"

#include "base/memory.h"
#include "base/status.h"
#include "num/reduce.h"
#include "train/training.h"

static bool is_half(int dtype)
{
    return dtype == TALLY_F16 || dtype == TALLY_BF16;
}

static int check_config(const tally_ddp_config *config)
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

/* ---- parameters ---- */

static int prepare_param(const tally_ddp_config *config, struct tally__param *param, void **low)
{
    if (param->dtype != TALLY_F32) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "parameter '%s' has dtype %d: with config.param_dtype all but those "
                           "flagged IGNORED are TALLY_F32",
                           param->name, param->dtype);
    }
    param->grad.dtype = config->param_dtype;
    param->grad.reduce_dtype = config->reduce_dtype;
    param->grad.bytes = param->n * tally_dtype_bytes(param->grad.dtype);
    *low = tally__alloc(param->grad.bytes, "a low copy");
    return *low ? TALLY_OK : TALLY_NOMEM;
}

static int prepare_params(struct tally__mixed *mixed, tally_ddp *ddp)
{
    if (!ddp->config.param_dtype) {
        return TALLY_OK;
    }
    mixed->low = tally__alloc_array(ddp->n_params, sizeof *mixed->low, "low copies");
    if (!mixed->low) {
        return TALLY_NOMEM;
    }
    mixed->n_params = ddp->n_params;
    for (size_t i = 0; i < ddp->n_params; i++) {
        if (!(ddp->params[i].flags & TALLY_PARAM_IGNORED)) {
            TRY(prepare_param(&ddp->config, &ddp->params[i], &mixed->low[i]));
        }
    }
    return TALLY_OK;
}

/* The low copy of parameter i, or NULL. */
static void *low_of(const tally_ddp *ddp, size_t i)
{
    void **low = tally__training_of(ddp)->mixed.low;

    return low ? low[i] : NULL;
}

void tally__mixed_refresh_param(const tally_ddp *ddp, size_t i)
{
    void *low = low_of(ddp, i);

    if (low) {
        tally__cast(TALLY_F32, ddp->config.param_dtype, ddp->params[i].n, ddp->params[i].data, low);
    }
}

void tally__mixed_refresh(const tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        tally__mixed_refresh_param(ddp, i);
    }
}

void *tally_ddp_low(const tally_ddp *ddp, int i)
{
    return tally__has_param(ddp, i) ? low_of(ddp, (size_t)i) : NULL;
}

int tally_ddp_refresh_low(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_refresh_low"));
    tally__mixed_refresh(ddp);
    return TALLY_OK;
}

/* ---- buffers ---- */

static int prepare_buffers(struct tally__mixed *mixed, const tally_ddp *ddp)
{
    if (!ddp->config.buffer_dtype) {
        return TALLY_OK;
    }
    mixed->buffers = tally__alloc_array(ddp->n_buffers, sizeof *mixed->buffers, "buffers");
    if (!mixed->buffers) {
        return TALLY_NOMEM;
    }
    mixed->n_buffers = ddp->n_buffers;
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        const tally_buffer *buffer = &ddp->buffers[i];

        if (buffer->dtype != TALLY_F32) {
            continue;
        }
        if (buffer->bytes % sizeof(float) != 0) {
            return tally__fail(TALLY_ARG,
                               "buffer %zu has %zu bytes: not a number of floats; set its dtype", i,
                               buffer->bytes);
        }
        mixed->buffers[i].low = tally__alloc(buffer->bytes / 2, "a low copy of a buffer");
        if (!mixed->buffers[i].low) {
            return TALLY_NOMEM;
        }
    }
    return TALLY_OK;
}

static void replace_buffer(tally_buffer *buffer, int dtype, struct tally__low_buffer *low)
{
    low->given = buffer->data;
    tally__cast(TALLY_F32, dtype, buffer->bytes / sizeof(float), low->given, low->low);
    buffer->data = low->low;
    buffer->bytes /= 2;
    buffer->dtype = dtype;
}

void tally__mixed_raise_buffers(const tally_ddp *ddp)
{
    const struct tally__mixed *mixed = &tally__training_of(ddp)->mixed;

    for (size_t i = 0; i < mixed->n_buffers; i++) {
        const tally_buffer *buffer = &ddp->buffers[i];

        if (mixed->buffers[i].given) {
            tally__cast(buffer->dtype, TALLY_F32, buffer->bytes / sizeof(uint16_t), buffer->data,
                        mixed->buffers[i].given);
        }
    }
}

void *tally_ddp_low_buffer(const tally_ddp *ddp, int i)
{
    const struct tally__mixed *mixed;

    if (!ddp || i < 0 || !tally__is_creator(&ddp->group->creator)) {
        return NULL;
    }
    mixed = &tally__training_of(ddp)->mixed;
    return (size_t)i < mixed->n_buffers ? mixed->buffers[i].low : NULL;
}

/* ---- both ---- */

int tally__mixed_prepare(struct tally__mixed *mixed, tally_ddp *ddp)
{
    TRY(check_config(&ddp->config));
    TRY(prepare_buffers(mixed, ddp));
    return prepare_params(mixed, ddp);
}

void tally__mixed_start(const struct tally__mixed *mixed, tally_ddp *ddp)
{
    tally__mixed_refresh(ddp);
    for (size_t i = 0; i < mixed->n_buffers; i++) {
        if (mixed->buffers[i].low) {
            replace_buffer(&ddp->buffers[i], ddp->config.buffer_dtype, &mixed->buffers[i]);
        }
    }
}

void tally__mixed_free(struct tally__mixed *mixed)
{
    for (size_t i = 0; i < mixed->n_params; i++) {
        tally__free(mixed->low[i]);
    }
    for (size_t i = 0; i < mixed->n_buffers; i++) {
        tally__free(mixed->buffers[i].low);
    }
    tally__free(mixed->low);
    tally__free(mixed->buffers);
}
