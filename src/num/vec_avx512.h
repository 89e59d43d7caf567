/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vectors of kernels_simd.h in AVX-512: 64 bytes are one register. The same names mean the same
 * in every vec_*.h.
 */
#ifndef TALLY_NUM_VEC_AVX512_H
#define TALLY_NUM_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAREST_EVEN (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* 16 floats, 16 halves, 16 truth values, 8 doubles, 64 bytes of integers. */
typedef __m512 vf;
typedef __m256i vh;
typedef __mmask16 vm;
typedef __m512d vd;
typedef __m512i vi;

/* Define an operation that is one instruction. */
#define UNARY(name, result, type, operation) \
    static inline result name(type x)        \
    {                                        \
        return operation(x);                 \
    }
#define BINARY(name, result, type, operation) \
    static inline result name(type x, type y) \
    {                                         \
        return operation(x, y);               \
    }

static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline vf vf_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

static inline void vf_store(float *y, vf x)
{
    _mm512_storeu_ps(y, x);
}

BINARY(vf_add, vf, vf, _mm512_add_ps)
BINARY(vf_sub, vf, vf, _mm512_sub_ps)
BINARY(vf_mul, vf, vf, _mm512_mul_ps)
BINARY(vf_div, vf, vf, _mm512_div_ps)
UNARY(vf_sqrt, vf, vf, _mm512_sqrt_ps)

/* x < y ? x : y, so y where one is a NaN. */
BINARY(vf_min, vf, vf, _mm512_min_ps)

/* x > y ? x : y, so y where one is a NaN. */
BINARY(vf_max, vf, vf, _mm512_max_ps)
UNARY(vf_abs, vf, vf, _mm512_abs_ps)

/* x <= y, false where one is a NaN. */
static inline vm vf_le(vf x, vf y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_LE_OQ);
}

/* True where x or y is a NaN. */
static inline vm vf_unordered(vf x, vf y)
{
    return _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
}

static inline vm vm_or(vm x, vm y)
{
    return (vm)(x | y);
}

static inline vm vm_and(vm x, vm y)
{
    return (vm)(x & y);
}

static inline bool vm_any(vm x)
{
    return x != 0;
}

static inline size_t vm_count(vm x)
{
    return (size_t)__builtin_popcount((unsigned)x);
}

/* m ? x : y */
static inline vf vf_select(vm m, vf x, vf y)
{
    return _mm512_mask_mov_ps(y, m, x);
}

/* Elements 0..7 and 8..15. */
static inline __m256 lower_half(vf x)
{
    return _mm512_castps512_ps256(x);
}

static inline __m256 upper_half(vf x)
{
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}

/* The smallest and the largest of 16 values without a NaN. */
static inline float vf_least(vf x)
{
    __m256 eight = _mm256_min_ps(lower_half(x), upper_half(x));
    __m128 four = _mm_min_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_min_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_min_ss(two, _mm_movehdup_ps(two)));
}

static inline float vf_most(vf x)
{
    __m256 eight = _mm256_max_ps(lower_half(x), upper_half(x));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline vh vh_load(const uint16_t *x)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

static inline void vh_store(uint16_t *y, vh x)
{
    _mm256_storeu_si256((__m256i *)(void *)y, x);
}

UNARY(vf_of_f16, vf, vh, _mm512_cvtph_ps)

static inline vh f16_of_vf(vf x)
{
    /* Without a mask, gcc's unoptimised form is a macro that warns about its own mask of -1. */
    return _mm512_maskz_cvtps_ph(0xffff, x, NEAREST_EVEN);
}

static inline vf vf_load_bf16(const uint16_t *x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(vh_load(x)), 16));
}

/* The upper half of each integer is the bf16 value. By integer arithmetic: the instruction of
 * AVX-512 BF16 flushes subnormals. */
static inline __m512i bf16_raised(vf x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i raised = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));

    return _mm512_mask_mov_epi32(raised, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
}

