/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters: copying and checking the application's descriptions, and broadcasting values. Not
 * responsible for names and memory that two parameters share (param_arrays.c) nor for comparing
 * parameters between ranks (param_compare.c). The thread that creates the ddp enters; exchanges run
 * as jobs.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "comm/broadcast.h"
#include "ddp/ddp.h"
#include "ddp/grad_cast.h"

static bool has_gradient(unsigned flags)
{
    return (flags & (TALLY_PARAM_FROZEN | TALLY_PARAM_IGNORED)) == 0;
}

/* Whether strides describe the elements without gaps or overlaps: row-major in some order of the
 * dimensions. The stride of a dimension with one element does not matter, nor do any strides of an
 * empty parameter. */
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
    /* Each pass finds the next dimension outwards, or none. */
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

static int read_param(const tally_param *params, size_t i, tally_param *param)
{
    *param = (tally_param){0};
    return tally__sized_read_entry(TALLY__SIZED(tally_param, flags), "parameter", params, i, param);
}

static int check_param(const tally_param *param, size_t i)
{
    unsigned known =
        TALLY_PARAM_FROZEN | TALLY_PARAM_IGNORED | TALLY_PARAM_DELAYED | TALLY_PARAM_SPARSE;

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

/* FNV-1a, not tally__checksum: blobs of earlier versions contain this hash. */
static uint64_t hash_stride(uint64_t before, uint64_t stride)
{
    uint64_t hash = before ^ UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < sizeof stride; i++) {
        hash = (hash ^ (stride >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Ignores strides that do not matter: those of dimensions with one element, and all of an empty
 * parameter. */
static void note_strides(const tally_param *from, struct tally__param *to)
{
    size_t row_major = 1;

    for (int d = from->n_dims - 1; d >= 0 && to->n > 0; d--) {
        size_t stride = from->strides ? from->strides[d] : row_major;

        if (from->shape[d] > 1) {
            to->strides = hash_stride(to->strides, stride);
            to->permuted = to->permuted || stride != row_major;
        }
        row_major *= from->shape[d];
    }
}

static int copy_strides(const tally_param *from, struct tally__param *to)
{
    size_t n = (size_t)from->n_dims;

    if (!to->permuted) {
        return TALLY_OK;
    }
    to->steps = tally__alloc_array(n, sizeof *to->steps, "a parameter's strides");
    if (!to->steps) {
        return TALLY_NOMEM;
    }
    memcpy(to->steps, from->strides, n * sizeof *to->steps);
    return TALLY_OK;
}

static int copy_param(const tally_param *from, struct tally__param *to)
{
    TRY(count_elements(from, &to->n));
    to->name = tally__alloc_text(from->name, "a parameter's name");
    to->shape = tally__alloc_array((size_t)from->n_dims, sizeof *to->shape, "a parameter's shape");
    if (!to->name || !to->shape) {
        return TALLY_NOMEM;
    }
    if (from->n_dims > 0) {
        memcpy(to->shape, from->shape, (size_t)from->n_dims * sizeof *to->shape);
    }
    to->n_dims = from->n_dims;
    to->dtype = from->dtype;
    to->grad.dtype = from->dtype;
    to->grad.reduce_dtype = from->dtype;
    to->flags = from->flags;
    to->bytes = to->n * tally_dtype_bytes(from->dtype);
    to->grad.bytes = to->bytes;
    to->data = from->data;
    to->grad.array = has_gradient(from->flags) ? from->grad : NULL;
    to->grad.local = from->flags & TALLY_PARAM_IGNORED ? from->grad : NULL;
    note_strides(from, to);
    TRY(copy_strides(from, to));
    to->bucket = -1;
    to->provided = !from->data && to->n > 0 && !(from->flags & TALLY_PARAM_IGNORED);
    return TALLY_OK;
}

/* Whether the gradients are one array, in the order of parameters, as they travel. */
static bool is_flat(const tally_ddp *ddp)
{
    const unsigned char *next = NULL;

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        if (!has_gradient(param->flags) || param->n == 0) {
            continue;
        }
        if (param->grad.dtype != param->grad.reduce_dtype || param->grad.dtype != param->dtype ||
            (next && param->grad.array != next)) {
            return false;
        }
        next = (unsigned char *)param->grad.array + param->grad.bytes;
    }
    return next != NULL;
}

/* Gradients are views if no parameter has a gradient array of the application, and if they travel
 * in the dtype in which they are written. */
static int choose_mode(tally_ddp *ddp)
{
    bool as_written = true;

    ddp->provides = true;
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        if (has_gradient(param->flags)) {
            ddp->provides = ddp->provides && !param->grad.array;
            as_written = as_written && param->grad.dtype == param->grad.reduce_dtype;
        }
    }
    ddp->views = ddp->provides && as_written;
    for (size_t i = 0; i < ddp->n_params && !ddp->views; i++) {
        struct tally__param *param = &ddp->params[i];

        /* Buckets of copies are arranged again: provided parameters, which are laid out like
         * buckets, would have to move. */
        if (param->provided && !ddp->provides) {
            return tally__fail(TALLY_ARG,
                               "parameter '%s' has no data: tally provides it only where it "
                               "provides all gradients",
                               param->name);
        }
        if (has_gradient(param->flags) && !param->grad.array) {
            param->grad.owned = tally__alloc(param->grad.bytes, "a gradient");
            if (!param->grad.owned) {
                return TALLY_NOMEM;
            }
            param->grad.array = param->grad.owned;
        }
    }
    ddp->is_flat = !ddp->provides && is_flat(ddp);
    return TALLY_OK;
}

int tally__params_copy(tally_ddp *ddp, const tally_param *params, size_t n)
{
    ddp->params = tally__alloc_array(n, sizeof *ddp->params, "parameters");
    ddp->order = tally__alloc_array(n, sizeof *ddp->order, "parameters");
    ddp->ready.order = tally__alloc_array(n, sizeof *ddp->ready.order, "parameters");
    ddp->ready.last = tally__alloc_array(n, sizeof *ddp->ready.last, "parameters");
    ddp->ready.agreed = tally__alloc_array(n, sizeof *ddp->ready.agreed, "parameters");
    ddp->classes = tally__alloc_array(n, 1, "parameters");
    ddp->now.used = tally__alloc_array(2 * n, sizeof *ddp->now.used, "parameters");
    if (!ddp->params || !ddp->order || !ddp->ready.order || !ddp->ready.last ||
        !ddp->ready.agreed || !ddp->classes || !ddp->now.used) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        tally_param param;

        TRY(read_param(params, i, &param));
        TRY(check_param(&param, i));
        ddp->n_params++;
        TRY(copy_param(&param, &ddp->params[i]));
    }
    return TALLY_OK;
}

/* Allocates the means that fit neither in the gradient nor in the bucket. */
static int make_means(tally_ddp *ddp)
{
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        if (tally__mean_is_apart(param) && param->grad.reduce_dtype != param->dtype) {
            param->mean.owned = tally__alloc(param->bytes, "a mean gradient");
            if (!param->mean.owned) {
                return TALLY_NOMEM;
            }
        }
    }
    return TALLY_OK;
}

