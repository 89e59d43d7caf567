/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel table of each level; the target machine decides which exist. */
#ifndef TALLY_NUM_LEVEL_TABLES_H
#define TALLY_NUM_LEVEL_TABLES_H

#include "num/num.h"

extern const struct tally__kernels tally__kernels_ref;
extern const struct tally__kernels tally__kernels_avx2;
extern const struct tally__kernels tally__kernels_avx512;
extern const struct tally__kernels tally__kernels_neon;

#endif
