/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the place of the compiler's <immintrin.h> where the AVX-512 instruction set is compiled for
 * a machine without AVX-512: SIMDe's portable intrinsics, and the conversions that its version
 * 0.7.4 lacks, made of its narrower ones.
 */
#ifndef TALLY_TESTS_EMULATE_IMMINTRIN_H
#define TALLY_TESTS_EMULATE_IMMINTRIN_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>

/* Names that 0.7.4 has no aliases for. */
typedef simde__mmask16 __mmask16;
#ifndef _MM_FROUND_NO_EXC
#define _MM_FROUND_NO_EXC SIMDE_MM_FROUND_NO_EXC
#endif

static inline simde__m512i emulate_join(simde__m256i lower, simde__m256i upper)
{
    simde__m512i_private r;

    r.m256i[0] = lower;
    r.m256i[1] = upper;
    return simde__m512i_from_private(r);
}

static inline simde__m256i emulate_half(simde__m512i x, int which)
{
    return simde__m512i_to_private(x).m256i[which];
}

static inline simde__m256 _mm512_extractf32x8_ps(simde__m512 x, int which)
{
    return simde__m512_to_private(x).m256[which];
}

/* Through the caches: the address still has to be a multiple of 64. */
static inline void _mm512_stream_ps(float *y, simde__m512 x)
{
    simde_mm512_store_ps(y, x);
}

static inline simde__m512 _mm512_cvtepi32_ps(simde__m512i x)
{
    simde__m512_private r;

    r.m256[0] = simde_mm256_cvtepi32_ps(emulate_half(x, 0));
    r.m256[1] = simde_mm256_cvtepi32_ps(emulate_half(x, 1));
    return simde__m512_from_private(r);
}

/* A value that does not fit becomes INT_MIN, as in the instruction. */
static inline simde__m512i _mm512_cvtps_epi32(simde__m512 x)
{
    simde__m512_private v = simde__m512_to_private(x);
    simde__m512i_private r;

    for (int i = 0; i < 16; i++) {
        float whole = nearbyintf(v.f32[i]);

        r.i32[i] = whole >= -2147483648.0f && whole < 2147483648.0f ? (int32_t)whole : INT32_MIN;
    }
    return simde__m512i_from_private(r);
}

static inline simde__m512d _mm512_cvtps_pd(simde__m256 x)
{
    simde__m256_private v = simde__m256_to_private(x);
    simde__m512d_private r;

    for (int i = 0; i < 8; i++) {
        r.f64[i] = (double)v.f32[i];
    }
    return simde__m512d_from_private(r);
}

static inline simde__m512i _mm512_cvtepu16_epi32(simde__m256i x)
{
    return emulate_join(simde_mm256_cvtepu16_epi32(simde_mm256_castsi256_si128(x)),
                        simde_mm256_cvtepu16_epi32(simde_mm256_extracti128_si256(x, 1)));
}

static inline simde__m512i _mm512_cvtepu8_epi32(simde__m128i x)
{
    return emulate_join(simde_mm256_cvtepu8_epi32(x),
                        simde_mm256_cvtepu8_epi32(simde_mm_srli_si128(x, 8)));
}

static inline simde__m256i _mm512_cvtepi32_epi16(simde__m512i x)
{
    simde__m512i_private v = simde__m512i_to_private(x);
    simde__m256i_private r;

    for (int i = 0; i < 16; i++) {
        r.u16[i] = (uint16_t)v.u32[i];
    }
    return simde__m256i_from_private(r);
}

static inline simde__m128i _mm512_cvtusepi32_epi8(simde__m512i x)
{
    simde__m512i_private v = simde__m512i_to_private(x);
    simde__m128i_private r;

    for (int i = 0; i < 16; i++) {
        r.u8[i] = (uint8_t)(v.u32[i] < 255 ? v.u32[i] : 255);
    }
    return simde__m128i_from_private(r);
}

/* The fp16 conversions, with the ties and the NaN payloads of the instructions. */
static inline float emulate_f32_of_f16(uint16_t half)
{
    int exponent = (half >> 10) & 31;
    float size = (float)(half & 0x3ff);
    simde_float32 r;

    if (exponent == 31) {
        uint32_t quiet = (half & 0x3ff) != 0 ? 0x400000u : 0u;
        uint32_t bits =
            (uint32_t)(half & 0x8000) << 16 | 0x7f800000u | quiet | (uint32_t)(half & 0x3ff) << 13;

        memcpy(&r, &bits, sizeof r);
        return r;
    }
    size = exponent == 0 ? size * 0x1p-24f : ldexpf(size + 1024.0f, exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
}

static inline uint16_t emulate_f16_of_f32(float x)
{
    uint32_t bits;
    float size = fabsf(x);
    int exponent;

    memcpy(&bits, &x, sizeof bits);

    uint32_t sign = (bits >> 16) & 0x8000u;

    if (isnan(x)) {
        return (uint16_t)(sign | 0x7e00u | ((bits & 0x7fffffu) >> 13));
    }
    if (size >= 65520.0f) {
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size < 0x1p-14f) {
        return (uint16_t)(sign | (uint32_t)nearbyintf(size * 0x1p24f));
    }
    size = frexpf(size, &exponent);
    /* The fraction may round up to 2048, which carries into the exponent as it should. */
    return (uint16_t)(sign |
                      (((uint32_t)(exponent + 13) << 10) + (uint32_t)nearbyintf(size * 2048.0f)));
}

static inline simde__m512 _mm512_cvtph_ps(simde__m256i x)
{
    simde__m256i_private v = simde__m256i_to_private(x);
    simde__m512_private r;

    for (int i = 0; i < 16; i++) {
        r.f32[i] = emulate_f32_of_f16(v.u16[i]);
    }
    return simde__m512_from_private(r);
}

/* Rounds to nearest even: the only mode asked for. */
static inline simde__m256i _mm512_maskz_cvtps_ph(simde__mmask16 mask, simde__m512 x, int mode)
{
    simde__m512_private v = simde__m512_to_private(x);
    simde__m256i_private r;

    (void)mode;
    for (int i = 0; i < 16; i++) {
        r.u16[i] = (mask >> i & 1) != 0 ? emulate_f16_of_f32(v.f32[i]) : 0;
    }
    return simde__m256i_from_private(r);
}

#endif
