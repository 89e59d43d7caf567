/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision without an optimizer: forward sees the rounded masters, the means are fp32, the
 * same on all ranks and those of a literal reference, from the first step on and in every one, for
 * views and copies and whatever gradients travel as; also through another hook, for which a ddp
 * whose parameters are of that dtype is the reference.
 */
#include <string.h>

#include "support/mixed_model.h"

#define N_STEPS 4

/* The test updates the masters itself, and the low copies follow. */
static int update(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, int dtype)
{
    for (size_t i = 0; i < model->n; i++) {
        const float *mean = tally_ddp_mean(ddp, (int)i);
        float *master = model->params[i].data;

        CHECK(group, (mean != NULL) == ddp_has_gradient(model, i));
        for (size_t e = 0; mean && e < model->count[i]; e++) {
            master[e] -= 0.25f * mean[e];
        }
    }
    CHECK_OK(group, tally_ddp_refresh_low(ddp));
    CHECK(group, mixed_wrong_lows(model, ddp, dtype) == 0);
    return 0;
}

static int means_body(tally_group *group, void *user)
{
    const struct mixed_case *of = user;
    uint64_t masters = 0;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    CHECK(group, mixed_make(&model, of, tally_group_rank(group), &config) == 0);
    config.bucket_cap_bytes = 100;
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    /* Of rank 0's masters. */
    CHECK(group, ddp_not_of(&model, 1, model.params[1].data, 77, 0) == 0);
    CHECK(group, mixed_wrong_lows(&model, ddp, of->param_dtype) == 0);
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, mixed_right_step(group, ddp, &model, of, s));
        CHECK_OK(group, update(group, ddp, &model, of->param_dtype));
    }
    for (size_t i = 0; i < 5; i++) {
        masters = ranks_hash(masters, model.params[i].data, model.count[i] * sizeof(float));
    }
    ranks_note(group, 0, masters);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- other hooks ---- */

struct hooked {
    struct mixed_case of;
    const char *hook;
};

/* The gradients of the model in mixed precision, as plain ones of what they travel as. */
static void take_gradients(const struct ddp_model *model, const tally_ddp *ddp, tally_ddp *plain,
                           const struct mixed_case *of)
{
    for (size_t i = 0; i < model->n; i++) {
        for (size_t e = 0; ddp_has_gradient(model, i) && e < model->count[i]; e++) {
            mixed_put(of->reduce_dtype, tally_ddp_grad(plain, (int)i), e,
                      mixed_get(of->param_dtype, tally_ddp_grad(ddp, (int)i), e));
        }
    }
}

static int announce(tally_group *group, const struct ddp_model *model, tally_ddp *ddp)
{
    for (size_t i = model->n; i-- > 0;) {
        CHECK_OK(group, ddp_has_gradient(model, i) ? tally_ddp_grad_ready(ddp, (int)i) : TALLY_OK);
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

static size_t n_differing(const struct ddp_model *model, const tally_ddp *ddp,
                          const tally_ddp *plain, int dtype)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < model->n; i++) {
        const float *mean = tally_ddp_mean(ddp, (int)i);

        for (size_t e = 0; mean && e < model->count[i]; e++) {
            n_wrong += (double)mean[e] != mixed_get(dtype, tally_ddp_grad(plain, (int)i), e);
        }
    }
    return n_wrong;
}

static int hooks_body(tally_group *group, void *user)
{
    const struct hooked *hooked = user;
    const struct mixed_case *of = &hooked->of;
    struct ddp_model model;
    struct ddp_model plain_model;
    struct ddp_spec specs[MIXED_N_PARAMS];
    tally_ddp_config config;
    tally_ddp *ddp;
    tally_ddp *plain;

    memcpy(specs, mixed_specs, sizeof specs);
    for (size_t i = 0; i < MIXED_N_PARAMS; i++) {
        specs[i].dtype = of->reduce_dtype;
    }
    CHECK(group, mixed_make(&model, of, tally_group_rank(group), &config) == 0);
    CHECK(group, ddp_model_make(&plain_model, specs, MIXED_N_PARAMS, of->copies) == 0);
    config.hook = hooked->hook;
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    config.param_dtype = 0;
    config.reduce_dtype = 0;
    CHECK_OK(group, tally_ddp_create(group, plain_model.params, plain_model.n, &config, &plain));
    for (unsigned s = 0; s < N_STEPS; s++) {
        for (size_t i = 0; i < model.n; i++) {
            if (ddp_has_gradient(&model, i)) {
                mixed_fill(&model, ddp, of, i, s, tally_group_rank(group));
            }
        }
        take_gradients(&model, ddp, plain, of);
        CHECK_OK(group, announce(group, &model, ddp));
        CHECK_OK(group, announce(group, &plain_model, plain));
        CHECK(group, n_differing(&model, ddp, plain, of->reduce_dtype) == 0);
    }
    CHECK_OK(group, tally_ddp_free(plain));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&plain_model);
    ddp_model_free(&model);
    return 0;
}

static int run_hooks(void)
{
    static const char *const hooks[] = {"bf16", "int8", "powersgd:rank=1,start=2",
                                        "bf16(powersgd:rank=2,start=2)", "quantize_per_channel"};
    static const struct mixed_case cases[] = {{TALLY_BF16, TALLY_F32, false},
                                              {TALLY_F16, TALLY_F16, false}};
    int n_failures = 0;

    for (size_t h = 0; h < sizeof hooks / sizeof hooks[0]; h++) {
        for (size_t c = 0; c < 2; c++) {
            struct hooked hooked = {cases[c], hooks[h]};
            const struct ranks ranks = {.kind = h % 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                        .world = 2 + (int)(h + c) % 2,
                                        .lanes = 1 + (int)c};

            n_failures += ranks_run_named(hooks[h], &ranks, hooks_body, &hooked);
        }
    }
    return n_failures;
}

int main(void)
{
    int n_failures = 0;

    for (size_t c = 0; c < MIXED_N_CASES; c++) {
        struct mixed_case of = mixed_cases[c];

        n_failures += ddp_run("means", means_body, &of, c % 2 ? 2 : 1);
    }
    return n_failures + run_hooks() != 0;
}