int tally__params_allocate(tally_ddp *ddp)
{
    TRY(tally__params_check_arrays(ddp));
    /* The last parameters' gradients are ready first. */
    for (size_t i = ddp->n_params; i-- > 0;) {
        if (has_gradient(ddp->params[i].flags)) {
            ddp->order[ddp->n_order++] = (int)i;
        }
    }
    if (ddp->n_order == 0) {
        return tally__fail(TALLY_ARG, "none of %zu parameters has a gradient", ddp->n_params);
    }
    TRY(make_means(ddp));
    return choose_mode(ddp);
}

void tally__params_free(tally_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        tally__free(ddp->params[i].name);
        tally__free(ddp->params[i].shape);
        tally__free(ddp->params[i].steps);
        tally__free(ddp->params[i].grad.owned);
        tally__free(ddp->params[i].mean.owned);
    }
    tally__free(ddp->params);
    tally__free(ddp->order);
    tally__free(ddp->ready.order);
    tally__free(ddp->ready.last);
    tally__free(ddp->ready.agreed);
    tally__free(ddp->classes);
    tally__free(ddp->now.used);
}

/* ---- broadcasting ---- */

static struct tally__array buffer_array(const void *of, size_t i)
{
    const tally_buffer *buffer = &((const tally_ddp *)of)->buffers[i];

    return (struct tally__array){buffer->data, buffer->bytes};
}

/* The parameters, then the buffers. A parameter that tally provides is zeros on all ranks until it
 * has memory. */
static struct tally__array value_array(const void *of, size_t i)
{
    const tally_ddp *ddp = of;
    const struct tally__param *param;

    if (i >= ddp->n_params) {
        return buffer_array(of, i - ddp->n_params);
    }
    param = &ddp->params[i];
    return param->flags & TALLY_PARAM_IGNORED || !param->data
               ? (struct tally__array){NULL, 0}
               : (struct tally__array){param->data, param->bytes};
}

int tally__values_broadcast(tally_lane *lane, const tally_ddp *ddp, int root)
{
    const struct tally__arrays arrays = {ddp->n_params + ddp->n_buffers, ddp, value_array};

    return tally__broadcast(lane, &arrays, root);
}

int tally__buffers_broadcast(tally_lane *lane, const tally_ddp *ddp, int root)
{
    const struct tally__arrays arrays = {ddp->n_buffers, ddp, buffer_array};

    return tally__broadcast(lane, &arrays, root);
}

int tally__values_take(tally_lane *lane, const tally_ddp *ddp, int root)
{
    TRY(tally__values_broadcast(lane, ddp, root));
    if (ddp->observer.values_changed) {
        ddp->observer.values_changed(ddp->observer.user);
    }
    return TALLY_OK;
}

struct broadcast {
    const tally_ddp *ddp;
    int root;
};

static int broadcast_job(tally_lane *lane, void *user)
{
    const struct broadcast *broadcast = user;
    int size = tally_group_size(broadcast->ddp->group);

    if (broadcast->root < 0 || broadcast->root >= size) {
        return tally__fail(TALLY_ARG,
                           "tally_ddp_broadcast: root %d is not in 0..%d, the ranks of this group",
                           broadcast->root, size - 1);
    }
    return tally__values_take(lane, broadcast->ddp, broadcast->root);
}

int tally_ddp_broadcast(tally_ddp *ddp, int root)
{
    struct broadcast broadcast = {ddp, root};

    TRY(tally__check_between_steps(ddp, "tally_ddp_broadcast"));
    return tally__stats_note(ddp, tally__ddp_run(ddp, broadcast_job, &broadcast));
}
