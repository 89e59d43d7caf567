/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dtypes; reductions by dtype and op; casts. Sums go to the dispatched kernels; minimum, maximum
 * and the mean of integers are plain loops, because training does not use them. Stateless; any
 * thread enters.
 */
#include "num/reduce.h"

#include <math.h>
#include <stdint.h>

#include "num/num.h"
#include "tally_extend.h"

/* Elements converted at a time where a dtype has to be widened first. */
#define CHUNK 256

size_t tally_dtype_bytes(int dtype)
{
    static const size_t bytes[] = {4, 8, 2, 2, 4, 8, 1};

    return dtype >= TALLY_F32 && dtype <= TALLY_U8 ? bytes[dtype] : 0;
}

const char *tally__dtype_name(int dtype)
{
    static const char *const names[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};

    return dtype >= TALLY_F32 && dtype <= TALLY_U8 ? names[dtype] : "unknown";
}

/* A NaN anywhere wins, whichever side it stands on. */
#define FLOAT_LESS(a, b) ((a) < (b) || isnan(a))
#define INTEGER_LESS(a, b) ((a) < (b))

/* Defines <name>: keeps of all inputs the one that comes first in the order LESS. */
#define EXTREME(name, type, LESS)                             \
    static void name(size_t n, const struct tally__arrays *a) \
    {                                                         \
        for (size_t i = 0; i < n; i++) {                      \
            type best = ((const type *)a->in[0])[i];          \
                                                              \
            for (size_t k = 1; k < a->n_in; k++) {            \
                type next = ((const type *)a->in[k])[i];      \
                                                              \
                best = LESS(next, best) ? next : best;        \
            }                                                 \
            for (size_t k = 0; k < a->n_out; k++) {           \
                ((type *)a->out[k])[i] = best;                \
            }                                                 \
        }                                                     \
    }

#define FLOAT_MORE(a, b) ((a) > (b) || isnan(a))
#define INTEGER_MORE(a, b) ((a) > (b))

EXTREME(min_f32, float, FLOAT_LESS)
EXTREME(max_f32, float, FLOAT_MORE)
EXTREME(min_f64, double, FLOAT_LESS)
EXTREME(max_f64, double, FLOAT_MORE)
EXTREME(min_i32, int32_t, INTEGER_LESS)
EXTREME(max_i32, int32_t, INTEGER_MORE)
EXTREME(min_i64, int64_t, INTEGER_LESS)
EXTREME(max_i64, int64_t, INTEGER_MORE)
EXTREME(min_u8, uint8_t, INTEGER_LESS)
EXTREME(max_u8, uint8_t, INTEGER_MORE)

/* Defines <name>: the sum in 64 bits, divided with truncation. */
#define INTEGER_MEAN(name, type)                                                  \
    static void name(size_t n, const struct tally__arrays *a)                     \
    {                                                                             \
        const int64_t divisor = a->divisor >= 1 ? (int64_t)a->divisor : 1;        \
                                                                                  \
        for (size_t i = 0; i < n; i++) {                                          \
            uint64_t sum = 0; /* unsigned: wraps around where int64_t must not */ \
            type mean;                                                            \
                                                                                  \
            for (size_t k = 0; k < a->n_in; k++) {                                \
                sum += (uint64_t)(int64_t)((const type *)a->in[k])[i];            \
            }                                                                     \
            mean = (type)((int64_t)sum / divisor);                                \
            for (size_t k = 0; k < a->n_out; k++) {                               \
                ((type *)a->out[k])[i] = mean;                                    \
            }                                                                     \
        }                                                                         \
    }

INTEGER_MEAN(mean_i32, int32_t)
INTEGER_MEAN(mean_i64, int64_t)
INTEGER_MEAN(mean_u8, uint8_t)

static void narrow(int dtype, size_t n, const float *x, uint16_t *y)
{
    (dtype == TALLY_F16 ? tally__f32_to_f16 : tally__f32_to_bf16)(n, x, y);
}

static void widen(int dtype, size_t n, const uint16_t *x, float *y)
{
    (dtype == TALLY_F16 ? tally__f16_to_f32 : tally__bf16_to_f32)(n, x, y);
}

