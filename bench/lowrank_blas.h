/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody else's matrix products, to compare with: a BLAS that is found when the bench runs. The
 * library itself needs none. One thread.
 */
#ifndef TALLY_BENCH_LOWRANK_BLAS_H
#define TALLY_BENCH_LOWRANK_BLAS_H

#include "num/low_rank.h"

/*
 * Loads a BLAS and limits it to one thread, by its environment. Returns its name; NULL if there is
 * none.
 */
const char *lowrank_blas_load(void);

/* After it was loaded: the products of num/low_rank.h. All elements must be there. */
void lowrank_blas_multiply(const struct tally__low_rank *s, const float *x, const float *q,
                           float *p);
void lowrank_blas_multiply_transposed(const struct tally__low_rank *s, const float *x,
                                      const float *p, float *q);
void lowrank_blas_expand(const struct tally__low_rank *s, struct tally__factors f, float *y);

#endif
