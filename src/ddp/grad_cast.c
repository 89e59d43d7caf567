/* SPDX-License-Identifier: Apache-2.0 */
/* Casting and scaling gradients; see grad_cast.h. Lanes enter, for different parameters at once.
 * Keeps no state. */
#include "ddp/grad_cast.h"

#include "num/num.h"

#define CHUNK 1024

static void lower(int dtype, size_t n, const float *x, uint16_t *y)
{
    (dtype == TALLY_F16 ? tally__f32_to_f16 : tally__f32_to_bf16)(n, x, y);
}

static void raise_to_f32(int dtype, size_t n, const uint16_t *x, float *y)
{
    (dtype == TALLY_F16 ? tally__f16_to_f32 : tally__bf16_to_f32)(n, x, y);
}

/* From one half to the other. */
static void convert(int from_dtype, int to_dtype, size_t n, const uint16_t *from, uint16_t *to)
{
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t n_here = n - i < CHUNK ? n - i : CHUNK;
        float wide[CHUNK];

        raise_to_f32(from_dtype, n_here, from + i, wide);
        lower(to_dtype, n_here, wide, to + i);
    }
}

void tally__cast(int from_dtype, int to_dtype, size_t n, const void *from, void *to)
{
    if (from_dtype == to_dtype) {
        tally__copy(n * tally_dtype_bytes(to_dtype), from, to);
    } else if (from_dtype == TALLY_F32) {
        lower(to_dtype, n, from, to);
    } else if (to_dtype == TALLY_F32) {
        raise_to_f32(from_dtype, n, from, to);
    } else {
        convert(from_dtype, to_dtype, n, from, to);
    }
}

static void scale_f32(size_t n, float *x, float factor)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static void scale_f64(size_t n, double *x, double factor)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static void scale_halves(int dtype, size_t n, uint16_t *x, float factor)
{
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t n_here = n - i < CHUNK ? n - i : CHUNK;
        float wide[CHUNK];

        raise_to_f32(dtype, n_here, x + i, wide);
        scale_f32(n_here, wide, factor);
        lower(dtype, n_here, wide, x + i);
    }
}

void tally__scale_array(int dtype, size_t n, void *x, double factor)
{
    if (dtype == TALLY_F32) {
        scale_f32(n, x, (float)factor);
    } else if (dtype == TALLY_F64) {
        scale_f64(n, x, factor);
    } else {
        scale_halves(dtype, n, x, (float)factor);
    }
}

void tally__grad_gather(const struct tally__param *param, void *in_bucket)
{
    tally__cast(param->grad.dtype, param->grad.reduce_dtype, param->n, param->grad.array,
                in_bucket);
}

void tally__grad_spread(const struct tally__param *param, const void *in_bucket)
{
    if (param->mean.array != in_bucket) {
        tally__cast(param->grad.reduce_dtype, param->dtype, param->n, in_bucket, param->mean.array);
    }
}
