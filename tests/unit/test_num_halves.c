/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The casts over their whole range: all 65536 halves of both formats, and of the fp32 patterns
 * every 251st and those around every rounding boundary.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"

#define N_HALVES 65536
#define STRIDE UINT64_C(251)
#define BATCH 4096

static uint16_t halves[N_HALVES];
static float decoded[N_HALVES];
static uint16_t encoded[N_HALVES];

static void all_halves(void)
{
    for (size_t i = 0; i < N_HALVES; i++) {
        halves[i] = (uint16_t)i;
    }
}

static void f16_round_trip(void **state)
{
    (void)state;
    all_halves();
    for (size_t l = 0; l < tally__n_isas; l++) {
        if (!tally__isas[l].usable()) {
            continue;
        }
        tally__isas[l].kernels->f16_to_f32(N_HALVES, halves, decoded);
        tally__isas[l].kernels->f32_to_f16(N_HALVES, decoded, encoded);
        for (size_t i = 0; i < N_HALVES; i++) {
            float value = (float)num_value_of_f16(halves[i]);

            assert_true(num_same_f32(decoded[i], value));
            /* A NaN comes back quiet. */
            assert_int_equal(encoded[i], isnan(value) ? (i | 0x200) : i);
        }
    }
}

static void bf16_round_trip(void **state)
{
    (void)state;
    all_halves();
    for (size_t l = 0; l < tally__n_isas; l++) {
        if (!tally__isas[l].usable()) {
            continue;
        }
        tally__isas[l].kernels->bf16_to_f32(N_HALVES, halves, decoded);
        tally__isas[l].kernels->f32_to_bf16(N_HALVES, decoded, encoded);
        for (size_t i = 0; i < N_HALVES; i++) {
            assert_int_equal(num_bits(decoded[i]), i << 16);
            assert_int_equal(encoded[i], isnan(decoded[i]) ? (i | 0x40) : i);
        }
    }
}

/* Narrows n values on every instruction set and compares with the oracles. */
static void check_batch(const float *x, size_t n)
{
    static uint16_t want[BATCH];
    static uint16_t got[BATCH];

    for (size_t i = 0; i < n; i++) {
        want[i] = num_oracle_f16(x[i]);
    }
    for (size_t l = 0; l < tally__n_isas; l++) {
        if (tally__isas[l].usable()) {
            tally__isas[l].kernels->f32_to_f16(n, x, got);
            assert_memory_equal(got, want, n * sizeof *want);
        }
    }
    for (size_t i = 0; i < n; i++) {
        want[i] = num_oracle_bf16(x[i]);
    }
    for (size_t l = 0; l < tally__n_isas; l++) {
        if (tally__isas[l].usable()) {
            tally__isas[l].kernels->f32_to_bf16(n, x, got);
            assert_memory_equal(got, want, n * sizeof *want);
        }
    }
}

static void narrowing_of_a_sample(void **state)
{
    static float x[BATCH];
    size_t n = 0;

    (void)state;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STRIDE) {
        x[n++] = num_from_bits((uint32_t)bits);
        if (n == BATCH) {
            check_batch(x, n);
            n = 0;
        }
    }
    check_batch(x, n);
}

/* The patterns next to a half and next to the middle between it and its neighbour. */
static size_t around(float value, float middle, float *x)
{
    uint32_t centers[2] = {num_bits(value), num_bits(middle)};
    size_t n = 0;

    for (size_t k = 0; k < 2; k++) {
        for (uint32_t d = 0; d < 5; d++) {
            x[n++] = num_from_bits(centers[k] + d - 2);
        }
    }
    return n;
}

static void narrowing_at_boundaries(void **state)
{
    float x[20];

    (void)state;
    for (uint32_t i = 0; i < N_HALVES; i++) {
        uint16_t half = (uint16_t)i;
        double value = num_value_of_f16(half);
        /* Above the largest value the next step would be 65536: the boundary is 65520. */
        double next = (half & 0x7fff) == 0x7bff ? copysign(65536.0, value)
                                                : num_value_of_f16((uint16_t)(half + 1));
        size_t n = around((float)value, (float)((value + next) / 2), x);

        n += around(num_from_bits(i << 16), num_from_bits((i << 16) | 0x8000u), x + n);
        check_batch(x, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_round_trip),
        cmocka_unit_test(bf16_round_trip),
        cmocka_unit_test(narrowing_of_a_sample),
        cmocka_unit_test(narrowing_at_boundaries),
    };

    return cmocka_run_group_tests_name("halves", tests, NULL, NULL);
}
