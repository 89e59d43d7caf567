/* SPDX-License-Identifier: Apache-2.0 */
/* The NEON level of 64-bit ARM. Any thread enters; nothing is kept. */
#include "num/vec_neon.h"

#include "num/kernels_simd.h"

const struct tally__kernels tally__kernels_neon = {TALLY__KERNEL_LIST(KERNEL_ENTRY)};
