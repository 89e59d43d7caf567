/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel of the low-rank approximation, declared once, like those of num/kernel_list.h:
 * X(name, result, (parameters), (arguments)). The list is expanded into the table of each level,
 * the dispatching functions tally__<name> and the tests. num/low_rank.h says
 * what each one computes.
 */
#ifndef TALLY_NUM_LOW_RANK_LIST_H
#define TALLY_NUM_LOW_RANK_LIST_H

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

#endif
