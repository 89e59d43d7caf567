/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measured step of each optimizer, and of those of its variants that differ in the arrays they
 * read. The gradient is the first input; the parameter and the state are the halves of the two
 * outputs and go on from step to step.
 */
#include "bench/kernel_cases.h"
#include "num/optim.h"

#define GOAL 1.3

/* The step measured: any but the first, which has less to do. */
#define STEP 10

/* The parameter, then its state. */
static float *array(const struct kernel_arrays *a, size_t k)
{
    return (float *)a->out[k / 2] + k % 2 * a->n;
}

/* Defines run_<row>: a step of an optimizer with the options given. */
#define RUN(row, name, ...)                                                      \
    static void run_##row(const struct tally__isa *isa, struct kernel_arrays *a) \
    {                                                                            \
        static const struct tally__##name##_options options = {__VA_ARGS__};     \
        float *const state[] = {array(a, 1), array(a, 2), array(a, 3)};          \
        struct tally__##name constants;                                          \
                                                                                 \
        tally__##name##_constants(&options, STEP, &constants);                   \
        isa->optim->name(a->n, a->f32[0], array(a, 0), state, &constants);       \
    }

/* Small learning rates, so that parameters stay ordinary numbers through many steps. */
#define LR .lr = 1e-4
#define MOMENTS .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8
#define DECAY .weight_decay = 0.01

RUN(sgd, sgd, LR)
RUN(sgd_momentum, sgd, LR, DECAY, .momentum = 0.9)
RUN(adam, adam, LR, MOMENTS)
RUN(adamw, adam, LR, MOMENTS, DECAY, .decoupled = true)
RUN(adamw_amsgrad, adam, LR, MOMENTS, DECAY, .decoupled = true, .amsgrad = true)
RUN(adagrad, adagrad, LR, .epsilon = 1e-10)
RUN(rmsprop, rmsprop, LR, .alpha = 0.99, .epsilon = 1e-8)
RUN(rmsprop_centered, rmsprop, LR, .alpha = 0.99, .epsilon = 1e-2, .momentum = 0.9,
    .centered = true)
RUN(adadelta, adadelta, LR, .rho = 0.9, .epsilon = 1e-6)
RUN(adamax, adamax, LR, MOMENTS)
RUN(rprop, rprop, .shrink = 0.5, .grow = 1.2, .least = 1e-6, .most = 50)

/* A row: it reads the gradient, and the parameter and the state, which it writes, too. */
#define ROW(row, n_state) {#row, run_##row, 4 * (2 + (n_state)), 4 * (1 + (n_state)), GOAL},

/* ROWS_<optimizer>: one that has none does not build. */
#define ROWS_sgd ROW(sgd, 0) ROW(sgd_momentum, 1)
#define ROWS_adam ROW(adam, 2) ROW(adamw, 2) ROW(adamw_amsgrad, 3)
#define ROWS_adagrad ROW(adagrad, 1)
#define ROWS_rmsprop ROW(rmsprop, 1) ROW(rmsprop_centered, 3)
#define ROWS_adadelta ROW(adadelta, 2)
#define ROWS_adamax ROW(adamax, 2)
#define ROWS_rprop ROW(rprop, 2)

const struct kernel_case optim_cases[] = {
#define ROWS(name) ROWS_##name
    TALLY__OPTIM_LIST(ROWS)
#undef ROWS
};
const size_t n_optim_cases = sizeof optim_cases / sizeof optim_cases[0];
