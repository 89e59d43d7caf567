/* SPDX-License-Identifier: Apache-2.0 */
/* The sum kernels of a vector instruction set: one body (sum_body_simd.h) per element type. Part of
 * kernels_simd.h, and like it without an include guard. */

/* Multiplying by a power of two gives the bits of dividing by its reciprocal, and is faster; true
 * when 1 / divisor is such a power and a normal number. */
static bool has_exact_reciprocal_f32(float divisor)
{
    uint32_t bits;

    memcpy(&bits, &divisor, sizeof bits);

    uint32_t exponent = (bits >> 23) & 0xffu;

    return (bits & 0x7fffffu) == 0 && exponent >= 1 && exponent <= 253;
}

static bool has_exact_reciprocal_f64(double divisor)
{
    uint64_t bits;

    memcpy(&bits, &divisor, sizeof bits);

    uint64_t exponent = (bits >> 52) & 0x7ffu;

    return (bits & UINT64_C(0xfffffffffffff)) == 0 && exponent >= 1 && exponent <= 2045;
}

/* A divisor, or its exact reciprocal. `multiply` is a constant wherever a body is inlined. */
struct vf_divisor {
    vf by;
    bool multiply;
};

struct vd_divisor {
    vd by;
    bool multiply;
};

static inline vf vf_finish(vf sum, struct vf_divisor divisor)
{
    return divisor.multiply ? vf_mul(sum, divisor.by) : vf_div(sum, divisor.by);
}

static inline vd vd_finish(vd sum, struct vd_divisor divisor)
{
    return divisor.multiply ? vd_mul(sum, divisor.by) : vd_div(sum, divisor.by);
}

static inline vf vf_load_f16(const uint16_t *x)
{
    return vf_of_f16(vh_load(x));
}

static inline void vf_store_f16(uint16_t *y, vf x)
{
    vh_store(y, f16_of_vf(x));
}

/* Rounded to a half and widened again. */
static inline vf vf_by_f16(vf x)
{
    return vf_of_f16(f16_of_vf(x));
}

/* The same for what passes through halves: each input as it is read, the mean before it is
 * written. */
static inline vf vf_load_by_f16(const float *x)
{
    return vf_by_f16(vf_load(x));
}

static inline vf vf_load_by_bf16(const float *x)
{
    return vf_by_bf16(vf_load(x));
}

static inline vf vf_finish_by_f16(vf sum, struct vf_divisor divisor)
{
    return vf_by_f16(vf_finish(sum, divisor));
}

static inline vf vf_finish_by_bf16(vf sum, struct vf_divisor divisor)
{
    return vf_by_bf16(vf_finish(sum, divisor));
}

/* Halves, rounded after each addition. fp32 has more than twice their digits: rounding its sum
 * gives what an addition of halves gives. */
static inline vh vh_step_f16(vh sum, vh x)
{
    return f16_of_vf(vf_add(vf_of_f16(sum), vf_of_f16(x)));
}

static inline vf vf_step_bf16(vf sum, vf x)
{
    return vf_by_bf16(vf_add(sum, x));
}

/* Several vectors per visit of an input, so that the pointers are read from memory less often; no
 * more than fit in registers, where the conversions of the halves take some too. Integers, and
 * halves that are rounded after each addition, are not divided. */
#define SUM_BODY sum_f32_body
#define SUM_ELEMENT float
#define SUM_VECTOR vf
#define SUM_LANES 16
#define SUM_WIDE 4
#define SUM_LOAD vf_load
#define SUM_ADD vf_add
#define SUM_STORE vf_store
#define SUM_FINISH vf_finish
#define SUM_DIVISOR struct vf_divisor
#include "num/sum_body_simd.h"

#define SUM_BODY sum_f16_body
#define SUM_ELEMENT uint16_t
#define SUM_VECTOR vf
#define SUM_LANES 16
#define SUM_WIDE 2
#define SUM_LOAD vf_load_f16
#define SUM_ADD vf_add
#define SUM_STORE vf_store_f16
#define SUM_FINISH vf_finish
#define SUM_DIVISOR struct vf_divisor
#include "num/sum_body_simd.h"

#define SUM_BODY sum_bf16_body
#define SUM_ELEMENT uint16_t
#define SUM_VECTOR vf
#define SUM_LANES 16
#define SUM_WIDE 2
#define SUM_LOAD vf_load_bf16_shuffled
#define SUM_ADD vf_add
#define SUM_STORE vf_store_bf16_shuffled
#define SUM_FINISH vf_finish
#define SUM_DIVISOR struct vf_divisor
#include "num/sum_body_simd.h"

#define SUM_BODY mean_f32_by_f16_body
#define SUM_ELEMENT float
#define SUM_VECTOR vf
#define SUM_LANES 16
#define SUM_WIDE 2
#define SUM_LOAD vf_load_by_f16
#define SUM_ADD vf_add
#define SUM_STORE vf_store
#define SUM_FINISH vf_finish_by_f16
#define SUM_DIVISOR struct vf_divisor
#include "num/sum_body_simd.h"

