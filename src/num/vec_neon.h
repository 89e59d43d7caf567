/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vectors of kernels_simd.h in the NEON of 64-bit ARM: 64 bytes are four registers. The same
 * names mean the same in every vec_*.h.
 */
#ifndef TALLY_NUM_VEC_NEON_H
#define TALLY_NUM_VEC_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 16 floats, 16 halves, 16 truth values, 8 doubles, 64 bytes of integers. */
typedef float32x4x4_t vf;
typedef uint16x8x2_t vh;
typedef uint32x4x4_t vm;
typedef float64x2x4_t vd;
typedef uint8x16x4_t vi;

/* Define an operation that treats all four registers alike. */
#define UNARY(name, result, type, operation)                                                       \
    static inline result name(type x)                                                              \
    {                                                                                              \
        return (result){                                                                           \
            {operation(x.val[0]), operation(x.val[1]), operation(x.val[2]), operation(x.val[3])}}; \
    }
#define BINARY(name, result, type, operation)                                            \
    static inline result name(type x, type y)                                            \
    {                                                                                    \
        return (result){{operation(x.val[0], y.val[0]), operation(x.val[1], y.val[1]),   \
                         operation(x.val[2], y.val[2]), operation(x.val[3], y.val[3])}}; \
    }

static inline vf vf_set1(float x)
{
    float32x4_t v = vdupq_n_f32(x);

    return (vf){{v, v, v, v}};
}

static inline vf vf_load(const float *x)
{
    return vld1q_f32_x4(x);
}

static inline void vf_store(float *y, vf x)
{
    vst1q_f32_x4(y, x);
}

BINARY(vf_add, vf, vf, vaddq_f32)
BINARY(vf_sub, vf, vf, vsubq_f32)
BINARY(vf_mul, vf, vf, vmulq_f32)
BINARY(vf_div, vf, vf, vdivq_f32)
UNARY(vf_sqrt, vf, vf, vsqrtq_f32)

/* x < y ? x : y, so y where one is a NaN; not vminq, which gives the NaN. */
static inline float32x4_t min4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcltq_f32(x, y), x, y);
}

static inline float32x4_t max4(float32x4_t x, float32x4_t y)
{
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

BINARY(vf_min, vf, vf, min4)

/* x > y ? x : y, so y where one is a NaN. */
BINARY(vf_max, vf, vf, max4)
UNARY(vf_abs, vf, vf, vabsq_f32)

/* x <= y, false where one is a NaN. */
BINARY(vf_le, vm, vf, vcleq_f32)

static inline uint32x4_t unordered4(float32x4_t x, float32x4_t y)
{
    return vmvnq_u32(vandq_u32(vceqq_f32(x, x), vceqq_f32(y, y)));
}

/* True where x or y is a NaN. */
BINARY(vf_unordered, vm, vf, unordered4)
BINARY(vm_or, vm, vm, vorrq_u32)
BINARY(vm_and, vm, vm, vandq_u32)

static inline bool vm_any(vm x)
{
    uint32x4_t lower = vorrq_u32(x.val[0], x.val[1]);
    uint32x4_t upper = vorrq_u32(x.val[2], x.val[3]);

    return vmaxvq_u32(vorrq_u32(lower, upper)) != 0;
}

/* True is -1: the sum of the truth values is minus their number. */
static inline size_t vm_count(vm x)
{
    uint32x4_t lower = vaddq_u32(x.val[0], x.val[1]);
    uint32x4_t upper = vaddq_u32(x.val[2], x.val[3]);

    return 0u - vaddvq_u32(vaddq_u32(lower, upper));
}

/* m ? x : y */
static inline vf vf_select(vm m, vf x, vf y)
{
    return (vf){{vbslq_f32(m.val[0], x.val[0], y.val[0]), vbslq_f32(m.val[1], x.val[1], y.val[1]),
                 vbslq_f32(m.val[2], x.val[2], y.val[2]), vbslq_f32(m.val[3], x.val[3], y.val[3])}};
}

/* The smallest and the largest of 16 values without a NaN. */
static inline float vf_least(vf x)
{
    float32x4_t lower = vminq_f32(x.val[0], x.val[1]);
    float32x4_t upper = vminq_f32(x.val[2], x.val[3]);

    return vminvq_f32(vminq_f32(lower, upper));
}

static inline float vf_most(vf x)
{
    float32x4_t lower = vmaxq_f32(x.val[0], x.val[1]);
    float32x4_t upper = vmaxq_f32(x.val[2], x.val[3]);

    return vmaxvq_f32(vmaxq_f32(lower, upper));
}

static inline vh vh_load(const uint16_t *x)
{
    return vld1q_u16_x2(x);
}

static inline void vh_store(uint16_t *y, vh x)
{
    vst1q_u16_x2(y, x);
}

static inline float32x4_t f32_of_f16x4(uint16x4_t x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(x));
}

