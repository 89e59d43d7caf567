/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vectors of kernels_simd.h in AVX2 and F16C: 64 bytes are two registers. The same names mean
 * the same in every vec_*.h.
 */
#ifndef TALLY_NUM_VEC_AVX2_H
#define TALLY_NUM_VEC_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAREST_EVEN (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* 16 floats, 16 halves, 16 truth values, 8 doubles, 64 bytes of integers. */
typedef struct {
    __m256 a, b;
} vf;
typedef struct {
    __m128i a, b;
} vh;
typedef struct {
    __m256 a, b;
} vm;
typedef struct {
    __m256d a, b;
} vd;
typedef struct {
    __m256i a, b;
} vi;

/* Define an operation that treats both registers alike. */
#define UNARY(name, result, type, operation)             \
    static inline result name(type x)                    \
    {                                                    \
        return (result){operation(x.a), operation(x.b)}; \
    }
#define BINARY(name, result, type, operation)                      \
    static inline result name(type x, type y)                      \
    {                                                              \
        return (result){operation(x.a, y.a), operation(x.b, y.b)}; \
    }

static inline vf vf_set1(float x)
{
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline vf vf_load(const float *x)
{
    return (vf){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}

static inline void vf_store(float *y, vf x)
{
    _mm256_storeu_ps(y, x.a);
    _mm256_storeu_ps(y + 8, x.b);
}

BINARY(vf_add, vf, vf, _mm256_add_ps)
BINARY(vf_sub, vf, vf, _mm256_sub_ps)
BINARY(vf_mul, vf, vf, _mm256_mul_ps)
BINARY(vf_div, vf, vf, _mm256_div_ps)
UNARY(vf_sqrt, vf, vf, _mm256_sqrt_ps)

/* x < y ? x : y, so y where one is a NaN. */
BINARY(vf_min, vf, vf, _mm256_min_ps)

/* x > y ? x : y, so y where one is a NaN. */
BINARY(vf_max, vf, vf, _mm256_max_ps)

static inline vf vf_abs(vf x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);

    return (vf){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}

/* x <= y, false where one is a NaN. */
static inline vm vf_le(vf x, vf y)
{
    return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}

/* True where x or y is a NaN. */
static inline vm vf_unordered(vf x, vf y)
{
    return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, y.b, _CMP_UNORD_Q)};
}

BINARY(vm_or, vm, vm, _mm256_or_ps)
BINARY(vm_and, vm, vm, _mm256_and_ps)

static inline bool vm_any(vm x)
{
    return _mm256_movemask_ps(_mm256_or_ps(x.a, x.b)) != 0;
}

static inline size_t vm_count(vm x)
{
    unsigned bits = (unsigned)_mm256_movemask_ps(x.a) | (unsigned)_mm256_movemask_ps(x.b) << 8;

    return (size_t)__builtin_popcount(bits);
}

/* m ? x : y */
static inline vf vf_select(vm m, vf x, vf y)
{
    return (vf){_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}

/* The smallest and the largest of 16 values without a NaN. */
static inline float vf_least(vf x)
{
    __m256 eight = _mm256_min_ps(x.a, x.b);
    __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_min_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_min_ss(two, _mm_movehdup_ps(two)));
}

static inline float vf_most(vf x)
{
    __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline vh vh_load(const uint16_t *x)
{
    const __m128i *from = (const __m128i *)(const void *)x;

    return (vh){_mm_loadu_si128(from), _mm_loadu_si128(from + 1)};
}

static inline void vh_store(uint16_t *y, vh x)
{
    __m128i *to = (__m128i *)(void *)y;

    _mm_storeu_si128(to, x.a);
    _mm_storeu_si128(to + 1, x.b);
}

UNARY(vf_of_f16, vf, vh, _mm256_cvtph_ps)

static inline vh f16_of_vf(vf x)
{
    return (vh){_mm256_cvtps_ph(x.a, NEAREST_EVEN), _mm256_cvtps_ph(x.b, NEAREST_EVEN)};
}

static inline vf vf_load_bf16(const uint16_t *x)
{
    const __m128i *from = (const __m128i *)(const void *)x;
    __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128(from));
    __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128(from + 1));

    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}

/* A byte under the exponent of 2^23 is 2^23 + byte: taking 2^23 + zero away leaves byte - zero. One
 * addition less than by way of the conversion from integers, and additions are what runs out. */
static inline __m256 steps_of_u8(const uint8_t *q, __m256 raised_zero)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)q);
    __m256i raised = _mm256_or_si256(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(0x4b000000));

    return _mm256_sub_ps(_mm256_castsi256_ps(raised), raised_zero);
}

/* q - zero of each element; zero is a whole number in 0..255, raised_zero is 2^23 + zero. */
static inline vf vf_load_steps(const uint8_t *q, vf raised_zero)
{
    return (vf){steps_of_u8(q, raised_zero.a), steps_of_u8(q + 8, raised_zero.b)};
}

/* x raised by half a step of bf16, ties only where that makes it even: the upper half of each
 * integer is then the bf16 value. NaN apart. */
static inline __m256i bf16_raised(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));

    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

/* The same with a NaN made quiet. */
static inline __m256i bf16_raised_or_nan(__m256 x)
{
    __m256i quiet = _mm256_or_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));

    return _mm256_blendv_epi8(bf16_raised(x), quiet, is_nan);
}

/* NaN is rare: a branch costs less than two blends. */
static inline vi vf_bf16_raised(vf x)
{
    __m256 is_nan = _mm256_cmp_ps(x.a, x.b, _CMP_UNORD_Q);

    if (__builtin_expect(_mm256_movemask_ps(is_nan) != 0, 0)) {
        return (vi){bf16_raised_or_nan(x.a), bf16_raised_or_nan(x.b)};
    }
    return (vi){bf16_raised(x.a), bf16_raised(x.b)};
}

