/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling where a step fails between the look at its gradients and its end: residuals that
 * were kept for it are not put back when a later step is skipped.
 */
#include <math.h>
#include <string.h>

#include "support/opt_model.h"

#define WEIGHT 0
#define LATE 1

static const struct ddp_spec specs[] = {{"weight", TALLY_F32, 0, 1, {13}},
                                        {"late", TALLY_F32, TALLY_PARAM_DELAYED, 1, {7}}};

/* A hook whose residual of LATE counts the times that it has reduced it. */
struct owing {
    bool fails; /* for WEIGHT */
    float found;
};

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct owing *owing = state;

    if (bucket->params[0].index == LATE) {
        float *residual;
        int rc = tally_bucket_residual(bucket, 0, &residual);

        if (rc != TALLY_OK) {
            return rc;
        }
        owing->found = residual[0];
        residual[0] += 1;
    } else if (owing->fails) {
        return tally_job_fail(lane, TALLY_SYSTEM, "the hook fails");
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int step(tally_group *group, tally_ddp *ddp, float value, bool is_late)
{
    for (size_t e = 0; e < specs[WEIGHT].shape[0]; e++) {
        ((float *)tally_ddp_grad(ddp, WEIGHT))[e] = value;
    }
    memset(tally_ddp_grad(ddp, LATE), 0, specs[LATE].shape[0] * sizeof(float));
    CHECK_OK(group, tally_ddp_grad_ready(ddp, WEIGHT));
    CHECK_OK(group, is_late ? tally_ddp_reduce_delayed(ddp) : TALLY_OK);
    return tally_ddp_wait(ddp);
}

static int check_skipped(tally_group *group, tally_optimizer *optimizer, unsigned long long n)
{
    tally_optimizer_stats stats = {.size = sizeof stats};

    CHECK_OK(group, tally_optimizer_get_stats(optimizer, &stats));
    CHECK(group, stats.skipped == n);
    return 0;
}

static int failed_body(tally_group *group, void *user)
{
    const tally_hook_table table = {
        .size = sizeof table, .name = "owing", .feedback = 1, .reduce = reduce};
    struct owing owing = {0};
    struct ddp_model model;
    tally_optimizer_config config;
    tally_optimizer *optimizer;
    tally_hook *hook;
    tally_ddp *ddp;

    (void)user;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.loss_scale = 2;
    CHECK(group, ddp_model_make(&model, specs, 2, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 2, NULL, &ddp));
    CHECK_OK(group, tally_hook_create(&table, &owing, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    tally_hook_free(hook);
    CHECK_OK(group, tally_optimizer_create(ddp, "sgd:lr=0.1", &config, &optimizer));
    CHECK_OK(group, step(group, ddp, 1, true));
    owing.fails = true;
    CHECK_STATUS(group, step(group, ddp, 1, true), TALLY_SYSTEM);
    CHECK(group, owing.found == 1);
    owing.fails = false;
    CHECK_OK(group, step(group, ddp, INFINITY, false));
    CHECK_OK(group, check_skipped(group, optimizer, 1));
    CHECK_OK(group, step(group, ddp, 1, true));
    CHECK(group, owing.found == 2);
    /* Changes of a skipped step are undone. */
    CHECK_OK(group, step(group, ddp, INFINITY, true));
    CHECK(group, owing.found == 3);
    CHECK_OK(group, check_skipped(group, optimizer, 2));
    CHECK_OK(group, step(group, ddp, 1, true));
    CHECK(group, owing.found == 3);
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 3, 0};

    return opt_worlds("failed", failed_body, NULL, 1, worlds) != 0;
}