static inline uint16x4_t f16x4_of_f32(float32x4_t x)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

static inline uint16x8_t join(uint16x4_t lower, uint16x4_t upper)
{
    return vcombine_u16(lower, upper);
}

static inline vf vf_of_f16(vh x)
{
    return (vf){{f32_of_f16x4(vget_low_u16(x.val[0])), f32_of_f16x4(vget_high_u16(x.val[0])),
                 f32_of_f16x4(vget_low_u16(x.val[1])), f32_of_f16x4(vget_high_u16(x.val[1]))}};
}

static inline vh f16_of_vf(vf x)
{
    return (vh){{join(f16x4_of_f32(x.val[0]), f16x4_of_f32(x.val[1])),
                 join(f16x4_of_f32(x.val[2]), f16x4_of_f32(x.val[3]))}};
}

static inline float32x4_t f32_of_bf16x4(uint16x4_t x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}

/* By integer arithmetic: not every 64-bit ARM has the bf16 instructions. */
static inline uint16x4_t bf16x4_of_f32(float32x4_t x)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t raised = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));

    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), raised, quiet), 16);
}

static inline vf vf_load_bf16(const uint16_t *x)
{
    vh h = vh_load(x);

    return (vf){{f32_of_bf16x4(vget_low_u16(h.val[0])), f32_of_bf16x4(vget_high_u16(h.val[0])),
                 f32_of_bf16x4(vget_low_u16(h.val[1])), f32_of_bf16x4(vget_high_u16(h.val[1]))}};
}

static inline void vf_store_bf16(uint16_t *y, vf x)
{
    vst1q_u16(y, join(bf16x4_of_f32(x.val[0]), bf16x4_of_f32(x.val[1])));
    vst1q_u16(y + 8, join(bf16x4_of_f32(x.val[2]), bf16x4_of_f32(x.val[3])));
}

static inline float32x4_t by_bf16(float32x4_t x)
{
    return f32_of_bf16x4(bf16x4_of_f32(x));
}

/* Rounded to a half and widened again. */
UNARY(vf_by_bf16, vf, vf, by_bf16)

/* Sums, which may have another order within a vector, gain nothing from one here. */
#define vf_load_bf16_shuffled vf_load_bf16
#define vf_store_bf16_shuffled vf_store_bf16

static inline uint16x4_t upper_half(float32x4_t x)
{
    return vshrn_n_u32(vreinterpretq_u32_f32(x), 16);
}

/* The same for values that are rounded already. */
static inline void vf_store_rounded_bf16_shuffled(uint16_t *y, vf x)
{
    vst1q_u16(y, join(upper_half(x.val[0]), upper_half(x.val[1])));
    vst1q_u16(y + 8, join(upper_half(x.val[2]), upper_half(x.val[3])));
}

/* A byte under the exponent of 2^23 is 2^23 + byte: taking 2^23 + zero away leaves byte - zero. */
static inline float32x4_t steps_of_u16x4(uint16x4_t q, float32x4_t raised_zero)
{
    uint32x4_t raised = vorrq_u32(vmovl_u16(q), vdupq_n_u32(0x4b000000));

    return vsubq_f32(vreinterpretq_f32_u32(raised), raised_zero);
}

/* q - zero of each element; zero is a whole number in 0..255, raised_zero is 2^23 + zero. */
static inline vf vf_load_steps(const uint8_t *q, vf raised_zero)
{
    uint8x16_t bytes = vld1q_u8(q);
    uint16x8_t lower = vmovl_u8(vget_low_u8(bytes));
    uint16x8_t upper = vmovl_u8(vget_high_u8(bytes));

    return (vf){{steps_of_u16x4(vget_low_u16(lower), raised_zero.val[0]),
                 steps_of_u16x4(vget_high_u16(lower), raised_zero.val[1]),
                 steps_of_u16x4(vget_low_u16(upper), raised_zero.val[2]),
                 steps_of_u16x4(vget_high_u16(upper), raised_zero.val[3])}};
}

static inline uint8x16_t steps4(float32x4_t x)
{
    return vreinterpretq_u8_s32(vcvtnq_s32_f32(x));
}

/* rint(x) of each element, half to even, as integers that saturate; a NaN becomes 0. */
UNARY(vf_steps, vi, vf, steps4)

static inline float32x4_t f32_of_steps4(uint8x16_t steps)
{
    return vcvtq_f32_s32(vreinterpretq_s32_u8(steps));
}

UNARY(vf_of_steps, vf, vi, f32_of_steps4)

