/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers the collective bench sends: a whole number between 1 and 1024 that depends on the
 * index and the repetition, times a factor that depends on the rank. Sums over up to
 * PATTERN_MAX_RANKS ranks are exact in fp32, whatever their order, so that a result can be compared
 * bit for bit without communication. Needs nothing of tally: the MPI peers use it too.
 */
#ifndef TALLY_BENCH_PATTERN_H
#define TALLY_BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* 1024 * 64 * 65 / 2 is below 2^24. */
#define PATTERN_MAX_RANKS 64

/* The factor of a rank's own numbers, and of the sum over ranks 0..ranks-1. */
float pattern_factor(int rank);
float pattern_sum_factor(int ranks);

/* Writes elements first..first+n-1 of the pattern to data[0..n-1]. */
void pattern_fill(float *data, size_t first, size_t n, uint32_t repetition, float factor);

/* Number of elements of data[0..n-1] that differ from the pattern. */
size_t pattern_count_wrong(const float *data, size_t first, size_t n, uint32_t repetition,
                           float factor);

#endif
