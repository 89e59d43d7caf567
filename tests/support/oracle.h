/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank's input, from a seed, and the expected reduction of all inputs: plain loops in rank
 * order, written from the documentation and sharing nothing with the library. The inputs contain
 * NaN, infinities, both zeros, subnormals, and numbers near overflow.
 */
#ifndef TALLY_TESTS_ORACLE_H
#define TALLY_TESTS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the tables. Once, before ranks start. */
void oracle_start(void);

/* Fills data with n elements of rank's input. */
void oracle_fill(int dtype, unsigned seed, int rank, size_t n, void *data);

/* The same for fp32 without NaN and infinities, for codecs. */
void oracle_fill_finite(unsigned seed, int rank, size_t n, float *data);

/* A reduction of all ranks' inputs. */
struct oracle_reduction {
    int dtype;
    int op;
    unsigned seed;
    int world;
};

/*
 * Compares n elements from number `start` on, the first of which is *data, with the reduction.
 * Returns how many are right: n when all are.
 */
size_t oracle_compare(const struct oracle_reduction *reduction, size_t start, size_t n,
                      const void *data);

/* A hash of n elements in which every NaN counts as the same. */
uint64_t oracle_hash(int dtype, size_t n, const void *data);

/* Conversions, round to nearest even. */
float oracle_from_half(uint16_t x);
float oracle_from_bfloat(uint16_t x);
uint16_t oracle_to_half(float x);
uint16_t oracle_to_bfloat(float x);

#endif
