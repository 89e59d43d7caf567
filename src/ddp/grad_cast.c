/* SPDX-License-Identifier: Apache-2.0 */
/* Casting and scaling gradients; see grad_cast.h. Lanes enter, for different parameters at once.
 * Keeps no state. */
#include "ddp/grad_cast.h"

#include "num/reduce.h"

#define CHUNK 1024

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

        tally__cast(dtype, TALLY_F32, n_here, x + i, wide);
        scale_f32(n_here, wide, factor);
        tally__cast(TALLY_F32, dtype, n_here, wide, x + i);
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
