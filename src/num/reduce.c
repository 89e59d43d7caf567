/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions by dtype and op. Sums go to the dispatched kernels; minimum, maximum and the mean of
 * integers are plain loops, because training does not use them. Stateless; any thread enters.
 */
#include "num/reduce.h"

#include <math.h>
#include <stdint.h>

#include "num/num.h"
#include "tally_extend.h"

/* Elements converted at a time where a dtype has to be widened first. */
#define CHUNK 256

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

struct half {
    void (*to_f32)(size_t n, const uint16_t *x, float *y);
    void (*from_f32)(size_t n, const float *x, uint16_t *y);
};

/* Minimum or maximum of halves: exact in fp32, so the way there and back changes nothing. */
static void extreme_half(int op, const struct half *half, size_t n, const struct tally__arrays *a)
{
    for (size_t start = 0; start < n; start += CHUNK) {
        size_t count = n - start < CHUNK ? n - start : CHUNK;
        float best[CHUNK];
        float next[CHUNK];
        const void *both[2] = {best, next};
        void *result = best;
        const struct tally__arrays pair = {2, both, 1, &result, 1};

        half->to_f32(count, (const uint16_t *)a->in[0] + start, best);
        for (size_t k = 1; k < a->n_in; k++) {
            half->to_f32(count, (const uint16_t *)a->in[k] + start, next);
            (op == TALLY_MIN ? min_f32 : max_f32)(count, &pair);
        }
        for (size_t k = 0; k < a->n_out; k++) {
            half->from_f32(count, best, (uint16_t *)a->out[k] + start);
        }
    }
}

/* Defines <name>: minimum or maximum of halves, by way of fp32. */
#define HALF_EXTREME(name, op, to, from)                      \
    static void name(size_t n, const struct tally__arrays *a) \
    {                                                         \
        static const struct half half = {to, from};           \
                                                              \
        extreme_half(op, &half, n, a);                        \
    }

HALF_EXTREME(min_f16, TALLY_MIN, tally__f16_to_f32, tally__f32_to_f16)
HALF_EXTREME(max_f16, TALLY_MAX, tally__f16_to_f32, tally__f32_to_f16)
HALF_EXTREME(min_bf16, TALLY_MIN, tally__bf16_to_f32, tally__f32_to_bf16)
HALF_EXTREME(max_bf16, TALLY_MAX, tally__bf16_to_f32, tally__f32_to_bf16)

typedef void reduction(size_t n, const struct tally__arrays *a);

/* The plain loops, by dtype and op; the other combinations are sums. */
static reduction *const loops[TALLY_U8 + 1][TALLY_MAX + 1] = {
    [TALLY_F32] = {[TALLY_MIN] = min_f32, [TALLY_MAX] = max_f32},
    [TALLY_F64] = {[TALLY_MIN] = min_f64, [TALLY_MAX] = max_f64},
    [TALLY_F16] = {[TALLY_MIN] = min_f16, [TALLY_MAX] = max_f16},
    [TALLY_BF16] = {[TALLY_MIN] = min_bf16, [TALLY_MAX] = max_bf16},
    [TALLY_I32] = {[TALLY_MEAN] = mean_i32, [TALLY_MIN] = min_i32, [TALLY_MAX] = max_i32},
    [TALLY_I64] = {[TALLY_MEAN] = mean_i64, [TALLY_MIN] = min_i64, [TALLY_MAX] = max_i64},
    [TALLY_U8] = {[TALLY_MEAN] = mean_u8, [TALLY_MIN] = min_u8, [TALLY_MAX] = max_u8},
};

void tally__reduce(int dtype, int op, size_t n, const struct tally__arrays *a)
{
    double divisor = op == TALLY_MEAN ? a->divisor : 1;
    float f32_divisor = (float)divisor;

    if (loops[dtype][op]) {
        loops[dtype][op](n, a);
        return;
    }
    switch (dtype) {
    case TALLY_F32:
        tally__sum_f32(n, a->n_in, (const float *const *)a->in, f32_divisor, a->n_out,
                       (float *const *)a->out);
        break;
    case TALLY_F64:
        tally__sum_f64(n, a->n_in, (const double *const *)a->in, divisor, a->n_out,
                       (double *const *)a->out);
        break;
    case TALLY_F16:
        tally__sum_f16(n, a->n_in, (const uint16_t *const *)a->in, f32_divisor, a->n_out,
                       (uint16_t *const *)a->out);
        break;
    case TALLY_BF16:
        tally__sum_bf16(n, a->n_in, (const uint16_t *const *)a->in, f32_divisor, a->n_out,
                        (uint16_t *const *)a->out);
        break;
    case TALLY_I32:
        tally__sum_i32(n, a->n_in, (const int32_t *const *)a->in, a->n_out,
                       (int32_t *const *)a->out);
        break;
    case TALLY_I64:
        tally__sum_i64(n, a->n_in, (const int64_t *const *)a->in, a->n_out,
                       (int64_t *const *)a->out);
        break;
    default:
        tally__sum_u8(n, a->n_in, (const uint8_t *const *)a->in, a->n_out,
                      (uint8_t *const *)a->out);
    }
}
