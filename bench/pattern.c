/* SPDX-License-Identifier: Apache-2.0 */
/* The pattern: simple enough for the compiler to vectorize. Keeps no state. */
#include "bench/pattern.h"

/* A multiplicative hash; repetitions are shifted by a number that is not a period of it. */
static float value_at(size_t index, uint32_t repetition)
{
    uint32_t hash = ((uint32_t)index + repetition * 7919u) * 2654435761u;

    return (float)(int32_t)((hash >> 22) + 1);
}

float pattern_factor(int rank)
{
    return (float)(rank + 1);
}

float pattern_sum_factor(int ranks)
{
    int sum = ranks * (ranks + 1) / 2;

    return (float)sum;
}

void pattern_fill(float *data, size_t first, size_t n, uint32_t repetition, float factor)
{
    for (size_t i = 0; i < n; i++) {
        data[i] = value_at(first + i, repetition) * factor;
    }
}

size_t pattern_count_wrong(const float *data, size_t first, size_t n, uint32_t repetition,
                           float factor)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < n; i++) {
        n_wrong += data[i] != value_at(first + i, repetition) * factor;
    }
    return n_wrong;
}
