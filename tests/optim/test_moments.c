/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moments: shards and parts get the bits of the whole, gradients are scaled first and released
 * last, failures count no step, optimizers of the application's own, memory. One thread.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "optim/moments.h"
#include "support/counting_memory.h"
#include "support/num_check.h"

/* More than two of the parts that a step may be made in, and odd. */
#define N ((size_t)16384 * 2 + 777)
#define N_STEPS 3

static const char *const texts[] = {
    "sgd",
    "sgd:momentum=0.9,nesterov=1",
    "adam:amsgrad=1",
    "adamw",
    "adagrad:initial=0.25,lr_decay=0.1",
    "rmsprop:momentum=0.5",
    "rmsprop:centered=1,weight_decay=0.1",
    "adadelta",
    "adamax",
    "rprop",
};

static struct tally__rule *parse(const char *text)
{
    struct tally__rule *rule = NULL;

    assert_int_equal(tally__rule_parse(text, &rule), TALLY_OK);
    return rule;
}

static void fill(float *x, uint64_t stream)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = num_float(NUM_PLAIN, stream, i);
    }
}

static double lr_of(const struct tally__rule *rule, uint64_t t)
{
    return rule->lr / (double)t;
}

/* One parameter that is trained in pieces, each with its own moments. */
struct model {
    float p[N];
    float g[N];
    struct tally__moments moments[4];
};

static void cover(struct model *model, const struct tally__rule *rule, const size_t *cuts,
                  size_t n_pieces)
{
    for (size_t k = 0; k < n_pieces; k++) {
        assert_int_equal(tally__moments_cover(&model->moments[k], rule->table.n_states, cuts[k],
                                              cuts[k + 1] - cuts[k]),
                         TALLY_OK);
    }
}

static void step(struct model *model, const struct tally__rule *rule, size_t n_pieces, float factor,
                 bool release)
{
    for (size_t k = 0; k < n_pieces; k++) {
        struct tally__moments *moments = &model->moments[k];
        const tally_step_param param = {.name = "p",
                                        .data = model->p + moments->first,
                                        .gradient = model->g + moments->first,
                                        .lr = lr_of(rule, moments->step + 1)};

        assert_int_equal(tally__moments_step(moments, rule, &param, factor, release), TALLY_OK);
    }
}

static void clear(struct model *model)
{
    for (size_t k = 0; k < 4; k++) {
        tally__moments_clear(&model->moments[k]);
    }
}

static const size_t whole_cuts[] = {0, N};
static const size_t shard_cuts[] = {0, 1, 5003, 5003, N};

/* Four shards, one of them empty, against the whole; the pieces scaled and released besides. */
static void check_pieces(const char *text)
{
    static struct model whole;
    static struct model shards;
    static struct model released;
    struct tally__rule *rule = parse(text);

    cover(&whole, rule, whole_cuts, 1);
    cover(&shards, rule, shard_cuts, 4);
    cover(&released, rule, whole_cuts, 1);
    fill(whole.p, 1);
    fill(shards.p, 1);
    fill(released.p, 1);
    for (uint64_t t = 1; t <= N_STEPS; t++) {
        fill(released.g, 1 + t);
        for (size_t i = 0; i < N; i++) {
            whole.g[i] = shards.g[i] = released.g[i] * 0.7f;
        }
        step(&whole, rule, 1, 1.0f, false);
        step(&shards, rule, 4, 1.0f, false);
        assert_memory_equal(shards.p, whole.p, sizeof whole.p);
        assert_memory_equal(shards.g, whole.g, sizeof whole.g);
        step(&released, rule, 1, 0.7f, true);
        assert_memory_equal(released.p, whole.p, sizeof whole.p);
        for (size_t i = 0; i < N; i++) {
            assert_true(released.g[i] == 0.0f && !signbit(released.g[i]));
        }
    }
    for (size_t k = 0; k < 4; k++) {
        const struct tally__moments *own = &shards.moments[k];

        assert_int_equal(own->step, N_STEPS);
        for (int s = 0; s < own->n_states; s++) {
            assert_memory_equal(own->state[s], whole.moments[0].state[s] + own->first,
                                own->n * sizeof(float));
            assert_memory_equal(released.moments[0].state[s], whole.moments[0].state[s],
                                N * sizeof(float));
        }
    }
    clear(&whole);
    clear(&shards);
    clear(&released);
    tally__rule_free(rule);
}

