/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every optimizer by its text, for a hundred steps with a learning rate that changes, against its
 * formula in double precision. That each step has the bits of the reference kernel is the matter of
 * test_optim_isas. One thread.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "num/num.h"
#include "optim/moments.h"
#include "support/num_check.h"
#include "support/optim_oracle.h"

#define N 257
#define N_STEPS 100

struct variant {
    const char *text;
    double lr;     /* that the text has */
    unsigned used; /* bit k: the oracle's state k is kept */
    double start[TALLY__OPTIM_STATES];
    void (*oracle)(double rate, uint64_t t, struct optim_element *x);
};

#define ORACLE(variant, name, ...)                                                  \
    static void variant(double rate, uint64_t t, struct optim_element *x)           \
    {                                                                               \
        const struct tally__##name##_options options = {.lr = (rate), __VA_ARGS__}; \
                                                                                    \
        optim_oracle_##name(&options, t, x);                                        \
    }

ORACLE(sgd_plain, sgd, .momentum = 0)
ORACLE(sgd_momentum, sgd, .momentum = 0.9)
ORACLE(sgd_damped, sgd, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.02, .maximize = true)
ORACLE(sgd_nesterov, sgd, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true)
ORACLE(sgd_up, sgd, .maximize = true)
ORACLE(adam_plain, adam, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8)
ORACLE(adam_all, adam, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1,
       .amsgrad = true)
ORACLE(adamw_plain, adam, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01,
       .decoupled = true)
ORACLE(adamw_all, adam, .beta1 = 0.85, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 0.3,
       .amsgrad = true, .decoupled = true)
ORACLE(adagrad_plain, adagrad, .epsilon = 1e-10)
ORACLE(adagrad_all, adagrad, .epsilon = 1e-3, .lr_decay = 0.05, .weight_decay = 0.1)
ORACLE(rmsprop_plain, rmsprop, .alpha = 0.99, .epsilon = 1e-8)
ORACLE(rmsprop_momentum, rmsprop, .alpha = 0.9, .epsilon = 1e-2, .momentum = 0.7)
ORACLE(rmsprop_centered, rmsprop, .alpha = 0.95, .epsilon = 1e-1, .centered = true)
ORACLE(rmsprop_all, rmsprop, .alpha = 0.95, .epsilon = 1e-1, .weight_decay = 0.1, .momentum = 0.5,
       .centered = true)
ORACLE(adadelta_plain, adadelta, .rho = 0.9, .epsilon = 1e-6)
ORACLE(adadelta_all, adadelta, .rho = 0.8, .epsilon = 1e-4, .weight_decay = 0.1)
ORACLE(adamax_plain, adamax, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8)
ORACLE(adamax_all, adamax, .beta1 = 0.7, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1)

/* Only the first step has the learning rate, and that is how the oracle's state begins. */
#define RPROP(variant, ...)                                               \
    static void variant(double rate, uint64_t t, struct optim_element *x) \
    {                                                                     \
        const struct tally__rprop_options options = {__VA_ARGS__};        \
                                                                          \
        (void)rate;                                                       \
        optim_oracle_rprop(&options, t, x);                               \
    }

RPROP(rprop_plain, .shrink = 0.5, .grow = 1.2, .least = 1e-6, .most = 50)
RPROP(rprop_all, .shrink = 0.4, .grow = 1.5, .least = 0.01, .most = 0.2)

static const struct variant variants[] = {
    {"sgd", 0.01, 0, {0}, sgd_plain},
    {"sgd:lr=0.1,momentum=0.9", 0.1, 1, {0}, sgd_momentum},
    {"sgd:lr=0.1,momentum=0.8,dampening=0.3,weight_decay=0.02,maximize=1", 0.1, 1, {0}, sgd_damped},
    {"sgd:lr=0.05,momentum=0.9,weight_decay=0.01,nesterov=1", 0.05, 1, {0}, sgd_nesterov},
    {"sgd:lr=0.1,maximize=1", 0.1, 0, {0}, sgd_up},
    {"adam", 0.001, 3, {0}, adam_plain},
    {"adam:lr=0.01,beta1=0.8,beta2=0.95,eps=1e-3,weight_decay=0.1,amsgrad=1",
     0.01,
     7,
     {0},
     adam_all},
    {"adamw", 0.001, 3, {0}, adamw_plain},
    {"adamw:lr=0.01,beta1=0.85,beta2=0.9,eps=1e-6,weight_decay=0.3,amsgrad=1",
     0.01,
     7,
     {0},
     adamw_all},
    {"adagrad", 0.01, 1, {0}, adagrad_plain},
    {"adagrad:lr=0.1,lr_decay=0.05,weight_decay=0.1,initial=0.5,eps=1e-3",
     0.1,
     1,
     {0.5},
     adagrad_all},
    {"rmsprop", 0.01, 1, {0}, rmsprop_plain},
    {"rmsprop:alpha=0.9,eps=1e-2,momentum=0.7", 0.01, 5, {0}, rmsprop_momentum},
    {"rmsprop:alpha=0.95,eps=0.1,centered=1", 0.01, 3, {0}, rmsprop_centered},
    {"rmsprop:lr=0.02,alpha=0.95,eps=0.1,weight_decay=0.1,momentum=0.5,centered=1",
     0.02,
     7,
     {0},
     rmsprop_all},
    {"adadelta", 1, 3, {0}, adadelta_plain},
    {"adadelta:lr=0.5,rho=0.8,eps=1e-4,weight_decay=0.1", 0.5, 3, {0}, adadelta_all},
    {"adamax", 0.001, 3, {0}, adamax_plain},
    {"adamax:lr=0.01,beta1=0.7,beta2=0.9,eps=1e-3,weight_decay=0.1", 0.01, 3, {0}, adamax_all},
    {"rprop", 0.01, 3, {0, 0.01}, rprop_plain},
    {"rprop:lr=0.05,eta_minus=0.4,eta_plus=1.5,step_min=0.01,step_max=0.2",
     0.05,
     3,
     {0, 0.05},
     rprop_all},
};

