/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' kernels as a whole: many steps against double precision, options that are off,
 * numbers at the ends, and the caller's floating-point environment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_env.h"
#include "support/optim_variants.h"
#include "tally.h"

#define N 83
#define N_STEPS 100

/* A parameter of N elements with its gradient and all the state there can be. */
struct memory {
    float g[N];
    float p[N];
    float state[TALLY__OPTIM_STATES][N];
};

static struct optim_arrays arrays_of(struct memory *m, const struct optim_variant *v)
{
    struct optim_arrays a = {.n = N, .g = m->g, .p = m->p};

    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        a.state[k] = (v->used >> k & 1) != 0 ? m->state[k] : NULL;
    }
    return a;
}

/*
 * Typical gradients, never the same; smaller later on, so that a maximum differs from its inputs.
 */
static void fill_gradient(struct memory *m, uint64_t t)
{
    float scale = t <= 20 ? 1.0f : 0.125f;

    for (size_t i = 0; i < N; i++) {
        m->g[i] = scale * num_float(NUM_PLAIN, 0, 1000 * t + i);
    }
}

/* A parameter before its first step. */
static void begin(struct memory *m, const struct optim_variant *v)
{
    for (size_t i = 0; i < N; i++) {
        m->p[i] = num_float(NUM_PLAIN, 2, i);
        for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
            m->state[k][i] = v->start[k];
        }
    }
}

/* The distance of got from want, relative to the size of want. */
static double distance(const float *got, const double *want)
{
    double error = 0.0;
    double size = 0.0;

    for (size_t i = 0; i < N; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    return size > 0.0 ? sqrt(error / size) : sqrt(error);
}

/* Parameter and state, and how far the parameter has come, against elements. */
static void assert_near(const struct optim_variant *v, const struct memory *m,
                        const struct memory *before, const struct optim_element *elements)
{
    double want[N];
    float moved[N];
    double off;

    for (size_t i = 0; i < N; i++) {
        want[i] = elements[i].p;
    }
    off = distance(m->p, want);
    if (!(off <= 1e-5)) {
        fail_msg("%s: parameters are off by %g", v->name, off);
    }
    for (size_t i = 0; i < N; i++) {
        want[i] = elements[i].p - (double)before->p[i];
        moved[i] = m->p[i] - before->p[i];
    }
    off = distance(moved, want);
    if (!(off <= 1e-4)) {
        fail_msg("%s: the way of the parameters is off by %g", v->name, off);
    }
    for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
        for (size_t i = 0; i < N; i++) {
            want[i] = elements[i].state[k];
        }
        off = distance(m->state[k], want);
        if ((v->used >> k & 1) != 0 && !(off <= 1e-5)) {
            fail_msg("%s: state %zu is off by %g", v->name, k, off);
        }
    }
}

static void check_steps(const struct optim_variant *v)
{
    struct memory before;
    struct memory m = {0};
    struct optim_element elements[N];

    begin(&before, v);
    m = before;
    for (size_t i = 0; i < N; i++) {
        elements[i] = (struct optim_element){.p = (double)m.p[i]};
        for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
            elements[i].state[k] = (double)m.state[k][i];
        }
    }
    for (uint64_t t = 1; t <= N_STEPS; t++) {
        struct optim_arrays a = arrays_of(&m, v);

        fill_gradient(&m, t);
        v->step(&optim_dispatched, &a, t);
        for (size_t i = 0; i < N; i++) {
            elements[i].g = (double)m.g[i];
            v->oracle(t, &elements[i]);
        }
    }
    assert_near(v, &m, &before, elements);
}

static void steps_are_those_of_double_precision(void **state)
{
    (void)state;
    for (size_t i = 0; i < optim_n_variants; i++) {
        check_steps(&optim_variants[i]);
    }
}

