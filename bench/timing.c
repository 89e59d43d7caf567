/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics of samples. Keeps no state. */
#include "bench/timing.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_quantile(double *samples, size_t n, double fraction)
{
    qsort(samples, n, sizeof *samples, compare);
    return samples[(size_t)(fraction * (double)(n - 1) + 0.5)];
}
