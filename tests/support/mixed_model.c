/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the tests of mixed precision. Keeps no state. */
#include "support/mixed_model.h"

#include <stdint.h>
#include <string.h>

#include "support/oracle.h"

const struct mixed_case mixed_cases[MIXED_N_CASES] = {
    {TALLY_BF16, TALLY_F32, false}, {TALLY_BF16, TALLY_BF16, false}, {TALLY_F16, TALLY_BF16, false},
    {TALLY_F16, TALLY_F16, false},  {TALLY_BF16, TALLY_BF16, true},  {TALLY_F16, TALLY_F32, true},
    {TALLY_BF16, TALLY_F16, true},  {TALLY_F16, TALLY_F16, true},
};

const struct ddp_spec mixed_specs[MIXED_N_PARAMS] = {
    {"scale", TALLY_F32, 0, 0, {0}},
    {"weight", TALLY_F32, 0, 2, {7, 5}},
    {"nothing", TALLY_F32, 0, 2, {0, 3}},
    {"embedding", TALLY_F32, 0, 2, {131, 65}},
    {"frozen", TALLY_F32, TALLY_PARAM_FROZEN, 1, {11}},
    {"ignored", TALLY_F64, TALLY_PARAM_IGNORED, 1, {4}},
};

int mixed_make(struct ddp_model *model, const struct mixed_case *of, int rank,
               tally_ddp_config *config)
{
    if (ddp_model_make(model, mixed_specs, MIXED_N_PARAMS, of->copies)) {
        return RANKS_FAILED;
    }
    for (size_t i = 0; i < model->n; i++) {
        ddp_fill_data(model, i, 77, rank);
    }
    tally_ddp_config_init(config, sizeof *config);
    config->param_dtype = of->param_dtype;
    config->reduce_dtype = of->reduce_dtype;
    return 0;
}

double mixed_get(int dtype, const void *array, size_t e)
{
    if (dtype == TALLY_F32) {
        return (double)((const float *)array)[e];
    }
    return (double)(dtype == TALLY_F16 ? oracle_from_half
                                       : oracle_from_bfloat)(((const uint16_t *)array)[e]);
}

void mixed_put(int dtype, void *array, size_t e, double value)
{
    if (dtype == TALLY_F32) {
        ((float *)array)[e] = (float)value;
    } else {
        ((uint16_t *)array)[e] =
            (dtype == TALLY_F16 ? oracle_to_half : oracle_to_bfloat)((float)value);
    }
}

static double rounded(int dtype, double value)
{
    float element;

    mixed_put(dtype, &element, 0, value);
    return mixed_get(dtype, &element, 0);
}

void mixed_fill(const struct ddp_model *model, const tally_ddp *ddp, const struct mixed_case *of,
                size_t i, unsigned seed, int rank)
{
    for (size_t e = 0; e < model->count[i]; e++) {
        mixed_put(of->param_dtype, tally_ddp_grad(ddp, (int)i), e,
                  ddp_value(of->param_dtype, seed, rank, i, e));
    }
}

static float travelling(const struct mixed_case *of, size_t i, size_t e, struct ddp_mean mean,
                        int rank)
{
    if (!(mean.ranks >> rank & 1)) {
        return 0;
    }
    return (float)rounded(of->reduce_dtype, ddp_value(of->param_dtype, mean.seed, rank, i, e));
}

float mixed_mean(const struct mixed_case *of, size_t i, size_t e, struct ddp_mean mean)
{
    float sum = travelling(of, i, e, mean, 0);

    for (int r = 1; r < mean.world; r++) {
        sum += travelling(of, i, e, mean, r);
    }
    return (float)rounded(of->reduce_dtype, (double)(sum / (float)mean.divisor));
}

size_t mixed_wrong(const struct ddp_model *model, const tally_ddp *ddp, const struct mixed_case *of,
                   size_t i, struct ddp_mean mean)
{
    const float *means = tally_ddp_mean(ddp, (int)i);
    size_t n_wrong = 0;

    for (size_t e = 0; e < model->count[i]; e++) {
        float expected = mixed_mean(of, i, e, mean);
        uint32_t bits[2];

        memcpy(&bits[0], &means[e], sizeof bits[0]);
        memcpy(&bits[1], &expected, sizeof bits[1]);
        n_wrong += bits[0] != bits[1];
    }
    return n_wrong;
}

size_t mixed_wrong_lows(const struct ddp_model *model, const tally_ddp *ddp, int param_dtype)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < model->n; i++) {
        const void *low = tally_ddp_low(ddp, (int)i);

        if (model->spec[i].flags & TALLY_PARAM_IGNORED) {
            n_wrong += low != NULL;
            continue;
        }
        for (size_t e = 0; e < model->count[i]; e++) {
            double master = (double)((const float *)model->params[i].data)[e];

            n_wrong += !low || mixed_get(param_dtype, low, e) != rounded(param_dtype, master);
        }
    }
    return n_wrong;
}

int mixed_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
               const struct mixed_case *of, unsigned seed)
{
    for (size_t i = model->n; i-- > 0;) {
        if (ddp_has_gradient(model, i) && !(model->spec[i].flags & TALLY_PARAM_DELAYED)) {
            mixed_fill(model, ddp, of, i, seed, tally_group_rank(group));
            CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

int mixed_right_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                     const struct mixed_case *of, unsigned seed)
{
    int world = tally_group_size(group);

    CHECK_OK(group, mixed_step(group, ddp, model, of, seed));
    for (size_t i = 0; i < model->n; i++) {
        CHECK(group, !ddp_has_gradient(model, i) || (model->spec[i].flags & TALLY_PARAM_DELAYED) ||
                         mixed_wrong(model, ddp, of, i,
                                     ((struct ddp_mean){seed, world, ~0u, world})) == 0);
    }
    return 0;
}
