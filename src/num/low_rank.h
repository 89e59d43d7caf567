/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of low-rank gradient compression (PowerSGD): a gradient, seen as a matrix M of n
 * rows and m columns, is approximated by P Q^T, where P has n rows, Q has m rows, and both have r
 * columns. M is stored row by row; P and Q column by column: column k of P is p[k * n .. k * n +
 * n).
 *
 * A step with error feedback, where C holds the corrected gradient of the step before and P', Q'
 * the factors that step ended with (zeros before the first step; C is then the residual):
 *
 *   fill Q's zero columns, orthogonalise Q
 *   correct:              C = M + (C - P' Q'^T),  P = C Q     reads M and C, writes C
 *   sum P over ranks, orthogonalise P
 *   multiply_transposed:  Q = C^T P                           reads C
 *   average Q over ranks
 *   expand:               M = P Q^T                           writes M
 *
 * So the residual is never stored: its bits are the same when the next step computes it. That makes
 * five streams of the gradient's size through memory instead of seven. Without feedback, multiply
 * takes the place of correct and reads M only; multiply_transposed reads M.
 *
 * Ranks compute some results redundantly, and bit-equal everywhere: orthogonalise, fill, expand and
 * the residual. The other results are bit-equal on every instruction set, too, like all of num.
 *
 * multiply: P = M Q. correct: as above; P may be the same array as P', Q not the same as Q'. Sums
 * over a row are in fp32, in sixteen interleaved partial sums that are added pairwise at the end.
 *
 * multiply_transposed: Q = M^T P. Sums over rows are in fp32: four rows at a time (the last time
 * fewer) are added up, then eight of these sums, which are added to what there is. A row that is
 * cut short comes by itself.
 *
 * expand: M = P Q^T, products added in the order of the columns, in fp32. past_caches: the result
 * is stored past the caches where the machine can do that, which is worth it when the gradients of
 * a step do not fit in them. residual: C = C - P Q^T, where a residual must be written out.
 *
 * dot_f32: the inner product in fp64, summed like sqnorm_f32.
 *
 * If rows are a power of two long, caches like P and Q best at addresses whose last twelve bits
 * are not those of the matrix.
 *
 * No size may be 0. Arrays do not overlap unless said otherwise. Values that are not finite stay
 * so.
 */
#ifndef TALLY_NUM_LOW_RANK_H
#define TALLY_NUM_LOW_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The shape of an approximation. */
struct tally__low_rank {
    size_t n;    /* rows of the matrix, and of P */
    size_t m;    /* columns of the matrix, rows of Q */
    size_t r;    /* columns of P and of Q */
    size_t size; /* elements in memory, at most n * m: missing elements at the end count as 0 */
};

struct tally__factors {
    const float *p;
    const float *q;
};

/* Every low-rank kernel, declared once like those of num/kernel_list.h: expanded into the table of
 * each instruction set, the dispatching functions and the tests. */
#define TALLY__LOW_RANK_LIST(X)                                                                  \
    X(low_rank_multiply, void,                                                                   \
      (const struct tally__low_rank *s, const float *x, const float *q, float *p), (s, x, q, p)) \
    X(low_rank_correct, void,                                                                    \
      (const struct tally__low_rank *s, const float *grad, struct tally__factors old,            \
       const float *q, float *c, float *p),                                                      \
      (s, grad, old, q, c, p))                                                                   \
    X(low_rank_multiply_transposed, void,                                                        \
      (const struct tally__low_rank *s, const float *x, const float *p, float *q), (s, x, p, q)) \
    X(low_rank_expand, void,                                                                     \
      (const struct tally__low_rank *s, struct tally__factors f, bool past_caches, float *y),    \
      (s, f, past_caches, y))                                                                    \
    X(low_rank_residual, void,                                                                   \
      (const struct tally__low_rank *s, struct tally__factors f, float *c), (s, f, c))           \
    X(dot_f32, double, (size_t n, const float *x, const float *y), (n, x, y))

/* The dispatching functions tally__<kernel>. */
#define TALLY__LOW_RANK_DECLARE(name, result, parameters, arguments) \
    result tally__##name parameters;
TALLY__LOW_RANK_LIST(TALLY__LOW_RANK_DECLARE)
#undef TALLY__LOW_RANK_DECLARE

/* The kernels of one instruction set; the target machine decides which exist. */
struct tally__low_rank_kernels {
#define TALLY__LOW_RANK_MEMBER(name, result, parameters, arguments) result(*name) parameters;
    TALLY__LOW_RANK_LIST(TALLY__LOW_RANK_MEMBER)
#undef TALLY__LOW_RANK_MEMBER
};

extern const struct tally__low_rank_kernels tally__low_rank_ref;
extern const struct tally__low_rank_kernels tally__low_rank_avx2;
extern const struct tally__low_rank_kernels tally__low_rank_avx512;
extern const struct tally__low_rank_kernels tally__low_rank_neon;

/*
 * Makes the r columns of n elements orthonormal: Gram-Schmidt, each column projected twice, so that
 * the result is orthogonal to the precision of fp32 whatever the columns were. A column is divided
 * by its norm plus epsilon.
 *
 * A column of zeros stays zero, and one that depends on those before it, as far as fp32 can tell,
 * becomes zero: the approximation then has a lower rank and is as good, since the other columns
 * span the same space; what would be left after projecting is rounding error. It can be filled
 * again: see tally__low_rank_fill. More columns than rows are of this kind. An infinity or a NaN
 * anywhere makes all columns NaN.
 *
 * Returns how many columns are not zero; 0 when they are NaN.
 */
size_t tally__low_rank_orthogonalise(size_t n, size_t r, double epsilon, float *p);

/*
 * Fills the zero columns among the r columns of m elements with random numbers of mean 0 and
 * variance 1. They depend only on seed, key and their position, so ranks that agree on these agree
 * on the numbers. key identifies the matrix, such as a hash of the parameter's name. At the start
 * all of Q is zero; later, orthogonalise or a zero gradient may zero columns, which would otherwise
 * stay zero.
 *
 * The numbers are sums of twelve uniform ones. Only the direction of a column matters, which is as
 * good as with normal numbers, and sums of integers are exact on every machine.
 */
void tally__low_rank_fill(size_t m, size_t r, uint64_t seed, uint64_t key, float *q);

#endif
