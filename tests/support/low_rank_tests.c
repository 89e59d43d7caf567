/* SPDX-License-Identifier: Apache-2.0 */
/* Every low-rank kernel of an instruction set against the reference, bit for bit, over shapes that
 * meet every way through the vector code. One thread. */
#include "support/low_rank_tests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "num/low_rank.h"
#include "support/num_check.h"

/* One shape, its operands, and which kernel is being looked at. */
struct shape_case {
    struct num_case c;
    struct tally__low_rank s;
    const float *x;
    const float *p;
    const float *q;
    const float *other_q;
};

static const struct tally__low_rank_kernels *ref_kernels(void)
{
    return tally__isas[0].low_rank;
}

static void assert_same(const struct shape_case *t, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!num_same_f32(got[i], want[i])) {
            fail_msg("%s, %zu x %zu (%zu elements), rank %zu, shift %zu, data %d: element %zu is "
                     "%a, the reference has %a",
                     t->c.isa->name, t->s.n, t->s.m, t->s.size, t->s.r, t->c.shift, (int)t->c.data,
                     i, (double)got[i], (double)want[i]);
        }
    }
}

static float *output(const struct shape_case *t, size_t n)
{
    return num_output(&t->c, n * sizeof(float), sizeof(float));
}

static float *output_copy(const struct shape_case *t, size_t n, const float *from)
{
    return num_output_copy(&t->c, n * sizeof(float), sizeof(float), from);
}

static void test_low_rank_multiply(const struct shape_case *t)
{
    float *got = output(t, t->s.n * t->s.r);
    float *want = output(t, t->s.n * t->s.r);

    t->c.isa->low_rank->low_rank_multiply(&t->s, t->x, t->q, got);
    ref_kernels()->low_rank_multiply(&t->s, t->x, t->q, want);
    assert_same(t, got, want, t->s.n * t->s.r);
}

/* P takes the place of P'. */
static void test_low_rank_correct(const struct shape_case *t)
{
    size_t p_size = t->s.n * t->s.r;
    float *start = num_input_f32(&t->c, t->s.size, 5);
    float *got_c = output_copy(t, t->s.size, start);
    float *want_c = output_copy(t, t->s.size, start);
    float *got_p = output_copy(t, p_size, t->p);
    float *want_p = output(t, p_size);

    t->c.isa->low_rank->low_rank_correct(&t->s, t->x, (struct tally__factors){got_p, t->other_q},
                                         t->q, got_c, got_p);
    ref_kernels()->low_rank_correct(&t->s, t->x, (struct tally__factors){t->p, t->other_q}, t->q,
                                    want_c, want_p);
    assert_same(t, got_c, want_c, t->s.size);
    assert_same(t, got_p, want_p, p_size);
}

static void test_low_rank_multiply_transposed(const struct shape_case *t)
{
    float *got = output(t, t->s.m * t->s.r);
    float *want = output(t, t->s.m * t->s.r);

    t->c.isa->low_rank->low_rank_multiply_transposed(&t->s, t->x, t->p, got);
    ref_kernels()->low_rank_multiply_transposed(&t->s, t->x, t->p, want);
    assert_same(t, got, want, t->s.m * t->s.r);
}

static void test_low_rank_expand(const struct shape_case *t)
{
    struct tally__factors f = {t->p, t->q};
    float *got = output(t, t->s.size);
    float *past = output(t, t->s.size);
    float *want = output(t, t->s.size);

    t->c.isa->low_rank->low_rank_expand(&t->s, f, false, got);
    t->c.isa->low_rank->low_rank_expand(&t->s, f, true, past);
    ref_kernels()->low_rank_expand(&t->s, f, false, want);
    assert_same(t, got, want, t->s.size);
    assert_same(t, past, want, t->s.size);
}

static void test_low_rank_residual(const struct shape_case *t)
{
    struct tally__factors f = {t->p, t->q};
    float *got = output_copy(t, t->s.size, t->x);
    float *want = output_copy(t, t->s.size, t->x);

    t->c.isa->low_rank->low_rank_residual(&t->s, f, got);
    ref_kernels()->low_rank_residual(&t->s, f, want);
    assert_same(t, got, want, t->s.size);
}

static void test_dot_f32(const struct shape_case *t)
{
    const float *y = num_input_f32(&t->c, t->s.size, 6);
    double got = t->c.isa->low_rank->dot_f32(t->s.size, t->x, y);
    double want = ref_kernels()->dot_f32(t->s.size, t->x, y);

    num_assert(&t->c, num_same_f64(got, want), t->s.size, "the inner product differs");
}

typedef void check(const struct shape_case *);

static void check_shape(const struct tally__isa *isa, struct tally__low_rank s, check *test)
{
    for (size_t shift = 0; shift < 3; shift++) {
        for (int data = 0; data < NUM_N_DATA; data++) {
            struct shape_case t = {
                .c = {.isa = isa, .n = s.m, .shift = shift, .data = (enum num_data)data}, .s = s};

            t.x = num_input_f32(&t.c, s.size, 1);
            t.p = num_input_f32(&t.c, s.n * s.r, 2);
            t.q = num_input_f32(&t.c, s.m * s.r, 3);
            t.other_q = num_input_f32(&t.c, s.m * s.r, 4);
            test(&t);
            num_release();
        }
    }
}

static void check_isa(const struct tally__isa *isa, check *test)
{
    static const size_t rows[] = {1, 2, 3, 4, 7, 9};
    static const size_t columns[] = {1, 3, 16, 17, 31, 32, 64, 100, 544, 1035};
    static const size_t ranks[] = {1, 2, 3, 4, 5, 8, 31, 32, 33, 66};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t j = 0; j < sizeof columns / sizeof columns[0]; j++) {
            /* Many ranks on small shapes, few on large ones. */
            for (size_t k = 0; k < (columns[j] > 100 ? 5 : sizeof ranks / sizeof ranks[0]); k++) {
                size_t all = rows[i] * columns[j];
                struct tally__low_rank s = {rows[i], columns[j], ranks[k], all};

                check_shape(isa, s, test);
                s.size = (2 * all + 2) / 3;
                check_shape(isa, s, test);
            }
        }
    }
}

#define RUN(name, result, parameters, arguments)                   \
    static void run_##name(void **state)                           \
    {                                                              \
        check_isa((const struct tally__isa *)*state, test_##name); \
    }
TALLY__LOW_RANK_LIST(RUN)

#define ENTRY(name, result, parameters, arguments) \
    {#name, run_##name, NULL, NULL, (void *)(uintptr_t)isa},

int low_rank_test_isa(const struct tally__isa *isa)
{
    const struct CMUnitTest tests[] = {TALLY__LOW_RANK_LIST(ENTRY)};

    return cmocka_run_group_tests_name(isa->name, tests, NULL, NULL);
}
