/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps in mixed precision: gradients that are absent, on some ranks or on all; accumulation;
 * delayed parameters; ranks that run out of input; clipping, zeroing, statistics.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/mixed_model.h"

#define WEIGHT 1
#define EMBEDDING 3

/* ---- absent gradients ---- */

/* The ranks that have a gradient for parameter i in step s. */
static unsigned who_has(size_t i, unsigned s)
{
    static const unsigned ranks[4] = {~0u, 1u, ~1u, 0u};

    return ranks[(i + s) % 4];
}

static int absent_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                       const struct mixed_case *of, unsigned s)
{
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);

    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i)) {
            mixed_fill(model, ddp, of, i, s, rank);
        }
    }
    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i) && who_has(i, s) >> rank & 1) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    for (size_t i = 0; i < model->n; i++) {
        unsigned having = who_has(i, s) & ((1u << world) - 1);
        const struct ddp_mean mean = {s, world, having, world};
        int unused = 7;

        if (!ddp_has_gradient(model, i)) {
            continue;
        }
        CHECK_OK(group, tally_ddp_is_unused(ddp, (int)i, &unused));
        CHECK(group, unused == (having == 0));
        CHECK(group, unused || mixed_wrong(model, ddp, of, i, mean) == 0);
        /* A gradient that no rank announced is unchanged. */
        for (size_t e = 0; unused && e < model->count[i]; e++) {
            CHECK(group, mixed_get(of->param_dtype, tally_ddp_grad(ddp, (int)i), e) ==
                             ddp_value(of->param_dtype, s, rank, i, e));
        }
    }
    return 0;
}

