/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 level (with F16C). Any thread enters; nothing is kept. */
#include "num/vec_avx2.h"

#include "num/kernels_simd.h"

const struct tally__kernels tally__kernels_avx2 = {TALLY__KERNEL_LIST(KERNEL_ENTRY)};
