/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions of several arrays of any dtype: n_in >= 1 inputs, in the order given, to n_out >= 1
 * outputs, which may be inputs. Sums and means of floats are the sum kernels of num.h; the rest is
 * here. And casts between dtypes of floats.
 */
#ifndef TALLY_NUM_REDUCE_H
#define TALLY_NUM_REDUCE_H

#include <stddef.h>

struct tally__arrays {
    size_t n_in;
    const void *const *in;
    size_t n_out;
    void *const *out;
    double divisor; /* of the mean */
};

/* The name of a dtype in messages, such as "f32"; "unknown" for any other number. */
const char *tally__dtype_name(int dtype);

/* Reduces n elements. dtype and op are those of tally.h and valid. */
void tally__reduce(int dtype, int op, size_t n, const struct tally__arrays *arrays);

/* Casts n floats; copies them if both dtypes are the same. One of two different dtypes is a half.
 */
void tally__cast(int from_dtype, int to_dtype, size_t n, const void *from, void *to);

#endif