/* From one half to the other. */
static void convert(int from_dtype, int to_dtype, size_t n, const uint16_t *from, uint16_t *to)
{
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t n_here = n - i < CHUNK ? n - i : CHUNK;
        float wide[CHUNK];

        widen(from_dtype, n_here, from + i, wide);
        narrow(to_dtype, n_here, wide, to + i);
    }
}

void tally__cast(int from_dtype, int to_dtype, size_t n, const void *from, void *to)
{
    if (from_dtype == to_dtype) {
        tally__copy(n * tally_dtype_bytes(to_dtype), from, to);
    } else if (from_dtype == TALLY_F32) {
        narrow(to_dtype, n, from, to);
    } else if (to_dtype == TALLY_F32) {
        widen(from_dtype, n, from, to);
    } else {
        convert(from_dtype, to_dtype, n, from, to);
    }
}

/* Minimum or maximum of halves: exact in fp32, so the way there and back changes nothing. */
static void extreme_half(int dtype, size_t n, const struct tally__arrays *a,
                         void (*extreme_f32)(size_t n, const struct tally__arrays *a))
{
    for (size_t start = 0; start < n; start += CHUNK) {
        size_t count = n - start < CHUNK ? n - start : CHUNK;
        float best[CHUNK];
        float next[CHUNK];
        const void *both[2] = {best, next};
        void *result = best;
        const struct tally__arrays pair = {2, both, 1, &result, 1};

        widen(dtype, count, (const uint16_t *)a->in[0] + start, best);
        for (size_t k = 1; k < a->n_in; k++) {
            widen(dtype, count, (const uint16_t *)a->in[k] + start, next);
            extreme_f32(count, &pair);
        }
        for (size_t k = 0; k < a->n_out; k++) {
            narrow(dtype, count, best, (uint16_t *)a->out[k] + start);
        }
    }
}

#define HALF_EXTREME(name, dtype, extreme_f32)                \
    static void name(size_t n, const struct tally__arrays *a) \
    {                                                         \
        extreme_half(dtype, n, a, extreme_f32);               \
    }

HALF_EXTREME(min_f16, TALLY_F16, min_f32)
HALF_EXTREME(max_f16, TALLY_F16, max_f32)
HALF_EXTREME(min_bf16, TALLY_BF16, min_f32)
HALF_EXTREME(max_bf16, TALLY_BF16, max_f32)

/* Define <name>: the kernel of that name. Integers are not divided. */
#define SUM(name, type, number)                                                             \
    static void name(size_t n, const struct tally__arrays *a)                               \
    {                                                                                       \
        tally__##name(n, a->n_in, (const type *const *)a->in, (number)a->divisor, a->n_out, \
                      (type *const *)a->out);                                               \
    }
#define INTEGER_SUM(name, type)                                                                 \
    static void name(size_t n, const struct tally__arrays *a)                                   \
    {                                                                                           \
        tally__##name(n, a->n_in, (const type *const *)a->in, a->n_out, (type *const *)a->out); \
    }

SUM(sum_f32, float, float)
SUM(sum_f64, double, double)
SUM(sum_f16, uint16_t, float)
SUM(sum_bf16, uint16_t, float)
INTEGER_SUM(sum_i32, int32_t)
INTEGER_SUM(sum_i64, int64_t)
INTEGER_SUM(sum_u8, uint8_t)

typedef void reduction(size_t n, const struct tally__arrays *a);

/* By dtype and op, in the order SUM, MEAN, MIN, MAX. */
static reduction *const reductions[TALLY_U8 + 1][TALLY_MAX + 1] = {
    [TALLY_F32] = {sum_f32, sum_f32, min_f32, max_f32},
    [TALLY_F64] = {sum_f64, sum_f64, min_f64, max_f64},
    [TALLY_F16] = {sum_f16, sum_f16, min_f16, max_f16},
    [TALLY_BF16] = {sum_bf16, sum_bf16, min_bf16, max_bf16},
    [TALLY_I32] = {sum_i32, mean_i32, min_i32, max_i32},
    [TALLY_I64] = {sum_i64, mean_i64, min_i64, max_i64},
    [TALLY_U8] = {sum_u8, mean_u8, min_u8, max_u8},
};

void tally__reduce(int dtype, int op, size_t n, const struct tally__arrays *a)
{
    struct tally__arrays arrays = *a;

    arrays.divisor = op == TALLY_MEAN ? a->divisor : 1;
    reductions[dtype][op](n, &arrays);
}
