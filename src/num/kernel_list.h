/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel, declared once: X(name, result, (parameters), (arguments)). The list is expanded
 * into the table of each instruction set, the dispatching functions tally__<name>, the tests and
 * the bench, so a kernel without a test or a measurement does not build. num/num.h says what each
 * one computes.
 *
 * The order of the parameters is always: length, inputs, parameters of the arithmetic, outputs.
 */
#ifndef TALLY_NUM_KERNEL_LIST_H
#define TALLY_NUM_KERNEL_LIST_H

#define TALLY__KERNEL_LIST(X)                                                                      \
    X(f32_to_f16, void, (size_t n, const float *x, uint16_t *y), (n, x, y))                        \
    X(f32_to_f16_sat, size_t, (size_t n, const float *x, uint16_t *y), (n, x, y))                  \
    X(f16_to_f32, void, (size_t n, const uint16_t *x, float *y), (n, x, y))                        \
    X(f32_to_bf16, void, (size_t n, const float *x, uint16_t *y), (n, x, y))                       \
    X(bf16_to_f32, void, (size_t n, const uint16_t *x, float *y), (n, x, y))                       \
    X(sum_f32, void,                                                                               \
      (size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,                 \
       float *const *out),                                                                         \
      (n, n_in, in, divisor, n_out, out))                                                          \
    X(sum_f64, void,                                                                               \
      (size_t n, size_t n_in, const double *const *in, double divisor, size_t n_out,               \
       double *const *out),                                                                        \
      (n, n_in, in, divisor, n_out, out))                                                          \
    X(sum_f16, void,                                                                               \
      (size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,              \
       uint16_t *const *out),                                                                      \
      (n, n_in, in, divisor, n_out, out))                                                          \
    X(sum_bf16, void,                                                                              \
      (size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,              \
       uint16_t *const *out),                                                                      \
      (n, n_in, in, divisor, n_out, out))                                                          \
    X(mean_f32_by_f16, void,                                                                       \
      (size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,                 \
       float *const *out),                                                                         \
      (n, n_in, in, divisor, n_out, out))                                                          \
    X(mean_f32_by_bf16, void,                                                                      \
      (size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,                 \
       float *const *out),                                                                         \
      (n, n_in, in, divisor, n_out, out))                                                          \
    X(sum_f16_stepwise, void, (size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out),   \
      (n, n_in, in, out))                                                                          \
    X(sum_bf16_stepwise, void, (size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out),  \
      (n, n_in, in, out))                                                                          \
    X(sum_i32, void,                                                                               \
      (size_t n, size_t n_in, const int32_t *const *in, size_t n_out, int32_t *const *out),        \
      (n, n_in, in, n_out, out))                                                                   \
    X(sum_i64, void,                                                                               \
      (size_t n, size_t n_in, const int64_t *const *in, size_t n_out, int64_t *const *out),        \
      (n, n_in, in, n_out, out))                                                                   \
    X(sum_u8, void,                                                                                \
      (size_t n, size_t n_in, const uint8_t *const *in, size_t n_out, uint8_t *const *out),        \
      (n, n_in, in, n_out, out))                                                                   \
    X(minmax_f32, void, (size_t n, const float *x, float *lo, float *hi), (n, x, lo, hi))          \
    X(affine_encode, void, (size_t n, const float *x, struct tally__affine affine, uint8_t *q),    \
      (n, x, affine, q))                                                                           \
    X(affine_encode_fast, void,                                                                    \
      (size_t n, const float *x, struct tally__affine affine, uint8_t *q), (n, x, affine, q))      \
    X(affine_decode, void, (size_t n, const uint8_t *q, struct tally__affine affine, float *y),    \
      (n, q, affine, y))                                                                           \
    X(affine_encode_blocks, void,                                                                  \
      (size_t n, const float *x, size_t block, struct tally__affine *affine, uint8_t *q),          \
      (n, x, block, affine, q))                                                                    \
    X(affine_encode_fast_blocks, void,                                                             \
      (size_t n, const float *x, size_t block, struct tally__affine *affine, uint8_t *q),          \
      (n, x, block, affine, q))                                                                    \
    X(affine_decode_blocks, void,                                                                  \
      (size_t n, const uint8_t *q, size_t block, const struct tally__affine *affine, float *y),    \
      (n, q, block, affine, y))                                                                    \
    X(affine_sum, void,                                                                            \
      (size_t n, size_t n_in, const uint8_t *const *q, const struct tally__affine *affine,         \
       float divisor, float *y),                                                                   \
      (n, n_in, q, affine, divisor, y))                                                            \
    X(mean_f32_by_affine, size_t,                                                                  \
      (size_t n, size_t n_in, const float *const *in, const struct tally__affine_mean *mean,       \
       size_t n_out, float *const *out),                                                           \
      (n, n_in, in, mean, n_out, out))                                                             \
    X(scaled_encode_blocks, void,                                                                  \
      (size_t n, const float *x, size_t block, float *scale, uint8_t *q), (n, x, block, scale, q)) \
    X(scaled_decode_blocks, void,                                                                  \
      (size_t n, const uint8_t *q, size_t block, const float *scale, float *y),                    \
      (n, q, block, scale, y))                                                                     \
    X(scaled_sum, void,                                                                            \
      (size_t n, size_t n_in, const uint8_t *const *q, const float *scale, float divisor,          \
       float *y),                                                                                  \
      (n, n_in, q, scale, divisor, y))                                                             \
    X(scaled_encode_feedback_blocks, void,                                                         \
      (size_t n, const float *x, float *residual, size_t block, float *scale, uint8_t *q),         \
      (n, x, residual, block, scale, q))                                                           \
    X(copy, void, (size_t n, const uint8_t *x, uint8_t *y), (n, x, y))                             \
    X(sub_f32, void, (size_t n, const float *a, const float *b, float *y), (n, a, b, y))           \
    X(axpy_f32, void, (size_t n, const float *x, float a, float *y), (n, x, a, y))                 \
    X(sqnorm_f32, double, (size_t n, const float *x), (n, x))                                      \
    X(find_nonfinite_f32, size_t, (size_t n, const float *x), (n, x))

#endif
