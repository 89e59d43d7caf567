/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rank that a failure names: the one at fault, by the launcher's number, also from groups of
 * some of the ranks; and no rank if all ranks report the same.
 */
#include <math.h>
#include <string.h>

#include "support/ddp_model.h"

#define WORLD 4

static const struct ddp_spec specs[] = {{"wte", TALLY_F32, 0, 2, {70, 90}},
                                        {"bias", TALLY_F32, 0, 1, {3}}};
#define N_PARAMS (sizeof specs / sizeof specs[0])

/* A step in which one rank's gradient of 'bias' is not finite. */
static int bad_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, int culprit)
{
    ddp_fill_grads(model, ddp, 1, tally_group_rank(group));
    if (tally_group_rank(group) == culprit) {
        ((float *)tally_ddp_grad(ddp, 1))[1] = NAN;
    }
    for (int i = 0; i < (int)N_PARAMS; i++) {
        CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
    }
    CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_NUMERIC);
    return 0;
}

/* If a hook refuses, all ranks name the rank at fault; within hosts, the ranks of that host do. */
static int hook_body(tally_group *group, void *user)
{
    static const struct {
        const char *hook;
        int culprit;
        const char *text;
    } cases[] = {
        {"quantize_per_tensor", 2, "rank 2: "},
        {"hosts:size=2(quantize_per_tensor)", 2,
         "rank 2, or another rank of its host: the gradient of"},
        {"hosts:size=2(quantize_per_tensor)", 3,
         "rank 2, or another rank of its host: the gradient of"},
        {"postlocal:start=0,group=2(quantize_per_tensor)", 3, "among ranks 2..3: rank 3: "}};

    (void)user;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.hook = cases[i].hook;
        CHECK(group, ddp_model_make(&model, specs, N_PARAMS, false) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, &config, &ddp));
        CHECK_OK(group, bad_step(group, ddp, &model, cases[i].culprit));
        CHECK_TEXT(group, tally_last_error(), cases[i].text);
        CHECK(group, strncmp(tally_last_error(), cases[i].text, strlen(cases[i].text)) == 0);
        CHECK_TEXT(group, tally_last_error(), "'bias'");
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* Every rank finds the same in the norm of all: it names no rank. */
static int clipping_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_optimizer_config config;
    tally_optimizer *optimizer;
    tally_ddp *ddp;

    (void)user;
    tally_optimizer_config_init(&config, sizeof config);
    config.max_norm = 1;
    config.overlap = 1;
    config.shard = 1;
    CHECK(group, ddp_model_make(&model, specs, N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, NULL, &ddp));
    CHECK_OK(group, tally_optimizer_create(ddp, "sgd:lr=0.1", &config, &optimizer));
    CHECK_OK(group, bad_step(group, ddp, &model, 2));
    CHECK_TEXT(group, tally_last_error(), "'bias'");
    CHECK(group, strstr(tally_last_error(), "rank ") == NULL);
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int fail_on_three(tally_lane *lane, void *user)
{
    const tally_group *group = user;

    return tally_group_rank(group) == 3 ? tally_job_fail(lane, TALLY_NUMERIC, "on purpose")
                                        : TALLY_OK;
}

/* Ranks 1 and 3 are ranks 0 and 1 of a sub-group. */
static int sub_group_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    tally_future *future;
    tally_group *half;
    float data[2] = {0};

    (void)user;
    CHECK_OK(group, tally_group_split(group, rank % 2, rank, &half));
    if (rank % 2) {
        CHECK_STATUS(group, ranks_job(half, 0, fail_on_three, group), TALLY_NUMERIC);
        CHECK(group, strcmp(tally_last_error(), "rank 3 (1 of this sub-group): on purpose") == 0);
        CHECK_OK(group, rank == 1 ? tally_barrier(half, &future)
                                  : tally_all_reduce(half, data, 2, TALLY_F32, TALLY_SUM, &future));
        CHECK_STATUS(group, ranks_finish(future), TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(),
                   "rank 1 (0 of this sub-group) is in barrier, "
                   "rank 3 (1 of this sub-group) is in all-reduce of 2 f32 (sum)");
    }
    CHECK_OK(group, tally_group_close(half));
    return 0;
}

static int run(const char *name, ranks_body *body, bool may_leak)
{
    const struct ranks ranks = {.lanes = 1, .timeout_s = 60, .may_leak = may_leak};

    return ranks_run_worlds(name, &ranks, (const int[]){WORLD, 0}, body, NULL);
}

int main(void)
{
    return run("hook", hook_body, true) + run("clipping", clipping_body, false) +
               run("sub-group", sub_group_body, true) !=
           0;
}
