/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: copying what the application said, checking it, comparing it between ranks, and
 * making values equal on all. The thread that creates the ddp enters; what involves others runs as
 * a job.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/compare.h"
#include "ddp/ddp.h"
#include "ddp/mixed.h"

static bool has_gradient(unsigned flags)
{
    return (flags & (TALLY_PARAM_FROZEN | TALLY_PARAM_IGNORED)) == 0;
}

/* Whether strides describe the elements without gaps or overlaps: row-major but for the order of
 * dimensions. Dimensions of one element may have any stride, and so may all where there is none. */
static bool is_dense(const tally_param *param)
{
    size_t expected = 1;
    int n_left = 0;

    for (int d = 0; d < param->n_dims; d++) {
        if (param->shape[d] == 0) {
            return true;
        }
        n_left += param->shape[d] > 1;
    }
    /* Each turn finds the next dimension outwards, or none. */
    while (n_left > 0) {
        int found = -1;

        for (int d = 0; d < param->n_dims; d++) {
            if (param->shape[d] > 1 && param->strides[d] == expected) {
                found = d;
            }
        }
        if (found < 0) {
            return false;
        }
        expected *= param->shape[found];
        n_left--;
    }
    return true;
}

static int count_elements(const tally_param *param, size_t *n)
{
    size_t count = 1;

    for (int d = 0; d < param->n_dims; d++) {
        if (param->shape[d] != 0 && count > SIZE_MAX / 16 / param->shape[d]) {
            return tally__fail(TALLY_ARG, "parameter '%s' has too many elements", param->name);
        }
        count *= param->shape[d];
    }
    *n = count;
    return TALLY_OK;
}

static int check_param(const tally_param *param, size_t i)
{
    unsigned known =
        TALLY_PARAM_FROZEN | TALLY_PARAM_IGNORED | TALLY_PARAM_DELAYED | TALLY_PARAM_SPARSE;

    if (param->size < sizeof *param) {
        return tally__fail(TALLY_ARG, "parameter %zu: size is %zu, expected at least %zu", i,
                           param->size, sizeof *param);
    }
    if (!param->name || param->name[0] == '\0') {
        return tally__fail(TALLY_ARG, "parameter %zu has no name", i);
    }
    if ((param->flags & ~known) != 0) {
        return tally__fail(TALLY_ARG, "parameter '%s' has unknown flags %#x", param->name,
                           param->flags & ~known);
    }
    if (param->flags & TALLY_PARAM_SPARSE) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "parameter '%s' has a sparse gradient: tally reduces dense ones only",
                           param->name);
    }
    if (param->dtype < TALLY_F32 || param->dtype > TALLY_BF16) {
        return tally__fail(TALLY_ARG, "parameter '%s' has dtype %d; accepted: f32 f64 f16 bf16",
                           param->name, param->dtype);
    }
    if (param->n_dims < 0 || (param->n_dims > 0 && !param->shape)) {
        return tally__fail(TALLY_ARG, "parameter '%s' has %d dimensions and %s shape", param->name,
                           param->n_dims, param->shape ? "a" : "no");
    }
    if (param->strides && !is_dense(param)) {
        return tally__fail(TALLY_ARG, "parameter '%s' has strides with gaps or overlaps",
                           param->name);
    }
    return TALLY_OK;
}

/* Strides say nothing where a dimension has one element, or the parameter none. */
static void note_strides(const tally_param *from, struct tally__param *to)
{
    size_t row_major = 1;

    for (int d = from->n_dims - 1; d >= 0 && to->n > 0; d--) {
        size_t stride = from->strides ? from->strides[d] : row_major;

        if (from->shape[d] > 1) {
            to->strides = tally__hash(to->strides, &stride, sizeof stride);
            to->permuted = to->permuted || stride != row_major;
        }
        row_major *= from->shape[d];
    }
}

