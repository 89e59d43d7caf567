/* SPDX-License-Identifier: Apache-2.0 */
/* The initial random numbers of low-rank factors: a function of their position. Stateless. Any
 * thread enters. */
#include "base/cpu.h"
#include "num/low_rank.h"

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The output function of splitmix64: every bit of z decides about every bit of the result. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Twelve numbers of 0..65535, in units of 2^-16, less their mean: exact, below 2^20 in size. */
static float nearly_normal(uint64_t *state)
{
    int32_t sum = 0;

    for (int i = 0; i < 3; i++) {
        uint64_t bits = mix(*state += GOLDEN);

        sum += (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
               (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
    }
    return (float)(sum - 6 * 65535) * 0x1p-16f;
}

static bool is_zero(size_t m, const float *column)
{
    for (size_t i = 0; i < m; i++) {
        if (column[i] != 0.0f) {
            return false;
        }
    }
    return true;
}

void tally__low_rank_fill(size_t m, size_t r, uint64_t seed, uint64_t key, float *q)
{
    tally__fpenv saved = tally__fpenv_enter();

    for (size_t k = 0; k < r; k++) {
        float *column = q + k * m;
        uint64_t state = mix(mix(mix(seed + GOLDEN) ^ key) + k * GOLDEN);

        if (is_zero(m, column)) {
            for (size_t i = 0; i < m; i++) {
                column[i] = nearly_normal(&state);
            }
        }
    }
    tally__fpenv_leave(saved);
}
