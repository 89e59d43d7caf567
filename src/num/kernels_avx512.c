/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 level (F, BW, DQ, VL). Any thread enters; nothing is kept. */
#include "num/vec_avx512.h"

#include "num/kernels_simd.h"

const struct tally__kernels tally__kernels_avx512 = {TALLY__KERNEL_LIST(KERNEL_ENTRY)};
