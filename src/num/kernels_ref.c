/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: plain C, which defines the result of every kernel. The other instruction sets give
 * the same bits and use these functions for the elements that do not fill a vector. Any thread
 * enters; nothing is kept.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "num/num.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds value / 2^shift to nearest even. */
static uint32_t shift_round(uint32_t value, unsigned shift)
{
    uint32_t odd = (value >> shift) & 1u;

    return (value + (UINT32_C(1) << (shift - 1)) - 1u + odd) >> shift;
}

static uint16_t f16_of(float x)
{
    uint32_t bits = bits_of(x);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    uint32_t half;

    if (size > 0x7f800000u) { /* NaN: made quiet, leading payload bits kept */
        half = 0x7e00u | ((size >> 13) & 0x1ffu);
    } else if (size >= 0x477ff000u) { /* from 65520 on */
        half = 0x7c00u;
    } else if (size >= 0x38800000u) { /* from 2^-14 on: the exponent moves from bias 127 to 15 */
        half = shift_round(size - (UINT32_C(112) << 23), 13);
    } else if (size >= 0x33000000u) { /* from 2^-25 on: a multiple of 2^-24, or just below one */
        half = shift_round((size & 0x7fffffu) | 0x800000u, 126u - (size >> 23));
    } else {
        half = 0;
    }
    return (uint16_t)(sign | half);
}

static float f32_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u;
    uint32_t fraction = half & 0x3ffu;

    if (exponent == 0) {
        return float_of(sign | bits_of((float)fraction * 0x1p-24f));
    }
    if (exponent == 31) {
        uint32_t quiet = fraction != 0 ? 0x400000u : 0;

        return float_of(sign | 0x7f800000u | quiet | (fraction << 13));
    }
    return float_of(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

static uint16_t bf16_of(float x)
{
    uint32_t bits = bits_of(x);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x0040u);
    }
    return (uint16_t)shift_round(bits, 16);
}

static float f32_of_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

static void f32_to_f16(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = f16_of(x[i]);
    }
}

static size_t f32_to_f16_sat(size_t n, const float *x, uint16_t *y)
{
    size_t n_saturated = 0;

    for (size_t i = 0; i < n; i++) {
        bool overflows = fabsf(x[i]) >= 65520.0f && fabsf(x[i]) <= FLT_MAX;

        n_saturated += overflows;
        y[i] = f16_of(overflows ? copysignf(65504.0f, x[i]) : x[i]);
    }
    return n_saturated;
}

static void f16_to_f32(size_t n, const uint16_t *x, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = f32_of_f16(x[i]);
    }
}

static void f32_to_bf16(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = bf16_of(x[i]);
    }
}

static void bf16_to_f32(size_t n, const uint16_t *x, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = f32_of_bf16(x[i]);
    }
}

/* The sums differ only in how an element is read, added and written. All outputs are written after
 * all inputs of an element are read, so an output may be an input. */
#define SUM(type, accumulator, READ, FINISH)           \
    for (size_t i = 0; i < n; i++) {                   \
        accumulator sum = READ(in[0][i]);              \
        for (size_t k = 1; k < n_in; k++) {            \
            sum = (accumulator)(sum + READ(in[k][i])); \
        }                                              \
        type result = FINISH;                          \
        for (size_t k = 0; k < n_out; k++) {           \
            out[k][i] = result;                        \
        }                                              \
    }

static void sum_f32(size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,
                    float *const *out)
{
    SUM(float, float, (float), sum / divisor)
}

static void sum_f64(size_t n, size_t n_in, const double *const *in, double divisor, size_t n_out,
                    double *const *out)
{
    SUM(double, double, (double), sum / divisor)
}

static void sum_f16(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                    uint16_t *const *out)
{
    SUM(uint16_t, float, f32_of_f16, f16_of(sum / divisor))
}

static void sum_bf16(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                     uint16_t *const *out)
{
    SUM(uint16_t, float, f32_of_bf16, bf16_of(sum / divisor))
}

static float by_f16(float x)
{
    return f32_of_f16(f16_of(x));
}

static float by_bf16(float x)
{
    return f32_of_bf16(bf16_of(x));
}

static void mean_f32_by_f16(size_t n, size_t n_in, const float *const *in, float divisor,
                            size_t n_out, float *const *out)
{
    SUM(float, float, by_f16, by_f16(sum / divisor))
}

static void mean_f32_by_bf16(size_t n, size_t n_in, const float *const *in, float divisor,
                             size_t n_out, float *const *out)
{
    SUM(float, float, by_bf16, by_bf16(sum / divisor))
}

/* Rounding an fp32 sum of two halves gives what adding them as halves gives: fp32 has more than
 * twice their digits. */
#define SUM_STEPWISE(widen, narrow)                     \
    for (size_t i = 0; i < n; i++) {                    \
        uint16_t sum = in[0][i];                        \
        for (size_t k = 1; k < n_in; k++) {             \
            sum = narrow(widen(sum) + widen(in[k][i])); \
        }                                               \
        out[i] = sum;                                   \
    }

static void sum_f16_stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out)
{
    SUM_STEPWISE(f32_of_f16, f16_of)
}

static void sum_bf16_stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out)
{
    SUM_STEPWISE(f32_of_bf16, bf16_of)
}

/* Signed integers wrap around: they are added as unsigned ones. */
static void sum_i32(size_t n, size_t n_in, const int32_t *const *in, size_t n_out,
                    int32_t *const *out)
{
    SUM(int32_t, uint32_t, (uint32_t), (int32_t)sum)
}

static void sum_i64(size_t n, size_t n_in, const int64_t *const *in, size_t n_out,
                    int64_t *const *out)
{
    SUM(int64_t, uint64_t, (uint64_t), (int64_t)sum)
}

static void sum_u8(size_t n, size_t n_in, const uint8_t *const *in, size_t n_out,
                   uint8_t *const *out)
{
    SUM(uint8_t, uint32_t, (uint32_t), (uint8_t)sum)
}

static void minmax_f32(size_t n, const float *x, float *lo, float *hi)
{
    float least = n > 0 ? x[0] : 0.0f;
    float most = least;

    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            *lo = NAN;
            *hi = NAN;
            return;
        }
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    /* -0 + 0 is +0: the order of two zeros does not show. */
    *lo = least + 0.0f;
    *hi = most + 0.0f;
}

#include "num/quantize_ref.h"

static void copy(size_t n, const uint8_t *x, uint8_t *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i];
    }
}

static void sub_f32(size_t n, const float *a, const float *b, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = a[i] - b[i];
    }
}

static void axpy_f32(size_t n, const float *x, float a, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = y[i] + a * x[i];
    }
}

/* Element i goes to partial sum i mod 16, as on the vector instruction sets. */
static double sqnorm_f32(size_t n, const float *x)
{
    double partial[16] = {0};

    for (size_t i = 0; i < n; i++) {
        partial[i % 16] += (double)x[i] * (double)x[i];
    }
    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            partial[i] += partial[i + width];
        }
    }
    return partial[0];
}

static size_t find_nonfinite_f32(size_t n, const float *x)
{
    size_t i = 0;

    while (i < n && isfinite(x[i])) {
        i++;
    }
    return i;
}

const struct tally__kernels tally__kernels_ref = {TALLY__KERNEL_LIST(TALLY__KERNEL_ENTRY)};
