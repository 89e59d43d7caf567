/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers rmsprop and rprop. Stateless; lanes and application threads enter, several at
 * once. */
#include <float.h>

#include "base/status.h"
#include "num/optim.h"
#include "optim/optimizer_kind.h"

/* ---- rmsprop ---- */

enum { LR, ALPHA, EPS, DECAY, MOMENTUM, CENTERED, N_OPTIONS };

static unsigned more_states(const double *values)
{
    return (values[CENTERED] != 0 ? 1u << TALLY__RMSPROP_H : 0) |
           (values[MOMENTUM] != 0 ? 1u << TALLY__RMSPROP_BUF : 0);
}

static void step_rmsprop(const double *values, const tally_step_param *param, float *const *state)
{
    const struct tally__rmsprop_options options = {
        .lr = param->lr,
        .alpha = values[ALPHA],
        .epsilon = values[EPS],
        .weight_decay = values[DECAY],
        .momentum = values[MOMENTUM],
        .centered = values[CENTERED] != 0,
    };
    struct tally__rmsprop constants;

    tally__rmsprop_constants(&options, param->step, &constants);
    tally__rmsprop_step(param->n, param->gradient, param->data, state, &constants);
}

static const struct tally__option rmsprop_list[N_OPTIONS] = {
    [LR] = TALLY__LR_OPTION("0.01"),
    [ALPHA] =
        TALLY__POSITIVE_OPTION("alpha", "0.99", "decay of the running mean of squared gradients"),
    [EPS] = TALLY__EPS_OPTION("1e-8"),
    [DECAY] = TALLY__DECAY_OPTION,
    [MOMENTUM] = TALLY__POSITIVE_OPTION("momentum", "0", "part of a step that the next one keeps"),
    [CENTERED] = TALLY__FLAG_OPTION("centered", "1: measure gradients from their mean"),
};

const struct tally__optimizer_kind tally__optimizer_kind_rmsprop = {
    .row.name = "rmsprop",
    .row.help = "divides by the size of recent gradients: one number per element, up to three with "
                "options",
    .row.n_options = N_OPTIONS,
    .row.options = rmsprop_list,
    .states = 1u << TALLY__RMSPROP_V,
    .more_states = more_states,
    .step = step_rmsprop,
};

/* ---- rprop ---- */

enum { R_LR, ETA_MINUS, ETA_PLUS, STEP_MIN, STEP_MAX, N_R_OPTIONS };

static int check_rprop(const double *values)
{
    return values[STEP_MIN] > values[STEP_MAX]
               ? tally__fail(TALLY_ARG, "step_min is larger than step_max")
               : TALLY_OK;
}

static void step_rprop(const double *values, const tally_step_param *param, float *const *state)
{
    const struct tally__rprop_options options = {
        .shrink = values[ETA_MINUS],
        .grow = values[ETA_PLUS],
        .least = values[STEP_MIN],
        .most = values[STEP_MAX],
    };
    struct tally__rprop constants;

    if (param->step == 1) {
        tally__optimizer_fill(param->n, state[TALLY__RPROP_SIZE], &param->lr);
    }
    tally__rprop_constants(&options, param->step, &constants);
    tally__rprop_step(param->n, param->gradient, param->data, state, &constants);
}

static const struct tally__option rprop_list[N_R_OPTIONS] = {
    [R_LR] = TALLY__POSITIVE_OPTION("lr", "0.01",
                                    "size of the first step; a later change of it has no effect"),
    [ETA_MINUS] =
        TALLY__REAL_OPTION("eta_minus", DBL_TRUE_MIN, 0x1.fffffffffffffp-1, "above 0, below 1",
                           "0.5", "factor of a step if the gradient has changed its sign"),
    [ETA_PLUS] = TALLY__REAL_OPTION("eta_plus", 0x1.0000000000001p0, 1e38, "above 1, up to 1e38",
                                    "1.2", "factor of a step if it has not"),
    [STEP_MIN] = TALLY__POSITIVE_OPTION("step_min", "1e-6", "the smallest step"),
    [STEP_MAX] = TALLY__POSITIVE_OPTION("step_max", "50", "the largest step"),
};

const struct tally__optimizer_kind tally__optimizer_kind_rprop = {
    .row.name = "rprop",
    .row.help = "looks at signs of gradients only: for whole batches; two numbers per element",
    .row.n_options = N_R_OPTIONS,
    .row.options = rprop_list,
    .check = check_rprop,
    .states = (1u << TALLY__RPROP_OLD) | (1u << TALLY__RPROP_SIZE),
    .step = step_rprop,
};
