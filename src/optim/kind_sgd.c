/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer sgd. Stateless; lanes and application threads enter, several at once. */
#include "base/status.h"
#include "num/optim.h"
#include "optim/optimizer_kind.h"

enum { LR, MOMENTUM, DAMPENING, DECAY, NESTEROV, MAXIMIZE, N_OPTIONS };

static int check(const double *values)
{
    return values[NESTEROV] != 0 && (values[MOMENTUM] == 0 || values[DAMPENING] != 0)
               ? tally__fail(TALLY_ARG, "nesterov=1 needs a momentum above 0 and a dampening of 0")
               : TALLY_OK;
}

static unsigned more_states(const double *values)
{
    return values[MOMENTUM] != 0 ? 1u << TALLY__SGD_BUF : 0;
}

static void step(const double *values, const tally_step_param *param, float *const *state)
{
    const struct tally__sgd_options options = {
        .lr = param->lr,
        .momentum = values[MOMENTUM],
        .dampening = values[DAMPENING],
        .weight_decay = values[DECAY],
        .nesterov = values[NESTEROV] != 0,
        .maximize = values[MAXIMIZE] != 0,
    };
    struct tally__sgd constants;

    tally__sgd_constants(&options, param->step, &constants);
    tally__sgd_step(param->n, param->gradient, param->data, state, &constants);
}

static const struct tally__option list[N_OPTIONS] = {
    [LR] = TALLY__LR_OPTION("0.01"),
    [MOMENTUM] = TALLY__POSITIVE_OPTION("momentum", "0", "part of a step that the next one keeps"),
    [DAMPENING] = TALLY__REAL_OPTION("dampening", -1e38, 1e38, "-1e38..1e38", "0",
                                     "with momentum: gradients count 1 - dampening"),
    [DECAY] = TALLY__DECAY_OPTION,
    [NESTEROV] = TALLY__FLAG_OPTION("nesterov", "1: look ahead along the momentum"),
    [MAXIMIZE] = TALLY__FLAG_OPTION("maximize", "1: go up instead of down"),
};

const struct tally__optimizer_kind tally__optimizer_kind_sgd = {
    .row.name = "sgd",
    .row.help = "gradient descent, with momentum if you like: no state, or one number per element",
    .row.n_options = N_OPTIONS,
    .row.options = list,
    .check = check,
    .more_states = more_states,
    .step = step,
};
