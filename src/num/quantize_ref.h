/* SPDX-License-Identifier: Apache-2.0 */
/* The uint8 kernels of the reference. Part of kernels_ref.c, which includes this once, after
 * minmax_f32. */
#include "num/quantize.h"

/* The value `steps` steps of the scale away from 0. */
static uint8_t affine_code(float steps, float zero)
{
    float code = tally__rint(steps) + zero;

    /* Clamped before the conversion, which is undefined outside 0..255; a NaN becomes 0. */
    code = code > 0.0f ? code : 0.0f;
    code = code < 255.0f ? code : 255.0f;
    return (uint8_t)code;
}

/* A scale that is not finite has codes 0: with zero = 0 they decode to inf * 0 or NaN * 0, NaN. */
static void affine_encode(size_t n, const float *x, struct tally__affine affine, uint8_t *q)
{
    bool sound = isfinite(affine.scale);

    for (size_t i = 0; i < n; i++) {
        q[i] = sound ? affine_code(x[i] / affine.scale, affine.zero) : 0;
    }
}

static void affine_encode_fast(size_t n, const float *x, struct tally__affine affine, uint8_t *q)
{
    bool sound = isfinite(affine.scale);
    float inverse = 1.0f / affine.scale;

    for (size_t i = 0; i < n; i++) {
        q[i] = sound ? affine_code(x[i] * inverse, affine.zero) : 0;
    }
}

static void affine_decode(size_t n, const uint8_t *q, struct tally__affine affine, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = affine.scale * ((float)q[i] - affine.zero);
    }
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct tally__affine affine_of_block(size_t n, const float *x)
{
    float lo;
    float hi;

    minmax_f32(n, x, &lo, &hi);
    return tally__affine_of(n, lo, hi);
}

static void affine_encode_blocks(size_t n, const float *x, size_t block,
                                 struct tally__affine *affine, uint8_t *q)
{
    for (size_t i = 0; i < n; i += block, affine++) {
        size_t n_here = smaller(block, n - i);

        *affine = affine_of_block(n_here, x + i);
        affine_encode(n_here, x + i, *affine, q + i);
    }
}

static void affine_encode_fast_blocks(size_t n, const float *x, size_t block,
                                      struct tally__affine *affine, uint8_t *q)
{
    for (size_t i = 0; i < n; i += block, affine++) {
        size_t n_here = smaller(block, n - i);

        *affine = affine_of_block(n_here, x + i);
        affine_encode_fast(n_here, x + i, *affine, q + i);
    }
}

static void affine_decode_blocks(size_t n, const uint8_t *q, size_t block,
                                 const struct tally__affine *affine, float *y)
{
    for (size_t i = 0; i < n; i += block, affine++) {
        affine_decode(smaller(block, n - i), q + i, *affine, y + i);
    }
}

static void affine_sum(size_t n, size_t n_in, const uint8_t *const *q,
                       const struct tally__affine *affine, float divisor, float *y)
{
    for (size_t i = 0; i < n; i++) {
        float sum = affine[0].scale * ((float)q[0][i] - affine[0].zero);

        for (size_t k = 1; k < n_in; k++) {
            sum = sum + affine[k].scale * ((float)q[k][i] - affine[k].zero);
        }
        y[i] = sum / divisor;
    }
}

/* Quantized and dequantized. */
static float by_affine(float x, struct tally__affine affine)
{
    uint8_t q;
    float y;

    affine_encode_fast(1, &x, affine, &q);
    affine_decode(1, &q, affine, &y);
    return y;
}

