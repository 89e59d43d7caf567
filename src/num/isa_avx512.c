/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 instruction set (F, BW, DQ, VL): all its kernels. Any thread enters; nothing is kept.
 */
#include "num/vec_avx512.h"

static inline float vf_sum(vf x)
{
    __m256 upper = _mm512_extractf32x8_ps(x, 1);
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), upper);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline void vf_stream(float *y, vf x)
{
    _mm512_stream_ps(y, x);
}

/* Such stores are in no order with others, not even with one that releases. */
static inline void stream_end(void)
{
    _mm_sfence();
}

#include "num/kernels_simd.h"
#include "num/low_rank_simd.h"
#include "num/optim_simd.h"

const struct tally__kernels tally__kernels_avx512 = {TALLY__KERNEL_LIST(TALLY__KERNEL_ENTRY)};
const struct tally__low_rank_kernels tally__low_rank_avx512 = {
    TALLY__LOW_RANK_LIST(TALLY__KERNEL_ENTRY)};
const struct tally__optim_kernels tally__optim_avx512 = {TALLY__OPTIM_LIST(TALLY__KERNEL_ENTRY)};
