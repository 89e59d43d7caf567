/* SPDX-License-Identifier: Apache-2.0 */
/* The variants of the optimizers that are tested. Any thread; nothing is kept. */
#include "support/optim_variants.h"

/* Defines what a variant does, by the options of its optimizer; t is in scope. */
#define VARIANT(variant, name, ...)                                                                \
    static void step_##variant(const struct tally__optim_kernels *k, const struct optim_arrays *a, \
                               uint64_t t)                                                         \
    {                                                                                              \
        const struct tally__##name##_options options = {__VA_ARGS__};                              \
        struct tally__##name constants;                                                            \
                                                                                                   \
        tally__##name##_constants(&options, t, &constants);                                        \
        k->name(a->n, a->g, a->p, a->state, &constants);                                           \
    }                                                                                              \
    static void oracle_##variant(uint64_t t, struct optim_element *x)                              \
    {                                                                                              \
        const struct tally__##name##_options options = {__VA_ARGS__};                              \
                                                                                                   \
        optim_oracle_##name(&options, t, x);                                                       \
    }

/* A learning rate that falls and rises again, by exact division: the environment does not matter.
 */
#define LR(lr) ((lr) / (double)(UINT64_C(1) << t % 3))
#define MOMENTS .beta1 = 0.9, .beta2 = 0.999
/* Small as usual, and so large that its place in the formula shows. */
#define SMALL .epsilon = 1e-8
#define LARGE .epsilon = 0.05
#define DECAY .weight_decay = 0.1

VARIANT(sgd, sgd, .lr = LR(0.1))
VARIANT(sgd_decay, sgd, .lr = LR(0.1), DECAY)
VARIANT(sgd_maximize, sgd, .lr = LR(0.1), DECAY, .maximize = true)
VARIANT(sgd_momentum, sgd, .lr = LR(0.1), .momentum = 0.9)
VARIANT(sgd_damped, sgd, .lr = LR(0.1), DECAY, .momentum = 0.9, .dampening = 0.3)
VARIANT(sgd_nesterov, sgd, .lr = LR(0.1), DECAY, .momentum = 0.9, .nesterov = true)
VARIANT(adam, adam, .lr = LR(0.01), MOMENTS, SMALL)
VARIANT(adam_decay, adam, .lr = LR(0.01), MOMENTS, LARGE, DECAY)
VARIANT(adam_amsgrad, adam, .lr = LR(0.01), MOMENTS, LARGE, DECAY, .amsgrad = true)
VARIANT(adamw, adam, .lr = LR(0.01), MOMENTS, LARGE, DECAY, .decoupled = true)
VARIANT(adamw_none, adam, .lr = LR(0.01), MOMENTS, SMALL, .decoupled = true)
VARIANT(adamw_amsgrad, adam, .lr = LR(0.01), MOMENTS, LARGE, DECAY, .decoupled = true,
        .amsgrad = true)
VARIANT(adagrad, adagrad, .lr = LR(0.1), SMALL)
VARIANT(adagrad_decay, adagrad, .lr = LR(0.1), LARGE, DECAY, .lr_decay = 0.01)
VARIANT(rmsprop, rmsprop, .lr = LR(0.01), .alpha = 0.99, SMALL)
VARIANT(rmsprop_momentum, rmsprop, .lr = LR(0.01), .alpha = 0.99, LARGE, DECAY, .momentum = 0.5)
VARIANT(rmsprop_centered, rmsprop, .lr = LR(0.01), .alpha = 0.99, LARGE, .centered = true)
VARIANT(rmsprop_both, rmsprop, .lr = LR(0.01), .alpha = 0.99, LARGE, DECAY, .momentum = 0.5,
        .centered = true)
VARIANT(adadelta, adadelta, .lr = LR(1.0), .rho = 0.9, .epsilon = 1e-6)
VARIANT(adadelta_decay, adadelta, .lr = LR(1.0), .rho = 0.9, LARGE, DECAY)
VARIANT(adamax, adamax, .lr = LR(0.01), MOMENTS, SMALL)
VARIANT(adamax_decay, adamax, .lr = LR(0.01), MOMENTS, LARGE, DECAY)
VARIANT(rprop, rprop, .shrink = 0.5, .grow = 1.2, .least = 1e-3, .most = 0.02)

/* A variant with the states named by bits; the numbers behind them are what these begin as. */
#define ROW(variant, decays, bits, ...) \
    {#variant, decays, bits, {__VA_ARGS__}, step_##variant, oracle_##variant},

/* ROWS_<optimizer>: one that has none does not build. */
#define ROWS_sgd                   \
    ROW(sgd, false, 0, 0)          \
    ROW(sgd_decay, true, 0, 0)     \
    ROW(sgd_maximize, true, 0, 0)  \
    ROW(sgd_momentum, false, 1, 0) \
    ROW(sgd_damped, true, 1, 0)    \
    ROW(sgd_nesterov, true, 1, 0)
#define ROWS_adam                 \
    ROW(adam, false, 3, 0)        \
    ROW(adam_decay, true, 3, 0)   \
    ROW(adam_amsgrad, true, 7, 0) \
    ROW(adamw, true, 3, 0)        \
    ROW(adamw_none, false, 3, 0)  \
    ROW(adamw_amsgrad, true, 7, 0)
#define ROWS_adagrad ROW(adagrad, false, 1, 0.5f) ROW(adagrad_decay, true, 1, 0)
#define ROWS_rmsprop                   \
    ROW(rmsprop, false, 1, 0)          \
    ROW(rmsprop_momentum, true, 5, 0)  \
    ROW(rmsprop_centered, false, 3, 0) \
    ROW(rmsprop_both, true, 7, 0)
#define ROWS_adadelta ROW(adadelta, false, 3, 0) ROW(adadelta_decay, true, 3, 0)
#define ROWS_adamax ROW(adamax, false, 3, 0) ROW(adamax_decay, true, 3, 0)
#define ROWS_rprop ROW(rprop, false, 3, 0, 0.01f)

const struct optim_variant optim_variants[] = {
#define ROWS(name) ROWS_##name
    TALLY__OPTIM_LIST(ROWS)
#undef ROWS
};
const size_t optim_n_variants = sizeof optim_variants / sizeof optim_variants[0];

const struct tally__optim_kernels optim_dispatched = {
#define DISPATCHED(name) .name = tally__##name##_step,
    TALLY__OPTIM_LIST(DISPATCHED)
#undef DISPATCHED
};
