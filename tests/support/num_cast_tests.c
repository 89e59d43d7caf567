/* SPDX-License-Identifier: Apache-2.0 */
/* The casts against the reference and against rounding by way of doubles. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

static void check_f32_to_f16(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    uint16_t *y = num_output(c, c->n * 2, 2);
    uint16_t *want = num_output(c, c->n * 2, 2);

    c->isa->kernels->f32_to_f16(c->n, x, y);
    tally__kernels_ref.f32_to_f16(c->n, x, want);
    num_assert_bytes(c, y, want, c->n * 2);
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, want[i] == num_oracle_f16(x[i]), i, "the oracle differs");
    }
}

void test_f32_to_f16(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_f32_to_f16);
}

/* Half of the values lie around the largest fp16 value. */
static void check_f32_to_f16_sat(const struct num_case *c)
{
    float *x = num_input_f32(c, c->n, 1);
    uint16_t *y = num_output(c, c->n * 2, 2);
    uint16_t *want = num_output(c, c->n * 2, 2);
    size_t n_over = 0;

    for (size_t i = 0; i < c->n && c->shift % 2 == 1; i += 2) {
        x[i] = (i % 4 == 0 ? 1.0f : -1.0f) * (65500.0f + (float)(i / 2 * 7 % 41));
    }
    for (size_t i = 0; i < c->n; i++) {
        bool over = isfinite(x[i]) && fabsf(x[i]) >= 65520.0f;

        n_over += over;
        want[i] = num_oracle_f16(over ? copysignf(65504.0f, x[i]) : x[i]);
    }
    assert_int_equal(c->isa->kernels->f32_to_f16_sat(c->n, x, y), n_over);
    num_assert_bytes(c, y, want, c->n * 2);
    assert_int_equal(tally__kernels_ref.f32_to_f16_sat(c->n, x, y), n_over);
    num_assert_bytes(c, y, want, c->n * 2);
}

void test_f32_to_f16_sat(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_f32_to_f16_sat);
}

static void check_f16_to_f32(const struct num_case *c)
{
    const uint16_t *x = num_input_bytes(c, c->n * 2, 2, c->n);
    float *y = num_output(c, c->n * 4, 4);
    float *want = num_output(c, c->n * 4, 4);

    c->isa->kernels->f16_to_f32(c->n, x, y);
    tally__kernels_ref.f16_to_f32(c->n, x, want);
    num_assert_bytes(c, y, want, c->n * 4);
    for (size_t i = 0; i < c->n; i++) {
        float value = (float)num_value_of_f16(x[i]);

        num_assert(c, num_same_f32(want[i], value), i, "the oracle differs");
    }
}

void test_f16_to_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_f16_to_f32);
}

static void check_f32_to_bf16(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    uint16_t *y = num_output(c, c->n * 2, 2);
    uint16_t *want = num_output(c, c->n * 2, 2);

    c->isa->kernels->f32_to_bf16(c->n, x, y);
    tally__kernels_ref.f32_to_bf16(c->n, x, want);
    num_assert_bytes(c, y, want, c->n * 2);
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, want[i] == num_oracle_bf16(x[i]), i, "the oracle differs");
    }
}

void test_f32_to_bf16(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_f32_to_bf16);
}

static void check_bf16_to_f32(const struct num_case *c)
{
    const uint16_t *x = num_input_bytes(c, c->n * 2, 2, c->n);
    float *y = num_output(c, c->n * 4, 4);

    c->isa->kernels->bf16_to_f32(c->n, x, y);
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, num_bits(y[i]) == (uint32_t)x[i] << 16, i, "not the upper half");
    }
    tally__kernels_ref.bf16_to_f32(c->n, x, y);
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, num_bits(y[i]) == (uint32_t)x[i] << 16, i, "not the upper half");
    }
}

void test_bf16_to_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_bf16_to_f32);
}