static void test_collectives(void **state)
{
    size_t live = counting_memory_live();

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_pieces(texts[i]);
    }
    assert_int_equal(counting_memory_live(), live);
}

/* The factor stays in the gradient unless it is released; 1 leaves even a NaN's bits alone. */
static void test_factor(void **state)
{
    static struct model model;
    struct tally__rule *rule = parse("sgd:lr=0");
    const uint32_t odd_nan = 0x7f812345; /* a signalling one: any arithmetic would quiet it */
    uint32_t after;

    (void)state;
    cover(&model, rule, whole_cuts, 1);
    fill(model.g, 1);
    step(&model, rule, 1, 0.5f, false);
    for (size_t i = 0; i < N; i++) {
        assert_true(model.g[i] == 0.5f * num_float(NUM_PLAIN, 1, i));
    }
    memcpy(&model.g[3], &odd_nan, sizeof odd_nan);
    step(&model, rule, 1, 1.0f, false);
    memcpy(&after, &model.g[3], sizeof after);
    assert_int_equal(after, odd_nan);
    clear(&model);
    tally__rule_free(rule);
}

/* ---- application optimizers ---- */

/* Steps of length lr along the mean of all gradients so far: looks at the whole parameter. */
static int step_normalized(void *user, const tally_step_param *param)
{
    float *sum = param->state[0];
    double square = 0;

    (void)user;
    for (size_t i = 0; i < param->n; i++) {
        sum[i] += param->gradient[i];
        square += (double)sum[i] * (double)sum[i];
    }
    for (size_t i = 0; i < param->n; i++) {
        param->data[i] -= (float)(param->lr / sqrt(square) * (double)sum[i]);
    }
    return TALLY_OK;
}

/* The arguments of a call, for the tests; fails the call number fails. */
struct calls {
    int n;
    int fails;
    int status;
    const char *text;
    size_t first[8];
    size_t length[8];
    tally_step_param last;
};

static int step_noted(void *user, const tally_step_param *param)
{
    struct calls *calls = user;

    assert_true(calls->n < 8);
    calls->first[calls->n] = param->first;
    calls->length[calls->n] = param->n;
    calls->last = *param;
    if (++calls->n != calls->fails) {
        return TALLY_OK;
    }
    return calls->text ? tally_job_fail(NULL, calls->status, calls->text) : calls->status;
}

static struct tally__rule *make(int (*function)(void *, const tally_step_param *), void *user,
                                int elementwise, int n_states)
{
    const tally_optimizer_table table = {.size = sizeof table,
                                         .name = "own",
                                         .elementwise = elementwise,
                                         .n_states = n_states,
                                         .step_param = function};
    struct tally__rule *rule = NULL;

    assert_int_equal(tally__rule_make(&table, user, 0.5, &rule), TALLY_OK);
    return rule;
}

static void test_whole_parameter(void **state)
{
    static struct model model;
    struct tally__rule *rule = make(step_normalized, NULL, 0, 1);
    double square = 0;

    (void)state;
    cover(&model, rule, whole_cuts, 1);
    fill(model.p, 1);
    fill(model.g, 2);
    step(&model, rule, 1, 3.0f, true);
    for (size_t i = 0; i < N; i++) {
        double way = (double)model.p[i] - (double)num_float(NUM_PLAIN, 1, i);

        square += way * way;
        assert_true(model.g[i] == 0.0f);
    }
    assert_true(fabs(sqrt(square) - 0.5) < 1e-4);
    clear(&model);
    tally__rule_free(rule);
}

