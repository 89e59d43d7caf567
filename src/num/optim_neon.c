/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' kernels of the NEON level. Any thread enters; nothing is kept. */
#include "num/vec_neon.h"

#include "num/optim_simd.h"

const struct tally__optim_kernels tally__optim_neon = {TALLY__OPTIM_LIST(KERNEL_ENTRY)};