/* Without weight decay, not even an infinite parameter reaches the state. */
static void a_decay_of_zero_leaves_the_parameter_out(void **state)
{
    static const float parameters[] = {INFINITY, -INFINITY, NAN, 0x1p127f};

    (void)state;
    for (size_t i = 0; i < optim_n_variants; i++) {
        const struct optim_variant *v = &optim_variants[i];
        struct memory usual = {0};
        struct memory other = {0};
        struct optim_arrays a = arrays_of(&usual, v);
        struct optim_arrays b = arrays_of(&other, v);

        if (v->decays) {
            continue;
        }
        begin(&usual, v);
        fill_gradient(&usual, 1);
        other = usual;
        for (size_t j = 0; j < N; j++) {
            other.p[j] = parameters[j % 4];
        }
        v->step(&optim_dispatched, &a, 1);
        v->step(&optim_dispatched, &b, 1);
        assert_memory_equal(other.state, usual.state, sizeof usual.state);
        for (size_t j = 0; j < N; j++) {
            assert_true(num_same_f32(other.p[j], parameters[j % 4]));
        }
    }
}

/* A gradient of 0 moves nothing, and leaves -0 as it is. */
static void a_gradient_of_zero_moves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < optim_n_variants; i++) {
        const struct optim_variant *v = &optim_variants[i];
        struct memory m = {0};
        struct memory before;
        struct optim_arrays a = arrays_of(&m, v);

        if (v->decays) {
            continue;
        }
        begin(&m, v);
        memset(m.g, 0, sizeof m.g);
        m.p[0] = m.p[N - 1] = -0.0f;
        before = m;
        v->step(&optim_dispatched, &a, 1);
        v->step(&optim_dispatched, &a, 2);
        assert_memory_equal(m.p, before.p, sizeof m.p);
    }
}

/* A gradient that is not finite shows: where it is, and nowhere else. */
static void what_is_not_finite_shows(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};

    (void)state;
    for (size_t i = 0; i < optim_n_variants; i++) {
        const struct optim_variant *v = &optim_variants[i];
        struct memory m = {0};
        struct optim_arrays a = arrays_of(&m, v);

        begin(&m, v);
        for (uint64_t t = 1; t <= 3; t++) {
            fill_gradient(&m, t);
            for (size_t j = 0; t == 2 && j < 9; j++) {
                m.g[7 * j] = bad[j % 3];
            }
            v->step(&optim_dispatched, &a, t);
        }
        for (size_t j = 0; j < N; j++) {
            bool was_bad = j % 7 == 0 && j < 63;
            bool shows = !isfinite(m.p[j]);

            for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
                shows = shows || !isfinite(m.state[k][j]);
            }
            /* The steps of Rprop have the sign of the gradient and nothing of its size. */
            if (strcmp(v->name, "rprop") != 0 || j / 7 % 3 == 2 || !was_bad) {
                assert_int_equal(shows, was_bad);
            }
        }
    }
}

/* The contents of memory before the first step do not matter. */
static void momentum_begins_with_the_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < optim_n_variants; i++) {
        const struct optim_variant *v = &optim_variants[i];
        struct memory clean = {0};
        struct memory dirty = {0};
        struct optim_arrays a = arrays_of(&clean, v);
        struct optim_arrays b = arrays_of(&dirty, v);

        if (strncmp(v->name, "sgd", 3) != 0) {
            continue;
        }
        begin(&clean, v);
        fill_gradient(&clean, 1);
        dirty = clean;
        memset(dirty.state[TALLY__SGD_BUF], 0xff, sizeof dirty.state[0]);
        v->step(&optim_dispatched, &a, 1);
        v->step(&optim_dispatched, &b, 1);
        assert_memory_equal(dirty.p, clean.p, sizeof clean.p);
    }
}

/* If rounding takes the centered variance below 0, it counts as 0. */
static void a_variance_is_never_negative(void **state)
{
    const struct tally__rmsprop_options options = {
        .lr = 0.01, .alpha = 0.99, .epsilon = 0.5, .centered = true};
    struct tally__rmsprop constants;
    float g[N];
    float p[N] = {0};
    float v[N];
    float h[N];
    float *const arrays[] = {v, h, NULL};
    bool below = false;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        g[i] = 1.0f + num_float(NUM_PLAIN, 0, i);
        v[i] = g[i] * g[i];
        h[i] = g[i];
    }
    tally__rmsprop_constants(&options, 1, &constants);
    tally__rmsprop_step(N, g, p, arrays, &constants);
    for (size_t i = 0; i < N; i++) {
        below = below || v[i] - h[i] * h[i] < 0.0f;
        assert_true(isfinite(p[i]));
    }
    assert_true(below);
}