static int copy_param(const tally_param *from, struct tally__param *to)
{
    size_t name_bytes = strlen(from->name) + 1;

    TRY(count_elements(from, &to->n));
    to->name = tally__alloc(name_bytes, "a parameter's name");
    to->shape = tally__alloc_array((size_t)from->n_dims, sizeof *to->shape, "a parameter's shape");
    if (!to->name || !to->shape) {
        return TALLY_NOMEM;
    }
    memcpy(to->name, from->name, name_bytes);
    if (from->n_dims > 0) {
        memcpy(to->shape, from->shape, (size_t)from->n_dims * sizeof *to->shape);
    }
    to->n_dims = from->n_dims;
    to->dtype = from->dtype;
    to->grad_dtype = from->dtype;
    to->reduce_dtype = from->dtype;
    to->flags = from->flags;
    to->bytes = to->n * tally_dtype_bytes(from->dtype);
    to->grad_bytes = to->bytes;
    to->data = from->data;
    to->grad = has_gradient(from->flags) ? from->grad : NULL;
    to->local_grad = from->flags & TALLY_PARAM_IGNORED ? from->grad : NULL;
    note_strides(from, to);
    to->bucket = -1;
    to->provided = !from->data && to->n > 0 && !(from->flags & TALLY_PARAM_IGNORED);
    return TALLY_OK;
}

static int check_names(const tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(ddp->params[i].name, ddp->params[j].name) == 0) {
                return tally__fail(TALLY_ARG, "parameters %zu and %zu are both called '%s'", j, i,
                                   ddp->params[i].name);
            }
        }
    }
    return TALLY_OK;
}

/* Gradients are views when no parameter brought an array of its own, and they travel as they are
 * written. */
static int choose_mode(tally_ddp *ddp)
{
    bool as_written = true;

    ddp->provides = true;
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        if (has_gradient(param->flags)) {
            ddp->provides = ddp->provides && !param->grad;
            as_written = as_written && param->grad_dtype == param->reduce_dtype;
        }
    }
    ddp->views = ddp->provides && as_written;
    for (size_t i = 0; i < ddp->n_params && !ddp->views; i++) {
        struct tally__param *param = &ddp->params[i];

        /* Copies change their buckets: what is laid out like them would have to move. */
        if (param->provided && !ddp->provides) {
            return tally__fail(TALLY_ARG,
                               "parameter '%s' has no data: tally provides it only where it "
                               "provides all gradients",
                               param->name);
        }
        if (has_gradient(param->flags) && !param->grad) {
            param->own_grad = tally__alloc(param->grad_bytes, "a gradient");
            if (!param->own_grad) {
                return TALLY_NOMEM;
            }
            param->grad = param->own_grad;
        }
    }
    return TALLY_OK;
}

int tally__params_copy(tally_ddp *ddp, const tally_param *params, size_t n)
{
    ddp->params = tally__alloc_array(n, sizeof *ddp->params, "parameters");
    ddp->order = tally__alloc_array(n, sizeof *ddp->order, "parameters");
    ddp->ready_order = tally__alloc_array(n, sizeof *ddp->ready_order, "parameters");
    ddp->last_order = tally__alloc_array(n, sizeof *ddp->last_order, "parameters");
    ddp->agreed_order = tally__alloc_array(n, sizeof *ddp->agreed_order, "parameters");
    ddp->used = tally__alloc_array(n, sizeof *ddp->used, "parameters");
    if (!ddp->params || !ddp->order || !ddp->ready_order || !ddp->last_order ||
        !ddp->agreed_order || !ddp->used) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        /* The size in each entry says how far it is to the next: later versions may add fields. */
        const tally_param *param =
            (const void *)((const unsigned char *)params + i * params[0].size);

        TRY(check_param(param, i));
        ddp->n_params++;
        TRY(copy_param(param, &ddp->params[i]));
    }
    TRY(check_names(ddp));
    TRY(tally__mixed_params_make(ddp));
    /* The last parameters' gradients are ready first. */
    for (size_t i = n; i-- > 0;) {
        if (has_gradient(ddp->params[i].flags)) {
            ddp->order[ddp->n_order++] = (int)i;
        }
    }
    if (ddp->n_order == 0) {
        return tally__fail(TALLY_ARG, "none of %zu parameters has a gradient", n);
    }
    return choose_mode(ddp);
}

