/* SPDX-License-Identifier: Apache-2.0 */
/* The NEON instruction set of 64-bit ARM: all its kernels. Any thread enters; nothing is kept. */
#include "num/vec_neon.h"

static inline float vf_sum(vf x)
{
    float32x4_t four = vaddq_f32(vaddq_f32(x.val[0], x.val[2]), vaddq_f32(x.val[1], x.val[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* Whether a store goes past the caches is for the CPU to find out. */
static inline void vf_stream(float *y, vf x)
{
    vf_store(y, x);
}

static inline void stream_end(void)
{
}

#include "num/kernels_simd.h"
#include "num/low_rank_simd.h"
#include "num/optim_simd.h"

const struct tally__kernels tally__kernels_neon = {TALLY__KERNEL_LIST(TALLY__KERNEL_ENTRY)};
const struct tally__low_rank_kernels tally__low_rank_neon = {
    TALLY__LOW_RANK_LIST(TALLY__KERNEL_ENTRY)};
const struct tally__optim_kernels tally__optim_neon = {TALLY__OPTIM_LIST(TALLY__KERNEL_ENTRY)};