/* Eight integers, saturated. */
static inline int16x8_t words8(uint8x16_t lower, uint8x16_t upper)
{
    return vcombine_s16(vqmovn_s32(vreinterpretq_s32_u8(lower)),
                        vqmovn_s32(vreinterpretq_s32_u8(upper)));
}

/* clamp(steps + zero, 0, 255) of each element; zero is in 0..255. */
static inline void vi_store_codes(uint8_t *q, vi steps, float zero)
{
    int16x8_t shift = vdupq_n_s16((int16_t)zero);
    int16x8_t lower = vqaddq_s16(words8(steps.val[0], steps.val[1]), shift);
    int16x8_t upper = vqaddq_s16(words8(steps.val[2], steps.val[3]), shift);

    vst1q_u8(q, vcombine_u8(vqmovun_s16(lower), vqmovun_s16(upper)));
}

/* A large negative number in place of a NaN. */
static inline float32x4_t low_for_nan(float32x4_t x)
{
    return vmaxnmq_f32(x, vdupq_n_f32(-0x1p20f));
}

/* clamp(rint(x) + zero, 0, 255) of each element; zero is in 0..255, a NaN becomes 0. */
static inline void vf_store_codes(uint8_t *q, vf x, float zero)
{
    vf numbers = {{low_for_nan(x.val[0]), low_for_nan(x.val[1]), low_for_nan(x.val[2]),
                   low_for_nan(x.val[3])}};

    vi_store_codes(q, vf_steps(numbers), zero);
}

static inline vd vd_set1(double x)
{
    float64x2_t v = vdupq_n_f64(x);

    return (vd){{v, v, v, v}};
}

static inline vd vd_load(const double *x)
{
    return vld1q_f64_x4(x);
}

static inline void vd_store(double *y, vd x)
{
    vst1q_f64_x4(y, x);
}

BINARY(vd_add, vd, vd, vaddq_f64)
BINARY(vd_mul, vd, vd, vmulq_f64)
BINARY(vd_div, vd, vd, vdivq_f64)

/* Eight floats as doubles. */
static inline vd vd_load_f32(const float *x)
{
    float32x4_t a = vld1q_f32(x);
    float32x4_t b = vld1q_f32(x + 4);

    return (vd){{vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a), vcvt_f64_f32(vget_low_f32(b)),
                 vcvt_high_f64_f32(b)}};
}

static inline vi vi_zero(void)
{
    uint8x16_t v = vdupq_n_u8(0);

    return (vi){{v, v, v, v}};
}

static inline vi vi_load(const void *x)
{
    return vld1q_u8_x4((const uint8_t *)x);
}

static inline void vi_store(void *y, vi x)
{
    vst1q_u8_x4((uint8_t *)y, x);
}

static inline uint8x16_t add_as_u32(uint8x16_t x, uint8x16_t y)
{
    return vreinterpretq_u8_u32(vaddq_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
}

static inline uint8x16_t add_as_u64(uint8x16_t x, uint8x16_t y)
{
    return vreinterpretq_u8_u64(vaddq_u64(vreinterpretq_u64_u8(x), vreinterpretq_u64_u8(y)));
}

BINARY(vi_add8, vi, vi, vaddq_u8)
BINARY(vi_add32, vi, vi, add_as_u32)
BINARY(vi_add64, vi, vi, add_as_u64)

static inline uint8x16_t size_bits4(float32x4_t x)
{
    return vreinterpretq_u8_f32(vabsq_f32(x));
}

static inline uint8x16_t max_as_s32(uint8x16_t x, uint8x16_t y)
{
    return vreinterpretq_u8_s32(vmaxq_s32(vreinterpretq_s32_u8(x), vreinterpretq_s32_u8(y)));
}

/* The bits of |x|: integers in the order of the magnitudes, above them infinity, then NaN. */
UNARY(vf_size_bits, vi, vf, size_bits4)
BINARY(vi_max32, vi, vi, max_as_s32)
UNARY(vf_bits, vi, vf, vreinterpretq_u8_f32)

static inline uint8x16_t max_as_u32(uint8x16_t x, uint8x16_t y)
{
    return vreinterpretq_u8_u32(vmaxq_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
}

/* The larger one when the integers have no sign. */
BINARY(vi_max32_unsigned, vi, vi, max_as_u32)

/* The largest of 16 integers. */
static inline int32_t vi_most32(vi x)
{
    uint8x16_t lower = max_as_s32(x.val[0], x.val[1]);
    uint8x16_t upper = max_as_s32(x.val[2], x.val[3]);

    return vmaxvq_s32(vreinterpretq_s32_u8(max_as_s32(lower, upper)));
}

#endif