#define SUM_BODY mean_f32_by_bf16_body
#define SUM_ELEMENT float
#define SUM_VECTOR vf
#define SUM_LANES 16
#define SUM_WIDE 2
#define SUM_LOAD vf_load_by_bf16
#define SUM_ADD vf_add
#define SUM_STORE vf_store
#define SUM_FINISH vf_finish_by_bf16
#define SUM_DIVISOR struct vf_divisor
#include "num/sum_body_simd.h"

#define SUM_BODY sum_f16_stepwise_body
#define SUM_ELEMENT uint16_t
#define SUM_VECTOR vh
#define SUM_LANES 16
#define SUM_WIDE 2
#define SUM_LOAD vh_load
#define SUM_ADD vh_step_f16
#define SUM_STORE vh_store
#include "num/sum_body_simd.h"

#define SUM_BODY sum_bf16_stepwise_body
#define SUM_ELEMENT uint16_t
#define SUM_VECTOR vf
#define SUM_LANES 16
#define SUM_WIDE 2
#define SUM_LOAD vf_load_bf16_shuffled
#define SUM_ADD vf_step_bf16
#define SUM_STORE vf_store_rounded_bf16_shuffled
#include "num/sum_body_simd.h"

#define SUM_BODY sum_f64_body
#define SUM_ELEMENT double
#define SUM_VECTOR vd
#define SUM_LANES 8
#define SUM_WIDE 4
#define SUM_LOAD vd_load
#define SUM_ADD vd_add
#define SUM_STORE vd_store
#define SUM_FINISH vd_finish
#define SUM_DIVISOR struct vd_divisor
#include "num/sum_body_simd.h"

#define SUM_BODY sum_i32_body
#define SUM_ELEMENT int32_t
#define SUM_VECTOR vi
#define SUM_LANES 16
#define SUM_WIDE 4
#define SUM_LOAD vi_load
#define SUM_ADD vi_add32
#define SUM_STORE vi_store
#include "num/sum_body_simd.h"

#define SUM_BODY sum_i64_body
#define SUM_ELEMENT int64_t
#define SUM_VECTOR vi
#define SUM_LANES 8
#define SUM_WIDE 4
#define SUM_LOAD vi_load
#define SUM_ADD vi_add64
#define SUM_STORE vi_store
#include "num/sum_body_simd.h"

#define SUM_BODY sum_u8_body
#define SUM_ELEMENT uint8_t
#define SUM_VECTOR vi
#define SUM_LANES 64
#define SUM_WIDE 4
#define SUM_LOAD vi_load
#define SUM_ADD vi_add8
#define SUM_STORE vi_store
#include "num/sum_body_simd.h"

/* Calls body with its arguments and the divisor. Each way of dividing has its own loop. */
#define BY_F32(divisor, body, ...)                                                 \
    do {                                                                           \
        if (has_exact_reciprocal_f32(divisor)) {                                   \
            body(__VA_ARGS__, (struct vf_divisor){vf_set1(1.0f / divisor), true}); \
        } else {                                                                   \
            body(__VA_ARGS__, (struct vf_divisor){vf_set1(divisor), false});       \
        }                                                                          \
    } while (0)

static void sum_f32(size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,
                    float *const *out)
{
    BY_F32(divisor, sum_f32_body, n, n_in, in, n_out, out);
}

static void sum_f64(size_t n, size_t n_in, const double *const *in, double divisor, size_t n_out,
                    double *const *out)
{
    if (has_exact_reciprocal_f64(divisor)) {
        sum_f64_body(n, n_in, in, n_out, out, (struct vd_divisor){vd_set1(1.0 / divisor), true});
    } else {
        sum_f64_body(n, n_in, in, n_out, out, (struct vd_divisor){vd_set1(divisor), false});
    }
}

static void sum_f16(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                    uint16_t *const *out)
{
    BY_F32(divisor, sum_f16_body, n, n_in, in, n_out, out);
}

static void sum_bf16(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                     uint16_t *const *out)
{
    BY_F32(divisor, sum_bf16_body, n, n_in, in, n_out, out);
}

static void mean_f32_by_f16(size_t n, size_t n_in, const float *const *in, float divisor,
                            size_t n_out, float *const *out)
{
    BY_F32(divisor, mean_f32_by_f16_body, n, n_in, in, n_out, out);
}

static void mean_f32_by_bf16(size_t n, size_t n_in, const float *const *in, float divisor,
                             size_t n_out, float *const *out)
{
    BY_F32(divisor, mean_f32_by_bf16_body, n, n_in, in, n_out, out);
}

static void sum_f16_stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out)
{
    sum_f16_stepwise_body(n, n_in, in, 1, &out, 0);
}

static void sum_bf16_stepwise(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out)
{
    sum_bf16_stepwise_body(n, n_in, in, 1, &out, 0);
}

static void sum_i32(size_t n, size_t n_in, const int32_t *const *in, size_t n_out,
                    int32_t *const *out)
{
    sum_i32_body(n, n_in, in, n_out, out, 0);
}

static void sum_i64(size_t n, size_t n_in, const int64_t *const *in, size_t n_out,
                    int64_t *const *out)
{
    sum_i64_body(n, n_in, in, n_out, out, 0);
}

static void sum_u8(size_t n, size_t n_in, const uint8_t *const *in, size_t n_out,
                   uint8_t *const *out)
{
    sum_u8_body(n, n_in, in, n_out, out, 0);
}
