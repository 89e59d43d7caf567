/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of one sum kernel, included once per element type by sums_simd.h, which defines:
 *
 *   SUM_BODY     name of the function
 *   SUM_ELEMENT  type of an element in memory
 *   SUM_VECTOR   type of a vector; SUM_LANES elements fill one
 *   SUM_WIDE     vectors taken per visit of an input
 *   SUM_LOAD, SUM_ADD, SUM_STORE
 *   SUM_FINISH(vector, divisor)  divides the sum before it is stored; SUM_DIVISOR is the type of
 *                the divisor. Both may be missing: the sum is then stored as it is
 *
 * and undefined here again at the end. No include guard: that is the point.
 */

#ifndef SUM_FINISH
#define SUM_FINISH(sum, none) ((void)(none), (sum))
#define SUM_DIVISOR int
#endif

static inline __attribute__((always_inline)) void SUM_BODY(size_t n, size_t n_in,
                                                           const SUM_ELEMENT *const *in,
                                                           size_t n_out, SUM_ELEMENT *const *out,
                                                           SUM_DIVISOR divisor)
{
    size_t i = 0;

    for (; n - i >= SUM_WIDE * SUM_LANES; i += SUM_WIDE * SUM_LANES) {
        SUM_VECTOR sum[SUM_WIDE];

        for (size_t j = 0; j < SUM_WIDE; j++) {
            sum[j] = SUM_LOAD(in[0] + i + j * SUM_LANES);
        }
        for (size_t k = 1; k < n_in; k++) {
            for (size_t j = 0; j < SUM_WIDE; j++) {
                sum[j] = SUM_ADD(sum[j], SUM_LOAD(in[k] + i + j * SUM_LANES));
            }
        }
        for (size_t j = 0; j < SUM_WIDE; j++) {
            sum[j] = SUM_FINISH(sum[j], divisor);
        }
        for (size_t k = 0; k < n_out; k++) {
            for (size_t j = 0; j < SUM_WIDE; j++) {
                SUM_STORE(out[k] + i + j * SUM_LANES, sum[j]);
            }
        }
    }
    /* The rest, by single vectors; the last of them padded with zeros. */
    for (; i < n; i += SUM_LANES) {
        size_t here_bytes = (n - i < SUM_LANES ? n - i : SUM_LANES) * sizeof(SUM_ELEMENT);
        SUM_ELEMENT padded[SUM_LANES] = {0};

        memcpy(padded, in[0] + i, here_bytes);

        SUM_VECTOR sum = SUM_LOAD(padded);

        for (size_t k = 1; k < n_in; k++) {
            memcpy(padded, in[k] + i, here_bytes);
            sum = SUM_ADD(sum, SUM_LOAD(padded));
        }
        SUM_STORE(padded, SUM_FINISH(sum, divisor));
        for (size_t k = 0; k < n_out; k++) {
            memcpy(out[k] + i, padded, here_bytes);
        }
    }
}

#undef SUM_BODY
#undef SUM_ELEMENT
#undef SUM_VECTOR
#undef SUM_LANES
#undef SUM_LOAD
#undef SUM_ADD
#undef SUM_STORE
#undef SUM_FINISH
#undef SUM_DIVISOR
#undef SUM_WIDE
