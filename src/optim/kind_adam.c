/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers adam, adamw and adamax. Stateless; lanes and application threads enter, several at
 * once. */
#include "num/optim.h"
#include "optim/optimizer_kind.h"

/* adamax has the first five options. */
enum { LR, BETA1, BETA2, EPS, DECAY, AMSGRAD, N_OPTIONS };

static unsigned more_states(const double *values)
{
    return values[AMSGRAD] != 0 ? 1u << TALLY__ADAM_TOP : 0;
}

static void step_either(const double *values, const tally_step_param *param, float *const *state,
                        bool decoupled)
{
    const struct tally__adam_options options = {
        .lr = param->lr,
        .beta1 = values[BETA1],
        .beta2 = values[BETA2],
        .epsilon = values[EPS],
        .weight_decay = values[DECAY],
        .decoupled = decoupled,
        .amsgrad = values[AMSGRAD] != 0,
    };
    struct tally__adam constants;

    tally__adam_constants(&options, param->step, &constants);
    tally__adam_step(param->n, param->gradient, param->data, state, &constants);
}

static void step_adam(const double *values, const tally_step_param *param, float *const *state)
{
    step_either(values, param, state, false);
}

static void step_adamw(const double *values, const tally_step_param *param, float *const *state)
{
    step_either(values, param, state, true);
}

static void step_adamax(const double *values, const tally_step_param *param, float *const *state)
{
    const struct tally__adamax_options options = {
        .lr = param->lr,
        .beta1 = values[BETA1],
        .beta2 = values[BETA2],
        .epsilon = values[EPS],
        .weight_decay = values[DECAY],
    };
    struct tally__adamax constants;

    tally__adamax_constants(&options, param->step, &constants);
    tally__adamax_step(param->n, param->gradient, param->data, state, &constants);
}

#define FIRST_OPTIONS                                                                             \
    [LR] = TALLY__LR_OPTION("0.001"),                                                             \
    [BETA1] = TALLY__BETA_OPTION("beta1", "0.9", "decay of the running mean of gradients"),       \
    [BETA2] = TALLY__BETA_OPTION("beta2", "0.999", "decay of the running measure of their size"), \
    [EPS] = TALLY__EPS_OPTION("1e-8")
#define AMSGRAD_OPTION \
    [AMSGRAD] = TALLY__FLAG_OPTION("amsgrad", "1: divide by the largest measure so far")

static const struct tally__option adam_list[N_OPTIONS] = {
    FIRST_OPTIONS,
    [DECAY] = TALLY__DECAY_OPTION,
    AMSGRAD_OPTION,
};

const struct tally__optimizer_kind tally__optimizer_kind_adam = {
    .row.name = "adam",
    .row.help =
        "steps of similar size for all parameters: two numbers per element, three with amsgrad",
    .row.n_options = N_OPTIONS,
    .row.options = adam_list,
    .states = (1u << TALLY__ADAM_M) | (1u << TALLY__ADAM_V),
    .more_states = more_states,
    .step = step_adam,
};

static const struct tally__option adamw_list[N_OPTIONS] = {
    FIRST_OPTIONS,
    [DECAY] = TALLY__POSITIVE_OPTION("weight_decay", "0.01",
                                     "parameters shrink by this times the learning rate"),
    AMSGRAD_OPTION,
};

const struct tally__optimizer_kind tally__optimizer_kind_adamw = {
    .row.name = "adamw",
    .row.help = "adam with weight decay apart from the gradient: the usual one for transformers",
    .row.n_options = N_OPTIONS,
    .row.options = adamw_list,
    .states = (1u << TALLY__ADAM_M) | (1u << TALLY__ADAM_V),
    .more_states = more_states,
    .step = step_adamw,
};

static const struct tally__option adamax_list[AMSGRAD] = {
    FIRST_OPTIONS,
    [DECAY] = TALLY__DECAY_OPTION,
};

const struct tally__optimizer_kind tally__optimizer_kind_adamax = {
    .row.name = "adamax",
    .row.help = "adam with the largest recent gradient as its measure: two numbers per element",
    .row.n_options = AMSGRAD,
    .row.options = adamax_list,
    .states = (1u << TALLY__ADAMAX_M) | (1u << TALLY__ADAMAX_U),
    .step = step_adamax,
};