/* A gradient with the opposite sign halves the step; the next gradient counts with either sign. */
static void rprop_turns_around(void **state)
{
    const struct tally__rprop_options options = {
        .shrink = 0.5, .grow = 1.5, .least = 0.25, .most = 4};
    static const float gradients[] = {1e-30f, 1e30f, -7.0f, -1.0f, 0.0f, -1.0f, 2.0f, 2.0f, -1.0f};
    static const float sizes[] = {1.0f, 1.5f, 0.75f, 0.75f, 0.75f, 0.75f, 0.375f, 0.375f, 0.25f};
    static const float ways[] = {-1.0f, -2.5f, -2.5f,   -1.75f, -1.75f,
                                 -1.0f, -1.0f, -1.375f, -1.375f};
    struct tally__rprop constants;
    float p = 0.0f;
    float old = 0.0f;
    float size = 1.0f;
    float *const arrays[] = {&old, &size, NULL};

    (void)state;
    for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++) {
        tally__rprop_constants(&options, i + 1, &constants);
        tally__rprop_step(1, &gradients[i], &p, arrays, &constants);
        assert_true(num_same_f32(size, sizes[i]));
        assert_true(num_same_f32(p, ways[i]));
    }
}

static void constants_at_the_ends(void **state)
{
    const struct tally__adam_options options = {
        .lr = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
    static const uint64_t steps[] = {1, 2, 3, 10, 1000, 12345, 10000000, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        double t = (double)steps[i];
        struct tally__adam c;

        tally__adam_constants(&options, steps[i], &c);
        assert_true(fabs((double)c.rate * (1 - pow(0.9, t)) / 0.001 - 1) < 1e-7);
        assert_true(fabs((double)c.correction / sqrt(1 - pow(0.999, t)) - 1) < 1e-7);
        assert_true(num_same_f32(c.weight_decay, 0.01f) && num_same_f32(c.keep, 1.0f));
    }
}

/* Three steps on numbers of all sizes, with every NaN made the same one. */
static void compute(const struct optim_variant *v, unsigned environment, struct memory *m)
{
    struct optim_arrays a = arrays_of(m, v);

    begin(m, v);
    for (uint64_t t = 1; t <= 3; t++) {
        uint64_t before;
        uint64_t after;

        for (size_t i = 0; i < N; i++) {
            m->g[i] = num_float((enum num_data)(i % NUM_N_DATA), t, i);
        }
        num_set_environment(environment);
        before = num_environment();
        v->step(&optim_dispatched, &a, t);
        after = num_environment();
        num_set_environment(0);
        assert_int_equal(before, after);
    }
    for (size_t i = 0; i < N; i++) {
        m->g[i] = isnan(m->g[i]) ? NAN : m->g[i];
        m->p[i] = isnan(m->p[i]) ? NAN : m->p[i];
        for (size_t k = 0; k < TALLY__OPTIM_STATES; k++) {
            m->state[k][i] = isnan(m->state[k][i]) ? NAN : m->state[k][i];
        }
    }
}

static void the_environment_does_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < optim_n_variants; i++) {
        struct memory usual = {0};
        struct memory other = {0};

        compute(&optim_variants[i], 0, &usual);
        for (unsigned k = 1; k < num_n_environments; k++) {
            compute(&optim_variants[i], k, &other);
            assert_memory_equal(&other, &usual, sizeof usual);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_double_precision),
        cmocka_unit_test(a_decay_of_zero_leaves_the_parameter_out),
        cmocka_unit_test(a_gradient_of_zero_moves_nothing),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(momentum_begins_with_the_gradient),
        cmocka_unit_test(a_variance_is_never_negative),
        cmocka_unit_test(rprop_turns_around),
        cmocka_unit_test(constants_at_the_ends),
        cmocka_unit_test(the_environment_does_not_matter),
    };

    return tally__num_start() == TALLY_OK
               ? cmocka_run_group_tests_name("optimizers", tests, NULL, NULL)
               : 1;
}