static size_t mean_f32_by_affine(size_t n, size_t n_in, const float *const *in,
                                 const struct tally__affine_mean *mean, size_t n_out,
                                 float *const *out)
{
    size_t unsound = n_in;
    float value[TALLY__MEAN_BLOCK_MOST];

    for (size_t start = 0; start < n; start += mean->block) {
        size_t n_here = smaller(mean->block, n - start);

        for (size_t k = 0; k < n_in; k++) {
            const float *x = in[k] + start;
            struct tally__affine affine = mean->maps ? mean->maps[k] : affine_of_block(n_here, x);

            unsound = unsound == n_in && !isfinite(affine.scale) ? k : unsound;
            for (size_t i = 0; i < n_here; i++) {
                value[i] = k == 0 ? by_affine(x[i], affine) : value[i] + by_affine(x[i], affine);
            }
        }
        for (size_t i = 0; i < n_here; i++) {
            value[i] = value[i] / mean->divisor;
        }

        struct tally__affine affine = affine_of_block(n_here, value);

        for (size_t i = 0; i < n_out * n_here; i++) {
            out[i / n_here][start + i % n_here] = by_affine(value[i % n_here], affine);
        }
    }
    return unsound;
}

static void scaled_sum(size_t n, size_t n_in, const uint8_t *const *q, const float *scale,
                       float divisor, float *y)
{
    for (size_t i = 0; i < n; i++) {
        float sum = scale[0] * ((float)q[0][i] - 128.0f);

        for (size_t k = 1; k < n_in; k++) {
            sum = sum + scale[k] * ((float)q[k][i] - 128.0f);
        }
        y[i] = sum / divisor;
    }
}

/* The largest magnitude; NaN when a value is not finite. */
static float absmax(size_t n, const float *x)
{
    float most = 0.0f;

    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);

        if (!isfinite(size)) {
            return NAN;
        }
        most = size > most ? size : most;
    }
    return most;
}

/*
 * The scale of a block whose largest magnitude is so small that 127 / most overflows or
 * most / 127 is subnormal. The largest value must not lie above 127 steps, so the scale is rounded
 * up; it is never 0 when the block is not.
 */
static float tiny_scale(float most)
{
    float scale = most / 127.0f;

    return scale * 127.0f < most ? float_of(bits_of(scale) + 1u) : scale;
}

static float scaled_encode(size_t n, const float *x, uint8_t *q)
{
    float most = absmax(n, x);

    if (isnan(most) || most == 0.0f) {
        for (size_t i = 0; i < n; i++) {
            q[i] = 128;
        }
        return most;
    }
    /* No clamping below: |x| <= most, so the quotient exceeds 127 by rounding errors at most. */
    if (most < TALLY__SCALED_TINY) {
        float scale = tiny_scale(most);

        for (size_t i = 0; i < n; i++) {
            q[i] = (uint8_t)(128.0f + tally__rint(x[i] / scale));
        }
        return scale;
    }

    float inverse = 127.0f / most;

    for (size_t i = 0; i < n; i++) {
        q[i] = (uint8_t)(128.0f + tally__rint(x[i] * inverse));
    }
    return most / 127.0f;
}

static void scaled_encode_blocks(size_t n, const float *x, size_t block, float *scale, uint8_t *q)
{
    for (size_t i = 0; i < n; i += block, scale++) {
        *scale = scaled_encode(smaller(block, n - i), x + i, q + i);
    }
}

static void scaled_decode_blocks(size_t n, const uint8_t *q, size_t block, const float *scale,
                                 float *y)
{
    for (size_t i = 0; i < n; i += block, scale++) {
        struct tally__affine affine = {.scale = *scale, .zero = 128.0f};

        affine_decode(smaller(block, n - i), q + i, affine, y + i);
    }
}

static void scaled_encode_feedback_blocks(size_t n, const float *x, float *residual, size_t block,
                                          float *scale, uint8_t *q)
{
    for (size_t i = 0; i < n; i += block, scale++) {
        size_t end = i + smaller(block, n - i);

        for (size_t k = i; k < end; k++) {
            residual[k] = x[k] + residual[k];
        }
        *scale = scaled_encode(end - i, residual + i, q + i);
        for (size_t k = i; k < end; k++) {
            float decoded = *scale * ((float)q[k] - 128.0f);

            residual[k] = tally__scaled_is_sound(*scale) ? residual[k] - decoded : 0.0f;
        }
    }
}