/* The learning rate of step t: as the text has it at first, up and down, then much smaller. */
static double rate_of(const struct variant *v, uint64_t t)
{
    return v->lr * (t == 1 ? 1 : 1 + 0.5 * sin((double)t)) * (t > 70 ? 0.1 : 1);
}

static void check_near(const char *text, const char *what, const float *got, const double *want,
                       double most)
{
    double error = 0;
    double size = 0;

    for (size_t i = 0; i < N; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    error = size > 0 ? sqrt(error / size) : sqrt(error);
    if (!(error <= most)) {
        fail_msg("%s: %s is off by %g of its size", text, what, error);
    }
}

struct run {
    float start[N];
    float p[N];
    float g[N];
    struct optim_element x[N];
    struct tally__moments moments;
};

static void begin(struct run *run, const struct variant *v)
{
    for (size_t i = 0; i < N; i++) {
        run->p[i] = run->start[i] = num_float(NUM_PLAIN, 2, i);
        run->x[i] = (struct optim_element){.p = (double)run->p[i]};
        memcpy(run->x[i].state, v->start, sizeof v->start);
    }
}

static void step(struct run *run, const struct variant *v, const struct tally__rule *rule)
{
    uint64_t t = run->moments.step + 1;
    const tally_step_param param = {
        .name = "p", .data = run->p, .gradient = run->g, .lr = rate_of(v, t)};

    for (size_t i = 0; i < N; i++) {
        run->g[i] = num_float(NUM_PLAIN, 100 + t, i);
    }
    assert_int_equal(tally__moments_step(&run->moments, rule, &param, 1.0f, false), TALLY_OK);
    for (size_t i = 0; i < N; i++) {
        run->x[i].g = (double)run->g[i];
        v->oracle(param.lr, t, &run->x[i]);
    }
}

/* fp32 against fp64: the parameter, the way it has come, and every state to what a hundred
 * roundings leave. */
static void check_end(const struct run *run, const struct variant *v)
{
    double want[N];
    float way[N];
    int n = 0;

    for (size_t i = 0; i < N; i++) {
        want[i] = run->x[i].p;
    }
    check_near(v->text, "the parameter", run->p, want, 1e-5);
    for (size_t i = 0; i < N; i++) {
        way[i] = run->p[i] - run->start[i];
        want[i] -= (double)run->start[i];
    }
    check_near(v->text, "its way", way, want, 1e-4);
    for (int k = 0; k < TALLY__OPTIM_STATES; k++) {
        if (v->used >> k & 1) {
            for (size_t i = 0; i < N; i++) {
                want[i] = run->x[i].state[k];
            }
            check_near(v->text, "a state", run->moments.state[n++], want, 1e-5);
        }
    }
    assert_int_equal(n, run->moments.n_states);
}

static void test_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const struct variant *v = &variants[i];
        struct tally__rule *rule = NULL;
        struct run run = {.moments.n = 0};

        assert_int_equal(tally__rule_parse(v->text, &rule), TALLY_OK);
        assert_true(rule->lr == v->lr && rule->table.elementwise);
        begin(&run, v);
        assert_int_equal(tally__moments_cover(&run.moments, rule->table.n_states, 0, N), TALLY_OK);
        for (int t = 0; t < N_STEPS; t++) {
            step(&run, v, rule);
        }
        assert_int_equal(run.moments.step, N_STEPS);
        check_end(&run, v);
        tally__moments_clear(&run.moments);
        tally__rule_free(rule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
    };

    return tally__num_start() == TALLY_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
