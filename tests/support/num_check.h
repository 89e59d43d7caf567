/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by the tests of the kernels: a walk over lengths, misalignments and kinds of data;
 * arrays that end where their memory ends (inputs) or are followed by guard bytes (outputs);
 * comparisons that show where two instruction sets differ; oracles that share no code with the
 * kernels.
 */
#ifndef TALLY_TESTS_NUM_CHECK_H
#define TALLY_TESTS_NUM_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/num.h"

enum num_data {
    NUM_PLAIN,  /* like gradients, with some exact zeros of both signs */
    NUM_FINITE, /* every finite bit pattern is as likely as any other */
    NUM_WILD,   /* every bit pattern: NaN and infinities too */
    NUM_TINY,   /* subnormals and zeros */
    NUM_N_DATA
};

/* One call of a kernel. */
struct num_case {
    const struct tally__isa *isa;
    size_t n;
    size_t shift; /* elements by which arrays are out of alignment */
    enum num_data data;
};

/* Calls check for every length, shift and kind of data; frees the arrays after each. */
void num_for_each_case(const struct tally__isa *isa, void (*check)(const struct num_case *));

/* Pseudo-random bits, the same for the same arguments. */
uint64_t num_random(uint64_t seed, uint64_t i);

/* Element i of stream number `stream` of a kind of data. */
float num_float(enum num_data data, uint64_t stream, size_t i);

/* An array of n floats of the case's kind, not to be read beyond its end. */
float *num_input_f32(const struct num_case *c, size_t n, uint64_t stream);

/* An array of random bytes. bytes and element give its size and the unit of the shift. */
void *num_input_bytes(const struct num_case *c, size_t bytes, size_t element, uint64_t stream);

/* An array to be written, guarded on both sides. */
void *num_output(const struct num_case *c, size_t bytes, size_t element);

/* An output that begins as a copy of from. */
void *num_output_copy(const struct num_case *c, size_t bytes, size_t element, const void *from);

/* Fails, naming the case, where the arrays differ in a bit; in the second form NaN equals NaN. */
void num_assert_bytes(const struct num_case *c, const void *got, const void *want, size_t bytes);
void num_assert_f32(const struct num_case *c, const float *got, const float *want, size_t n);

/* Fails, naming the case and the element, where ok is false. */
void num_assert(const struct num_case *c, bool ok, size_t i, const char *what);

/* Checks the guards of all outputs and gives all arrays back. num_for_each_case does it, too. */
void num_release(void);

uint32_t num_bits(float x);
float num_from_bits(uint32_t bits);

/* The same bits, or both NaN. */
bool num_same_f32(float a, float b);
bool num_same_f64(double a, double b);

/* Round to nearest even by way of doubles. */
uint16_t num_oracle_f16(float x);
uint16_t num_oracle_bf16(float x);
double num_value_of_f16(uint16_t half);

#endif