/* Everything a table is told; an elementwise one is called for parts when they are worth it. */
static void test_what_is_told(void **state)
{
    static const size_t shape[] = {3, 4};
    static struct model model;
    struct calls calls = {.n = 0};
    struct tally__rule *rule = make(step_noted, &calls, 1, 2);
    struct tally__moments *moments = &model.moments[0];
    const tally_step_param param = {.index = 4,
                                    .name = "w",
                                    .n_dims = 2,
                                    .shape = shape,
                                    .data = model.p,
                                    .gradient = model.g,
                                    .lr = 0.125};
    size_t end = 100;

    (void)state;
    assert_int_equal(tally__moments_cover(moments, 2, 100, N - 100), TALLY_OK);
    moments->step = 41;
    assert_int_equal(tally__moments_step(moments, rule, &param, 1.0f, false), TALLY_OK);
    assert_int_equal(calls.n, 1);
    assert_true(calls.last.size == sizeof param && calls.last.index == 4 && calls.last.n_dims == 2);
    assert_true(calls.last.shape == shape && calls.last.lr == 0.125 && calls.last.step == 42);
    assert_string_equal(calls.last.name, "w");
    assert_true(calls.first[0] == 100 && calls.length[0] == N - 100);
    calls.n = 0;
    assert_int_equal(tally__moments_step(moments, rule, &param, 1.0f, true), TALLY_OK);
    assert_true(calls.n > 1);
    for (int k = 0; k < calls.n; k++) {
        assert_int_equal(calls.first[k], end);
        end += calls.length[k];
    }
    assert_int_equal(end, N);
    assert_ptr_equal(calls.last.data, model.p + calls.last.first - 100);
    assert_ptr_equal(calls.last.gradient, model.g + calls.last.first - 100);
    assert_int_equal(calls.last.step, 43);
    rule->table.elementwise = 0;
    calls.n = 0;
    assert_int_equal(tally__moments_step(moments, rule, &param, 0.5f, true), TALLY_OK);
    assert_int_equal(calls.n, 1);
    clear(&model);
    tally__rule_free(rule);
}

/* A rank may have no element of a parameter: its steps count all the same. */
static void test_nothing_covered(void **state)
{
    struct calls calls = {.n = 0};
    struct tally__rule *rule = make(step_noted, &calls, 1, 2);
    struct tally__moments moments;
    float none = 1;
    const tally_step_param param = {.name = "w", .data = &none, .gradient = &none};

    (void)state;
    assert_int_equal(tally__moments_cover(&moments, 2, 7, 0), TALLY_OK);
    assert_int_equal(tally__moments_step(&moments, rule, &param, 0.5f, true), TALLY_OK);
    assert_true(calls.n == 0 && moments.step == 1 && none == 1);
    tally__moments_clear(&moments);
    tally__rule_free(rule);
}

static void test_failures(void **state)
{
    static struct model model;
    struct calls calls = {.fails = 2, .status = TALLY_NUMERIC, .text = "too steep"};
    struct tally__rule *rule = make(step_noted, &calls, 1, 0);
    const tally_step_param param = {.name = "w", .data = model.p, .gradient = model.g};

    (void)state;
    cover(&model, rule, whole_cuts, 1);
    assert_int_equal(tally__moments_step(&model.moments[0], rule, &param, 1.0f, true),
                     TALLY_NUMERIC);
    assert_string_equal(tally_last_error(), "too steep");
    assert_int_equal(calls.n, 2);
    assert_int_equal(model.moments[0].step, 0);
    calls = (struct calls){.fails = 1, .status = TALLY_STATE};
    assert_int_equal(tally__moments_step(&model.moments[0], rule, &param, 1.0f, true), TALLY_STATE);
    assert_string_equal(tally_last_error(), "optimizer 'own': step_param failed for parameter 'w': "
                                            "not possible in this state");
    assert_int_equal(model.moments[0].step, 0);
    /* A success leaves the text of what failed before. */
    (void)tally__fail(TALLY_ARG, "before");
    calls = (struct calls){.fails = 0};
    assert_int_equal(tally__moments_step(&model.moments[0], rule, &param, 1.0f, true), TALLY_OK);
    assert_string_equal(tally_last_error(), "before");
    assert_int_equal(model.moments[0].step, 1);
    clear(&model);
    tally__rule_free(rule);
}

static int cover_three(void *user)
{
    struct tally__moments moments = {.n = 0};
    int rc = tally__moments_cover(&moments, 3, 5, 11);

    (void)user;
    assert_int_equal(moments.n, rc == TALLY_OK ? 11 : 0);
    for (int k = 0; rc == TALLY_OK && k < 3; k++) {
        for (size_t i = 0; i < 11; i++) {
            assert_true(moments.state[k][i] == 0.0f);
        }
    }
    tally__moments_clear(&moments);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_int_equal(counting_memory_exhaust(cover_three, NULL), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),     cmocka_unit_test(test_factor),
        cmocka_unit_test(test_whole_parameter), cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_nothing_covered), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_no_memory),
    };

    return tally__num_start() == TALLY_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
