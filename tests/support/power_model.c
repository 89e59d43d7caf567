/* SPDX-License-Identifier: Apache-2.0 */
/* The model of power_reference.h. Keeps no state: every rank has its own model. */
#include "support/power_reference.h"

const struct ddp_spec power_specs[POWER_N_PARAMS] = {
    {"scale", TALLY_F32, 0, 0, {0}},         {"w1", TALLY_F32, 0, 2, {24, 18}},
    {"b1", TALLY_F32, 0, 1, {24}},           {"nothing", TALLY_F32, 0, 2, {0, 3}},
    {"conv", TALLY_F32, 0, 4, {8, 3, 3, 3}}, {"row", TALLY_F32, 0, 2, {1, 50}},
    {"column", TALLY_F32, 0, 2, {50, 1}},    {"norm", TALLY_F64, 0, 1, {5}},
    {"w2", TALLY_F32, 0, 2, {30, 24}},       {"b2", TALLY_F32, 0, 1, {30}},
    {"w3", TALLY_F32, 0, 2, {12, 30}},       {"b3", TALLY_F32, 0, 1, {12}},
};

double power_value(unsigned step, int rank, size_t i, size_t e)
{
    double value = ddp_value(TALLY_F64, 1, 0, i, e) + 0.4 * ddp_value(TALLY_F64, 2, rank, i, e) +
                   0.2 * ddp_value(TALLY_F64, step + 3, rank, i, e);

    return (double)(float)value;
}

int power_run_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                   power_value_fn *value, unsigned step)
{
    int rank = tally_group_rank(group);

    for (size_t i = model->n; i-- > 0;) {
        float *grad = tally_ddp_grad(ddp, (int)i);

        if (model->spec[i].dtype != TALLY_F32) {
            ddp_fill_grad(model, ddp, i, step, rank);
        }
        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            grad[e] = (float)value(step, rank, i, e);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

int power_create(tally_group *group, const struct ddp_model *model, size_t cap, const char *hook,
                 tally_ddp **ddp)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = cap;
    config.hook = hook;
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}
