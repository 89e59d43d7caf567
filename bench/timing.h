/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a time, and what to say about them. */
#ifndef TALLY_BENCH_TIMING_H
#define TALLY_BENCH_TIMING_H

#include <stddef.h>

/* The sample at fraction (0 smallest, 0.5 median, 1 largest). Sorts the samples. n >= 1. */
double bench_quantile(double *samples, size_t n, double fraction);

#endif
