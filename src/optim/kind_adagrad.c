/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers adagrad and adadelta. Stateless; lanes and application threads enter, several at
 * once. */
#include "num/optim.h"
#include "optim/optimizer_kind.h"

/* ---- adagrad ---- */

enum { LR, LR_DECAY, DECAY, INITIAL, EPS, N_OPTIONS };

static void step_adagrad(const double *values, const tally_step_param *param, float *const *state)
{
    const struct tally__adagrad_options options = {
        .lr = param->lr,
        .lr_decay = values[LR_DECAY],
        .weight_decay = values[DECAY],
        .epsilon = values[EPS],
    };
    struct tally__adagrad constants;

    if (param->step == 1) {
        tally__optimizer_fill(param->n, state[TALLY__ADAGRAD_S], &values[INITIAL]);
    }
    tally__adagrad_constants(&options, param->step, &constants);
    tally__adagrad_step(param->n, param->gradient, param->data, state, &constants);
}

static const struct tally__option adagrad_list[N_OPTIONS] = {
    [LR] = TALLY__LR_OPTION("0.01"),
    [LR_DECAY] = TALLY__POSITIVE_OPTION("lr_decay", "0",
                                        "step t has the learning rate / (1 + (t - 1) * lr_decay)"),
    [DECAY] = TALLY__DECAY_OPTION,
    [INITIAL] = TALLY__POSITIVE_OPTION("initial", "0", "initial value of the sum of squares"),
    [EPS] = TALLY__EPS_OPTION("1e-10"),
};

const struct tally__optimizer_kind tally__optimizer_kind_adagrad = {
    .row.name = "adagrad",
    .row.help = "divides by the size of all gradients so far: for rare features; one number per "
                "element",
    .row.n_options = N_OPTIONS,
    .row.options = adagrad_list,
    .states = 1u << TALLY__ADAGRAD_S,
    .step = step_adagrad,
};

/* ---- adadelta ---- */

enum { DELTA_LR, DELTA_RHO, DELTA_EPS, DELTA_DECAY, N_DELTA_OPTIONS };

static void step_adadelta(const double *values, const tally_step_param *param, float *const *state)
{
    const struct tally__adadelta_options options = {
        .lr = param->lr,
        .rho = values[DELTA_RHO],
        .epsilon = values[DELTA_EPS],
        .weight_decay = values[DELTA_DECAY],
    };
    struct tally__adadelta constants;

    tally__adadelta_constants(&options, param->step, &constants);
    tally__adadelta_step(param->n, param->gradient, param->data, state, &constants);
}

static const struct tally__option adadelta_list[N_DELTA_OPTIONS] = {
    [DELTA_LR] = TALLY__LR_OPTION("1"),
    [DELTA_RHO] = TALLY__REAL_OPTION("rho", 0, 1, "0..1", "0.9",
                                     "decay of the running means of squared gradients and steps"),
    [DELTA_EPS] = TALLY__EPS_OPTION("1e-6"),
    [DELTA_DECAY] = TALLY__DECAY_OPTION,
};

const struct tally__optimizer_kind tally__optimizer_kind_adadelta = {
    .row.name = "adadelta",
    .row.help = "finds the size of its steps by itself: two numbers per element",
    .row.n_options = N_DELTA_OPTIONS,
    .row.options = adadelta_list,
    .states = (1u << TALLY__ADADELTA_V) | (1u << TALLY__ADADELTA_U),
    .step = step_adadelta,
};
