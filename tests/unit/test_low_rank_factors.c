/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Low-rank factors: orthonormal columns from any input, and random numbers that are the same
 * everywhere.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/low_rank.h"
#include "num/num.h"
#include "support/num_check.h"
#include "tally.h"

#define MAX_N 5000
#define MAX_R 33

static float p[MAX_N * MAX_R];
static float before[MAX_N * MAX_R];

static double dot(size_t n, const float *x, const float *y)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)y[i];
    }
    return sum;
}

static bool is_zero(size_t n, const float *column)
{
    return dot(n, column, column) == 0.0;
}

/* Orthonormal, except for the columns that are zero, of which there are r - n_kept. */
static void assert_orthonormal(size_t n, size_t r, size_t n_kept)
{
    size_t n_found = 0;

    for (size_t j = 0; j < r; j++) {
        n_found += !is_zero(n, p + j * n);
        for (size_t i = 0; i <= j; i++) {
            double want = i == j && !is_zero(n, p + j * n) ? 1.0 : 0.0;
            double got = dot(n, p + i * n, p + j * n);

            if (!(fabs(got - want) <= 5e-7)) {
                fail_msg("%zu rows: columns %zu and %zu of %zu: %g", n, i, j, r, got);
            }
        }
    }
    assert_int_equal(n_found, n_kept);
}

/* Every column of before lies in the span of the columns of p. */
static void assert_span_kept(size_t n, size_t r, double tolerance)
{
    for (size_t j = 0; j < r; j++) {
        const float *column = before + j * n;
        double size = dot(n, column, column);
        double rest = size;

        for (size_t k = 0; k < r; k++) {
            double along = dot(n, column, p + k * n);

            rest -= along * along;
        }
        if (!(fabs(rest) <= tolerance * size)) {
            fail_msg("%zu rows: column %zu of %zu is not in the span: %g of %g", n, j, r, rest,
                     size);
        }
    }
}

static size_t orthogonalise(size_t n, size_t r)
{
    memcpy(before, p, n * r * sizeof *p);
    return tally__low_rank_orthogonalise(n, r, 0.0, p);
}

static void random_columns(void **state)
{
    static const size_t rows[] = {1, 2, 4, 8, 33, 64, 1000, MAX_N};
    static const float sizes[] = {1.0f, 1e30f, 1e-30f, 0x1p-140f};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t r = 1; r <= 32; r *= 2) {
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
                size_t n = rows[i];

                for (size_t j = 0; j < n * r; j++) {
                    p[j] = ((float)(num_random(r, j) % 2001) - 1000.0f) * 1e-3f * sizes[s];
                }
                assert_int_equal(orthogonalise(n, r), n < r ? n : r);
                assert_orthonormal(n, r, n < r ? n : r);
                assert_span_kept(n, r, 1e-5);
            }
        }
    }
}

/* Columns that one projection would leave far from orthogonal. */
static void nearly_dependent_columns(void **state)
{
    static const double gaps[] = {1e-1, 1e-2, 1e-3, 1e-4, 1e-5};
    size_t n = 300;
    size_t r = 12;

    (void)state;
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        for (size_t j = 0; j < r; j++) {
            for (size_t i = 0; i < n; i++) {
                double common = (double)(num_random(1, i) % 1000) + 1.0;
                double own = ((double)(num_random(2 + j, i) % 1000) - 500.0) * gaps[g];

                p[j * n + i] = (float)(common + own);
            }
        }
        assert_int_equal(orthogonalise(n, r), r);
        assert_orthonormal(n, r, r);
        assert_span_kept(n, r, 1e-5);
    }
}

/* Columns 1 and 3 depend on 0 and 2; column 4 is zero; column 5 is new. */
static void dependent_and_zero_columns(void **state)
{
    size_t n = 77;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        float a = num_float(NUM_PLAIN, 1, i);
        float b = num_float(NUM_PLAIN, 2, i);

        p[i] = a;
        p[n + i] = -3.0f * a;
        p[2 * n + i] = b;
        p[3 * n + i] = 0.3f * a + 1.7f * b;
        p[4 * n + i] = 0.0f;
        p[5 * n + i] = num_float(NUM_PLAIN, 3, i);
    }
    assert_int_equal(orthogonalise(n, 6), 3);
    assert_orthonormal(n, 6, 3);
    assert_span_kept(n, 6, 1e-5);
    assert_true(is_zero(n, p + n));
    assert_true(is_zero(n, p + 3 * n));
    assert_true(is_zero(n, p + 4 * n));
}