void tally__params_free(tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        tally__free(ddp->params[i].name);
        tally__free(ddp->params[i].shape);
        tally__free(ddp->params[i].own_grad);
        tally__free(ddp->params[i].own_mean);
        tally__free(ddp->params[i].low);
    }
    tally__free(ddp->params);
    tally__free(ddp->order);
    tally__free(ddp->ready_order);
    tally__free(ddp->last_order);
    tally__free(ddp->agreed_order);
    tally__free(ddp->used);
}

/* ---- broadcasting ---- */

/* What has no bytes may have no address either. */
static int broadcast(tally_lane *lane, void *data, size_t bytes, int root)
{
    return bytes > 0 ? tally_lane_broadcast(lane, data, bytes, root) : TALLY_OK;
}

int tally__params_broadcast(tally_lane *lane, const tally_ddp *ddp, int root)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        /* What tally provides is zeros everywhere until there is memory for it. */
        if (!(ddp->params[i].flags & TALLY_PARAM_IGNORED) && ddp->params[i].data) {
            TRY(broadcast(lane, ddp->params[i].data, ddp->params[i].bytes, root));
        }
    }
    return TALLY_OK;
}

int tally__buffers_broadcast(tally_lane *lane, const tally_ddp *ddp, int root)
{
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        TRY(broadcast(lane, ddp->buffers[i].data, ddp->buffers[i].bytes, root));
    }
    return TALLY_OK;
}

/* ---- comparing ---- */

static void describe_param(const struct tally__param *param, size_t i,
                           struct tally__description *about)
{
    static const char *const dtypes[] = {"f32", "f64", "f16", "bf16"};
    size_t n_dims = (size_t)param->n_dims;
    int used =
        snprintf(about->words, sizeof about->words, "parameter %zu '%.100s' %s flags=%u %s%s", i,
                 param->name, dtypes[param->dtype], param->flags,
                 param->provided ? "provided " : "", param->permuted ? "permuted " : "");

    tally__describe_list(about, (size_t)used, n_dims, param->shape);
    about->hash = tally__hash(param->strides, param->name, strlen(param->name));
    about->hash = tally__hash(about->hash, param->shape, n_dims * sizeof *param->shape);
}

static void describe_buffer(const tally_buffer *buffer, size_t i, struct tally__description *about)
{
    const char *name = buffer->name ? buffer->name : "";

    (void)snprintf(about->words, sizeof about->words, "buffer %zu '%.100s' of %zu bytes, dtype %d",
                   i, name, buffer->bytes, buffer->dtype);
    about->hash = tally__hash(0, name, strlen(name));
}

static void describe_config(const tally_ddp *ddp, struct tally__description *about)
{
    const tally_ddp_config *config = &ddp->config;
    int used = snprintf(about->words, sizeof about->words,
                        "config find_unused=%d static_graph=%d skip_unused=%d join=%d%d%d "
                        "keep_parameters=%d keep_buffers=%d buffer_hook=%d views=%d "
                        "dtypes=%d,%d,%d caps=",
                        config->find_unused != 0, config->static_graph != 0,
                        config->skip_unused != 0, config->join != 0, config->join_stops != 0,
                        config->join_divides_by_active != 0, config->keep_parameters != 0,
                        config->keep_buffers != 0, config->buffer_hook != NULL, ddp->views,
                        config->param_dtype, config->reduce_dtype, config->buffer_dtype);

    tally__describe_list(about, (size_t)used, ddp->n_caps, ddp->caps);
    about->hash = tally__hash(0, ddp->caps, ddp->n_caps * sizeof *ddp->caps);
}

/* Entries: the parameters, the buffers, the config. */
static void describe(const void *of, size_t i, struct tally__description *about)
{
    const tally_ddp *ddp = of;

    if (i < ddp->n_params) {
        describe_param(&ddp->params[i], i, about);
    } else if (i < ddp->n_params + ddp->n_buffers) {
        describe_buffer(&ddp->buffers[i - ddp->n_params], i - ddp->n_params, about);
    } else {
        describe_config(ddp, about);
    }
}

int tally__params_compare(tally_lane *lane, const tally_ddp *ddp)
{
    const struct tally__compared compared = {
        .n = ddp->n_params + ddp->n_buffers + 1, .of = ddp, .describe = describe};

    return tally__compare(lane, &compared);
}