static int absent_body(tally_group *group, void *user)
{
    const struct mixed_case *of = user;

    for (int skips = 0; skips < 2; skips++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        CHECK(group, mixed_make(&model, of, tally_group_rank(group), &config) == 0);
        config.find_unused = 1;
        config.skip_unused = skips;
        config.bucket_cap_bytes = 1;
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        for (unsigned s = 0; s < 5; s++) {
            CHECK_OK(group, absent_step(group, ddp, &model, of, s));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- accumulation, clipping, zeroing, figures ---- */

/* Micro-steps add in the gradient's own precision; only the last is announced. */
static int accumulate(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                      const struct mixed_case *of, unsigned n)
{
    int rank = tally_group_rank(group);

    CHECK_OK(group, tally_ddp_zero_grad(ddp));
    for (unsigned m = 0; m < n; m++) {
        for (size_t i = model->n; i-- > 0;) {
            void *grad = tally_ddp_grad(ddp, (int)i);

            for (size_t e = 0; grad && e < model->count[i]; e++) {
                mixed_put(of->param_dtype, grad, e,
                          mixed_get(of->param_dtype, grad, e) +
                              ddp_value(of->param_dtype, m, rank, i, e));
            }
            CHECK_OK(group, grad && m + 1 == n ? tally_ddp_grad_ready(ddp, (int)i) : TALLY_OK);
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

/* Its mean: of sums rounded at each micro-step. */
static float accumulated_mean(const struct mixed_case *of, size_t e, unsigned n, int world)
{
    float sum = 0;
    float wire;

    for (int r = 0; r < world; r++) {
        float own = 0;

        for (unsigned m = 0; m < n; m++) {
            mixed_put(of->param_dtype, &wire, 0,
                      (double)own + ddp_value(of->param_dtype, m, r, WEIGHT, e));
            own = (float)mixed_get(of->param_dtype, &wire, 0);
        }
        mixed_put(of->reduce_dtype, &wire, 0, (double)own);
        sum += (float)mixed_get(of->reduce_dtype, &wire, 0);
    }
    mixed_put(of->reduce_dtype, &wire, 0, (double)(sum / (float)world));
    return (float)mixed_get(of->reduce_dtype, &wire, 0);
}

static double joint_norm(const struct ddp_model *model, const tally_ddp *ddp)
{
    double sum = 0;

    for (size_t i = 0; i < model->n; i++) {
        const float *mean = tally_ddp_mean(ddp, (int)i);

        for (size_t e = 0; mean && e < model->count[i]; e++) {
            sum += (double)mean[e] * (double)mean[e];
        }
    }
    return sqrt(sum);
}

static int check_figures(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                         const struct mixed_case *of)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_stats bucket = {.size = sizeof bucket};
    size_t n = 0;
    size_t bytes = 0;

    for (size_t i = 0; i < model->n; i++) {
        n += ddp_has_gradient(model, i) ? model->count[i] : 0;
    }
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.dtypes == 1u << of->param_dtype && stats.gradient_bytes == 2 * n);
    CHECK(group, stats.views == (!of->copies && of->param_dtype == of->reduce_dtype));
    for (size_t b = 0; b < stats.n_buckets; b++) {
        CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, b, &bucket));
        bytes += bucket.bytes;
    }
    CHECK(group, bytes == n * tally_dtype_bytes(of->reduce_dtype));
    return 0;
}

static int helpers_body(tally_group *group, void *user)
{
    const struct mixed_case *of = user;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;
    double norm = 0;

    CHECK(group, mixed_make(&model, of, tally_group_rank(group), &config) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    for (unsigned n = 1; n <= 4; n += 3) {
        double before;

        CHECK_OK(group, accumulate(group, ddp, &model, of, n));
        for (size_t e = 0; e < model.count[WEIGHT]; e++) {
            CHECK(group, ((const float *)tally_ddp_mean(ddp, WEIGHT))[e] ==
                             accumulated_mean(of, e, n, tally_group_size(group)));
        }
        before = joint_norm(&model, ddp);
        CHECK_OK(group, tally_ddp_clip_grad_norm(ddp, 0.5, &norm));
        CHECK(group, fabs(norm - before) < 1e-6 * before);
        CHECK(group, fabs(joint_norm(&model, ddp) - 0.5) < 1e-6);
        CHECK_OK(group, check_figures(group, ddp, &model, of));
    }
    CHECK_OK(group, tally_ddp_grad_ready(ddp, WEIGHT));
    CHECK_STATUS(group, tally_ddp_refresh_low(ddp), TALLY_STATE);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(group, i == WEIGHT ? TALLY_OK : tally_ddp_grad_ready(ddp, i));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- delayed parameters ---- */

static int delayed_body(tally_group *group, void *user)
{
    const struct mixed_case *of = user;
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    CHECK(group, mixed_make(&model, of, rank, &config) == 0);
    model.spec[EMBEDDING].flags = TALLY_PARAM_DELAYED;
    model.params[EMBEDDING].flags = TALLY_PARAM_DELAYED;
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    mixed_fill(&model, ddp, of, EMBEDDING, 100, rank);
    for (unsigned s = 0; s < 4; s++) {
        if (s == 2) {
            CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
        }
        CHECK_OK(group, mixed_right_step(group, ddp, &model, of, s));
        for (size_t e = 0; s < 2 && e < model.count[EMBEDDING]; e++) {
            CHECK(group, mixed_get(of->param_dtype, tally_ddp_grad(ddp, EMBEDDING), e) ==
                             ddp_value(of->param_dtype, 100, rank, EMBEDDING, e));
        }
        CHECK(group, s < 2 || mixed_wrong(&model, ddp, of, EMBEDDING,
                                          (struct ddp_mean){100, world, ~0u, world}) == 0);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- uneven inputs ---- */

/* Rank r has r + 1 steps; masters are each rank's own until the end. */
static int join_body(tally_group *group, void *user)
{
    const struct mixed_case *of = user;
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    CHECK(group, mixed_make(&model, of, rank, &config) == 0);
    config.join = 1;
    config.join_divides_by_active = of->copies;
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    for (int s = 0; s <= rank; s++) {
        const struct ddp_mean mean = {(unsigned)s, world, ~0u << s, of->copies ? world - s : world};

        CHECK_OK(group, mixed_step(group, ddp, &model, of, (unsigned)s));
        CHECK(group, mixed_wrong(&model, ddp, of, WEIGHT, mean) == 0);
        CHECK(group, mixed_wrong(&model, ddp, of, EMBEDDING, mean) == 0);
        for (size_t i = 0; i < 5; i++) {
            ddp_fill_data(&model, i, 1000 + (unsigned)s, rank);
        }
    }
    CHECK_OK(group, tally_ddp_join(ddp));
    CHECK(group, ddp_not_of(&model, WEIGHT, model.params[WEIGHT].data, 1000 + (unsigned)world - 1,
                            world - 1) == 0);
    CHECK(group, mixed_wrong_lows(&model, ddp, of->param_dtype) == 0);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- runs ---- */

static int run(const char *name, ranks_body *body, size_t first)
{
    int n_failures = 0;

    for (size_t c = first; c < MIXED_N_CASES; c += 3) {
        struct mixed_case of = mixed_cases[c];

        n_failures += ddp_run(name, body, &of, c % 2 ? 2 : 1);
    }
    return n_failures;
}

int main(void)
{
    int n_failures = 0;

    n_failures += run("absent", absent_body, 0);
    n_failures += run("absent", absent_body, 1);
    n_failures += run("helpers", helpers_body, 0);
    n_failures += run("delayed", delayed_body, 1);
    n_failures += run("join", join_body, 1);
    return n_failures != 0;
}
