/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' kernels of the AVX2 level. Any thread enters; nothing is kept. */
#include "num/vec_avx2.h"

#include "num/optim_simd.h"

const struct tally__optim_kernels tally__optim_avx2 = {TALLY__OPTIM_LIST(KERNEL_ENTRY)};
