/* SPDX-License-Identifier: Apache-2.0 */
/* Range, difference, multiple, norm and search: every instruction set against the reference, the
 * reference against plain loops in a wider type. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

static void check_range(const struct num_case *c, const float *x)
{
    double least = c->n > 0 ? (double)x[0] : 0.0;
    double most = least;
    bool has_nan = false;
    float lo[2];
    float hi[2];

    for (size_t i = 0; i < c->n; i++) {
        has_nan = has_nan || isnan(x[i]);
        least = fmin(least, (double)x[i]);
        most = fmax(most, (double)x[i]);
    }
    c->isa->kernels->minmax_f32(c->n, x, &lo[0], &hi[0]);
    tally__kernels_ref.minmax_f32(c->n, x, &lo[1], &hi[1]);
    for (size_t k = 0; k < 2; k++) {
        if (has_nan) {
            num_assert(c, isnan(lo[k]) && isnan(hi[k]), k, "NaN lost");
        } else {
            num_assert(c, (double)lo[k] == least && (double)hi[k] == most, k, "range");
            num_assert(c, lo[k] != 0.0f || !signbit(lo[k]), k, "-0");
            num_assert(c, hi[k] != 0.0f || !signbit(hi[k]), k, "-0");
        }
    }
}

static void check_minmax_f32(const struct num_case *c)
{
    float *x = num_input_f32(c, c->n, 1);

    check_range(c, x);
    /* The extremes and a NaN at a place that moves with the length. */
    if (c->n > 0 && c->data != NUM_WILD) {
        size_t at = (c->n * 7 + c->shift) % c->n;

        x[at] = -INFINITY;
        check_range(c, x);
        x[at] = INFINITY;
        check_range(c, x);
        x[at] = -NAN;
        check_range(c, x);
        memset(x, 0, c->n * sizeof *x);
        x[at] = -0.0f;
        check_range(c, x);
    }
}

void test_minmax_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_minmax_f32);
}

static void check_copy(const struct num_case *c)
{
    /* Whole steps of the vector instruction sets, and all lengths in between. */
    size_t n = 7 * c->n;
    const uint8_t *x = num_input_bytes(c, n, 1, 1);
    uint8_t *y = num_output(c, n, 1);

    c->isa->kernels->copy(n, x, y);
    num_assert_bytes(c, y, x, n);
}

void test_copy(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_copy);
}

/* In place: the result takes the place of either operand. */
static void check_sub_f32(const struct num_case *c)
{
    const float *a = num_input_f32(c, c->n, 1);
    const float *b = num_input_f32(c, c->n, 2);
    float *y = num_output(c, c->n * 4, 4);
    float *over_a = num_output_copy(c, c->n * 4, 4, a);
    float *over_b = num_output_copy(c, c->n * 4, 4, b);
    float *want = num_output(c, c->n * 4, 4);

    tally__kernels_ref.sub_f32(c->n, a, b, want);
    c->isa->kernels->sub_f32(c->n, a, b, y);
    c->isa->kernels->sub_f32(c->n, over_a, b, over_a);
    c->isa->kernels->sub_f32(c->n, a, over_b, over_b);
    num_assert_f32(c, y, want, c->n);
    num_assert_f32(c, over_a, want, c->n);
    num_assert_f32(c, over_b, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        float difference = (float)((double)a[i] - (double)b[i]);

        num_assert(c, num_same_f32(want[i], difference), i, "the oracle differs");
    }
}

void test_sub_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sub_f32);
}

static void check_axpy_f32(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    const float *from = num_input_f32(c, c->n, 2);
    float a = num_float(c->data == NUM_TINY ? NUM_PLAIN : c->data, 3, c->n);
    float *y = num_output_copy(c, c->n * 4, 4, from);
    float *want = num_output_copy(c, c->n * 4, 4, from);

    c->isa->kernels->axpy_f32(c->n, x, a, y);
    tally__kernels_ref.axpy_f32(c->n, x, a, want);
    num_assert_f32(c, y, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        float product = (float)((double)a * (double)x[i]);
        float sum = (float)((double)from[i] + (double)product);

        num_assert(c, num_same_f32(want[i], sum), i, "the oracle differs");
    }
}

void test_axpy_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_axpy_f32);
}

static void check_sqnorm_f32(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    double got = c->isa->kernels->sqnorm_f32(c->n, x);
    double want = tally__kernels_ref.sqnorm_f32(c->n, x);
    long double sum = 0.0L;

    for (size_t i = 0; i < c->n; i++) {
        sum += (long double)x[i] * (long double)x[i];
    }
    num_assert(c, num_same_f64(got, want), 0, "differs");
    if (isfinite(sum)) {
        long double error = fabsl((long double)want - sum);

        num_assert(c, error <= sum * (long double)c->n * 0x1p-53L, 0, "not the norm");
    } else {
        num_assert(c, !isfinite(want), 0, "finite");
    }
}

void test_sqnorm_f32(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_sqnorm_f32);
}

static void check_find_nonfinite_f32(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    size_t first = 0;

    while (first < c->n && (num_bits(x[first]) & 0x7f800000u) != 0x7f800000u) {
        first++;
    }
    assert_int_equal(c->isa->kernels->find_nonfinite_f32(c->n, x), first);
    assert_int_equal(tally__kernels_ref.find_nonfinite_f32(c->n, x), first);
}

/* One at every place, of every sort. */
void test_find_nonfinite_f32(const struct tally__isa *isa)
{
    const float sorts[] = {INFINITY, -INFINITY, NAN, -NAN};
    float x[200];

    num_for_each_case(isa, check_find_nonfinite_f32);
    for (size_t i = 0; i < 200; i++) {
        x[i] = num_float(NUM_FINITE, 1, i);
    }
    assert_int_equal(isa->kernels->find_nonfinite_f32(200, x), 200);
    for (size_t at = 0; at < 200; at++) {
        float saved = x[at];

        x[at] = sorts[at % 4];
        assert_int_equal(isa->kernels->find_nonfinite_f32(200, x), at);
        assert_int_equal(isa->kernels->find_nonfinite_f32(at, x), at);
        x[at] = saved;
    }
}