static inline void store_upper(uint16_t *y, __m512i x)
{
    vh_store(y, _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
}

static inline void vf_store_bf16(uint16_t *y, vf x)
{
    store_upper(y, bf16_raised(x));
}

/* Rounded to a half and widened again. */
static inline vf vf_by_bf16(vf x)
{
    __m512i upper = _mm512_set1_epi32((int32_t)0xffff0000u);

    return _mm512_castsi512_ps(_mm512_and_si512(bf16_raised(x), upper));
}

/* Sums, which may have another order within a vector, gain nothing from one here. */
#define vf_load_bf16_shuffled vf_load_bf16
#define vf_store_bf16_shuffled vf_store_bf16

/* The same for values that are rounded already. */
static inline void vf_store_rounded_bf16_shuffled(uint16_t *y, vf x)
{
    store_upper(y, _mm512_castps_si512(x));
}

/* q - zero of each element; zero is a whole number in 0..255, raised_zero is 2^23 + zero: a byte
 * under the exponent of 2^23 is 2^23 + byte. */
static inline vf vf_load_steps(const uint8_t *q, vf raised_zero)
{
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)q));
    __m512i raised = _mm512_or_si512(bytes, _mm512_set1_epi32(0x4b000000));

    return _mm512_sub_ps(_mm512_castsi512_ps(raised), raised_zero);
}

/* rint(x) of each element, half to even, as integers; what is too large for one, and a NaN, becomes
 * INT_MIN. */
UNARY(vf_steps, vi, vf, _mm512_cvtps_epi32)
UNARY(vf_of_steps, vf, vi, _mm512_cvtepi32_ps)

/* clamp(steps + zero, 0, 255) of each element; zero is in 0..255. */
static inline void vi_store_codes(uint8_t *q, vi steps, float zero)
{
    __m512i codes = _mm512_add_epi32(steps, _mm512_set1_epi32((int32_t)zero));
    __m512i raised = _mm512_max_epi32(codes, _mm512_setzero_si512());

    _mm_storeu_si128((__m128i *)(void *)q, _mm512_cvtusepi32_epi8(raised));
}

/* clamp(rint(x) + zero, 0, 255) of each element; zero is in 0..255, a NaN becomes 0. */
static inline void vf_store_codes(uint8_t *q, vf x, float zero)
{
    vi_store_codes(q, vf_steps(vf_min(vf_set1(0x1p20f), x)), zero);
}

static inline vd vd_set1(double x)
{
    return _mm512_set1_pd(x);
}

static inline vd vd_load(const double *x)
{
    return _mm512_loadu_pd(x);
}

static inline void vd_store(double *y, vd x)
{
    _mm512_storeu_pd(y, x);
}

BINARY(vd_add, vd, vd, _mm512_add_pd)
BINARY(vd_mul, vd, vd, _mm512_mul_pd)
BINARY(vd_div, vd, vd, _mm512_div_pd)

/* Eight floats as doubles. */
static inline vd vd_load_f32(const float *x)
{
    return _mm512_cvtps_pd(_mm256_loadu_ps(x));
}

static inline vi vi_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vi vi_load(const void *x)
{
    return _mm512_loadu_si512(x);
}

static inline void vi_store(void *y, vi x)
{
    _mm512_storeu_si512(y, x);
}

BINARY(vi_add8, vi, vi, _mm512_add_epi8)
BINARY(vi_add32, vi, vi, _mm512_add_epi32)
BINARY(vi_add64, vi, vi, _mm512_add_epi64)

/* The bits of |x|: integers in the order of the magnitudes, above them infinity, then NaN. */
static inline vi vf_size_bits(vf x)
{
    return _mm512_andnot_si512(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(x));
}

BINARY(vi_max32, vi, vi, _mm512_max_epi32)
UNARY(vf_bits, vi, vf, _mm512_castps_si512)

/* The larger one when the integers have no sign. */
BINARY(vi_max32_unsigned, vi, vi, _mm512_max_epu32)

/* The largest of 16 integers. */
static inline int32_t vi_most32(vi x)
{
    __m512i eight = _mm512_max_epi32(x, _mm512_shuffle_i32x4(x, x, 0x4e));
    __m256i half = _mm512_castsi512_si256(eight);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));

    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

#endif