static void zeros_stay_zero(void **state)
{
    (void)state;
    memset(p, 0, 100 * sizeof *p);
    assert_int_equal(orthogonalise(25, 4), 0);
    assert_memory_equal(p, before, 100 * sizeof *p);
}

static void nonfinite_columns_become_nan(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};

    (void)state;
    for (size_t b = 0; b < 3; b++) {
        for (size_t i = 0; i < 60; i++) {
            p[i] = num_float(NUM_PLAIN, 1, i);
        }
        p[37] = bad[b];
        assert_int_equal(orthogonalise(20, 3), 0);
        for (size_t i = 0; i < 60; i++) {
            assert_true(isnan(p[i]));
        }
    }
}

static void epsilon_is_added_to_norms(void **state)
{
    float x[] = {3.0f, 4.0f, 0.0f, 0.0f, 0.0f, 2.0f};

    (void)state;
    assert_int_equal(tally__low_rank_orthogonalise(3, 2, 5.0, x), 2);
    assert_true(fabsf(x[0] - 0.3f) < 1e-7f && fabsf(x[1] - 0.4f) < 1e-7f && x[2] == 0.0f);
    assert_true(x[3] == 0.0f && x[4] == 0.0f && fabsf(x[5] - 2.0f / 7.0f) < 1e-7f);
}

/* These bits never change: ranks of different builds must agree on them. */
static void random_numbers_are_the_same_everywhere(void **state)
{
    static const float want[] = {0x1.8eb8p-1f, 0x1.bb7ep-1f, -0x1.8e0ap-1f, -0x1.418p-3f};
    float q[4] = {0};

    (void)state;
    tally__low_rank_fill(2, 2, 0, 0, q);
    assert_memory_equal(q, want, sizeof q);
}

static void random_numbers_look_normal(void **state)
{
    double moment[5] = {0};
    size_t n = MAX_N * MAX_R;

    (void)state;
    memset(p, 0, sizeof p);
    tally__low_rank_fill(MAX_N, MAX_R, 1, 2, p);
    for (size_t i = 0; i < n; i++) {
        double power = 1.0;

        for (size_t k = 0; k < 5; k++) {
            moment[k] += power / (double)n;
            power *= (double)p[i];
        }
    }
    /* Four standard deviations; a sum of twelve has a fourth moment of 2.9. */
    assert_true(fabs(moment[1]) < 0.01);
    assert_true(fabs(moment[2] - 1.0) < 0.014);
    assert_true(fabs(moment[3]) < 0.04);
    assert_true(fabs(moment[4] - 2.9) < 0.1);
    for (size_t j = 1; j < MAX_R; j++) {
        assert_true(fabs(dot(MAX_N, p, p + j * MAX_N)) / MAX_N < 0.06);
    }
}

static void random_numbers_depend_on_their_place_only(void **state)
{
    size_t m = 50;
    float few[100] = {0};
    float other[100] = {0};

    (void)state;
    memset(p, 0, 8 * m * sizeof *p);
    tally__low_rank_fill(m, 8, 5, 6, p);
    tally__low_rank_fill(m, 2, 5, 6, few);
    assert_memory_equal(few, p, sizeof few);
    tally__low_rank_fill(m, 2, 6, 6, other);
    assert_memory_not_equal(few, other, sizeof few);
    memset(other, 0, sizeof other);
    tally__low_rank_fill(m, 2, 5, 7, other);
    assert_memory_not_equal(few, other, sizeof few);
}

static void only_zero_columns_are_filled(void **state)
{
    float fresh[40] = {0};
    float q[40] = {0};

    (void)state;
    tally__low_rank_fill(10, 4, 5, 6, fresh);
    q[19] = 1e-45f;
    tally__low_rank_fill(10, 4, 5, 6, q);
    for (size_t i = 0; i < 40; i++) {
        float want = i / 10 == 1 ? (i == 19 ? 1e-45f : 0.0f) : fresh[i];

        assert_true(q[i] == want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_columns),
        cmocka_unit_test(nearly_dependent_columns),
        cmocka_unit_test(dependent_and_zero_columns),
        cmocka_unit_test(zeros_stay_zero),
        cmocka_unit_test(nonfinite_columns_become_nan),
        cmocka_unit_test(epsilon_is_added_to_norms),
        cmocka_unit_test(random_numbers_are_the_same_everywhere),
        cmocka_unit_test(random_numbers_look_normal),
        cmocka_unit_test(random_numbers_depend_on_their_place_only),
        cmocka_unit_test(only_zero_columns_are_filled),
    };

    if (tally__num_start() != TALLY_OK) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