static inline void vf_store_bf16(uint16_t *y, vf x)
{
    vi raised = vf_bf16_raised(x);
    __m256i packed =
        _mm256_packus_epi32(_mm256_srli_epi32(raised.a, 16), _mm256_srli_epi32(raised.b, 16));

    /* packus works within halves of a register: the permutation puts the quarters in order. */
    _mm256_storeu_si256((__m256i *)(void *)y, _mm256_permute4x64_epi64(packed, 0xd8));
}

/* The same pair for sums, where the order within a vector does not matter: even elements in one
 * register, odd ones in the other. */
static inline vf vf_load_bf16_shuffled(const uint16_t *x)
{
    __m256i pairs = _mm256_loadu_si256((const __m256i *)(const void *)x);
    __m256i odd = _mm256_and_si256(pairs, _mm256_set1_epi32((int32_t)0xffff0000u));

    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)), _mm256_castsi256_ps(odd)};
}

static inline void store_upper_shuffled(uint16_t *y, vi x)
{
    __m256i pairs = _mm256_blend_epi16(_mm256_srli_epi32(x.a, 16), x.b, 0xaa);

    _mm256_storeu_si256((__m256i *)(void *)y, pairs);
}

static inline void vf_store_bf16_shuffled(uint16_t *y, vf x)
{
    store_upper_shuffled(y, vf_bf16_raised(x));
}

/* The same for values that are rounded already. */
static inline void vf_store_rounded_bf16_shuffled(uint16_t *y, vf x)
{
    store_upper_shuffled(y, (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)});
}

/* Rounded to a half and widened again. */
static inline vf vf_by_bf16(vf x)
{
    const __m256i upper = _mm256_set1_epi32((int32_t)0xffff0000u);
    vi raised = vf_bf16_raised(x);

    return (vf){_mm256_castsi256_ps(_mm256_and_si256(raised.a, upper)),
                _mm256_castsi256_ps(_mm256_and_si256(raised.b, upper))};
}

/* rint(x) of each element, half to even, as integers; what is too large for one, and a NaN, becomes
 * INT_MIN. */
UNARY(vf_steps, vi, vf, _mm256_cvtps_epi32)
UNARY(vf_of_steps, vf, vi, _mm256_cvtepi32_ps)

/* clamp(steps + zero, 0, 255) of each element; zero is in 0..255. */
static inline void vi_store_codes(uint8_t *q, vi steps, float zero)
{
    /* The packing saturates, within halves of a register. */
    __m256i words = _mm256_packs_epi32(steps.a, steps.b);
    __m256i codes = _mm256_adds_epi16(words, _mm256_set1_epi16((int16_t)zero));
    __m128i lower = _mm256_castsi256_si128(codes);
    __m128i upper = _mm256_extracti128_si256(codes, 1);
    __m128i bytes = _mm_packus_epi16(lower, upper);

    /* Fours of a, b, a, b came out as a, b, a, b of the halves: put them in order. */
    _mm_storeu_si128((__m128i *)(void *)q, _mm_shuffle_epi32(bytes, 0xd8));
}

/* clamp(rint(x) + zero, 0, 255) of each element; zero is in 0..255, a NaN becomes 0. */
static inline void vf_store_codes(uint8_t *q, vf x, float zero)
{
    vi_store_codes(q, vf_steps(vf_min(vf_set1(0x1p20f), x)), zero);
}

static inline vd vd_set1(double x)
{
    return (vd){_mm256_set1_pd(x), _mm256_set1_pd(x)};
}

static inline vd vd_load(const double *x)
{
    return (vd){_mm256_loadu_pd(x), _mm256_loadu_pd(x + 4)};
}

static inline void vd_store(double *y, vd x)
{
    _mm256_storeu_pd(y, x.a);
    _mm256_storeu_pd(y + 4, x.b);
}

BINARY(vd_add, vd, vd, _mm256_add_pd)
BINARY(vd_mul, vd, vd, _mm256_mul_pd)
BINARY(vd_div, vd, vd, _mm256_div_pd)

/* Eight floats as doubles. */
static inline vd vd_load_f32(const float *x)
{
    return (vd){_mm256_cvtps_pd(_mm_loadu_ps(x)), _mm256_cvtps_pd(_mm_loadu_ps(x + 4))};
}

static inline vi vi_zero(void)
{
    return (vi){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

static inline vi vi_load(const void *x)
{
    const __m256i *from = (const __m256i *)x;

    return (vi){_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}

static inline void vi_store(void *y, vi x)
{
    __m256i *to = (__m256i *)y;

    _mm256_storeu_si256(to, x.a);
    _mm256_storeu_si256(to + 1, x.b);
}

BINARY(vi_add8, vi, vi, _mm256_add_epi8)
BINARY(vi_add32, vi, vi, _mm256_add_epi32)
BINARY(vi_add64, vi, vi, _mm256_add_epi64)

/* The bits of |x|: integers in the order of the magnitudes, above them infinity, then NaN. */
static inline vi vf_size_bits(vf x)
{
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);

    return (vi){_mm256_andnot_si256(sign, _mm256_castps_si256(x.a)),
                _mm256_andnot_si256(sign, _mm256_castps_si256(x.b))};
}

BINARY(vi_max32, vi, vi, _mm256_max_epi32)
UNARY(vf_bits, vi, vf, _mm256_castps_si256)

/* The larger one when the integers have no sign. */
BINARY(vi_max32_unsigned, vi, vi, _mm256_max_epu32)

/* The largest of 16 integers. */
static inline int32_t vi_most32(vi x)
{
    __m256i eight = _mm256_max_epi32(x.a, x.b);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));

    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

#endif
