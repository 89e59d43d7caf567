/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the hook postlocal: no residual is lost when exchanges go from all ranks to groups
 * of them; a saved state continues to the bit in the middle of either; ranks that run out of input;
 * and a step that fails on one rank fails on all, after which the next works.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddp/ddp.h"
#include "support/hook_rules.h"
#include "support/hook_states.h"
#include "support/oracle.h"

static int sum_job(tally_lane *lane, void *user)
{
    return tally_lane_all_reduce(lane, user, 1, TALLY_F64, TALLY_SUM);
}

/* ---- nothing is lost ---- */

#define N_ELEMENTS ((size_t)23 * 70)
#define START 5
#define N_STEPS 12

/*
 * The part of element e that the means lack so far, over all ranks: this rank's residual, and the
 * residual of the means that it owned, which all ranks of an exchange lack.
 */
static double lacks(const tally_ddp *ddp, size_t e)
{
    const struct tally__residual *residual = &ddp->residuals->params[0];
    double sum = residual->sent ? residual->sent[e] : 0;

    for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
        if (e >= owned->first && e < owned->first + owned->n) {
            sum += (double)owned->values[e - owned->first] * owned->n_ranks;
        }
    }
    return sum;
}

/* On average over all ranks, the means received and the residuals left add up to the gradients. The
 * hook is there from the beginning, or comes late, and then exchanges among few ranks from its
 * first step on. */
static int lost_run(tally_group *group, int group_size, bool is_late)
{
    const struct ddp_spec matrix = {"matrix", TALLY_F32, 0, 2, {23, 70}};
    const size_t shown[] = {0, 7, 500, 600, 1100, N_ELEMENTS - 1};
    double balance[sizeof shown / sizeof shown[0]] = {0};
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp *ddp;
    char text[64];

    (void)snprintf(text, sizeof text, "postlocal:start=%d,group=%d(int8)", is_late ? 1 : START,
                   group_size);
    CHECK(group, ddp_model_make(&model, &matrix, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, is_late ? "int8" : text));
    for (unsigned s = 0; s < N_STEPS; s++) {
        const float *mean = tally_ddp_grad(ddp, 0);

        if (is_late && s == START) {
            CHECK_OK(group, tally_ddp_set_hook(ddp, text));
        }
        CHECK_OK(group, ddp_step(group, ddp, &model, s));
        for (size_t k = 0; k < sizeof shown / sizeof shown[0]; k++) {
            double rest;

            for (int r = 0; r < world && tally_group_rank(group) == 0; r++) {
                balance[k] -= ddp_value(TALLY_F32, s, r, 0, shown[k]);
            }
            balance[k] += mean[shown[k]];
            rest = balance[k] + lacks(ddp, shown[k]);
            CHECK_OK(group, ranks_job(group, 0, sum_job, &rest));
            CHECK(group, fabs(rest) < 2e-5);
        }
    }
    CHECK(group, group_size > 0 || !ddp->residuals->params[0].sent);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int lost_body(tally_group *group, void *user)
{
    (void)user;
    CHECK_OK(group, lost_run(group, 2, false));
    CHECK_OK(group, lost_run(group, 2, true));
    CHECK_OK(group, lost_run(group, 0, false));
    return 0;
}

/* ---- saved ---- */

static const char *const hooks[] = {
    "postlocal:start=2,group=2(int8)", "postlocal:start=4,group=2(int8)",
    "postlocal:start=2,group=2(powersgd:rank=2,start=1)", "postlocal:start=2(int8)",
    "bf16(postlocal:start=5,group=2(powersgd:rank=1,start=1))"};

/* Three steps, saved, and four more; and a second time from the saved state. */
static int saved_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof hooks / sizeof hooks[0]; k++) {
        const struct state_setup setup = {hooks[k], k % 2 == 1, 0};
        struct hook_states states;
        struct state_run run;
        uint64_t whole;
        uint64_t again;

        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, state_steps(group, &run, 0, 3, &whole));
        CHECK_OK(group, hook_states_take(group, run.ddp, &states));
        CHECK_OK(group, state_steps(group, &run, 3, 4, &whole));
        CHECK_OK(group, state_run_end(group, &run));
        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, hook_states_load(run.ddp, &states));
        CHECK_OK(group, state_steps(group, &run, 3, 4, &again));
        CHECK(group, again == whole);
        CHECK_OK(group, state_run_end(group, &run));
        hook_states_free(&states);
    }
    return 0;
}

/* ---- ranks without input ---- */

#define SPEC                  \
    {                         \
        "p", TALLY_F32, 0, 2, \
        {                     \
            9, 7              \
        }                     \
    }

/* Rank 1 of four has input for two steps, the others for four; from step 1 on pairs exchange. */
static int join_body(tally_group *group, void *user)
{
    const struct ddp_spec spec = SPEC;
    int rank = tally_group_rank(group);
    int n_steps = rank == 1 ? 2 : 4;
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = "postlocal:start=1,group=2";
    config.join = 1;
    config.join_divides_by_active = *(const int *)user;
    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, &config, &ddp));
    for (int s = 0; s < n_steps; s++) {
        bool alone = rank == 0 && s >= 2;
        unsigned ranks = s == 0 ? 15 : rank / 2 ? 12 : alone ? 1 : 3;
        double divisor = s == 0 ? 4 : alone && *(const int *)user ? 1 : 2;

        CHECK_OK(group, ddp_step(group, ddp, &model, (unsigned)s));
        CHECK(group,
              ddp_wrong(&model, ddp, 0, (struct ddp_mean){(unsigned)s, 4, ranks, divisor}) == 0);
    }
    CHECK_OK(group, tally_ddp_join(ddp));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- failures ---- */

/* An application hook that fails on one rank in one step, while others are in its exchange. */
static int failing_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    bool fails = *(const int *)state != 0;

    return fails && bucket->step == 1
               ? tally_job_fail(lane, TALLY_NUMERIC, "the dog ate it")
               : tally_lane_all_reduce(lane, bucket->data, bucket->n, TALLY_F32, TALLY_SUM);
}

static int failing_body(tally_group *group, void *user)
{
    const struct ddp_spec spec = SPEC;
    int rank = tally_group_rank(group);
    int fails = rank == 2;
    const tally_hook_table table = {.size = sizeof table, .name = "own", .reduce = failing_reduce};
    struct ddp_model model;
    tally_hook *own;
    tally_hook *hook;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, tally_hook_create(&table, &fails, &own));
    CHECK_OK(group, tally_hook_wrap("postlocal:start=1,group=2", own, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    CHECK_OK(group, ddp_step(group, ddp, &model, 0));
    /* Announced again and again: steps that fail do not count. */
    for (int k = 0; k < 3; k++) {
        ddp_fill_grads(&model, ddp, 1, rank);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_NUMERIC);
        CHECK_TEXT(group, tally_last_error(), "among ranks 2..3");
        CHECK_TEXT(group, tally_last_error(), "the dog ate it");
    }
    fails = 0;
    CHECK_OK(group, ddp_step(group, ddp, &model, 1));
    CHECK(group, ddp_wrong(&model, ddp, 0, (struct ddp_mean){1, 4, 3u << (rank / 2 * 2), 1}) == 0);
    CHECK_OK(group, tally_ddp_free(ddp));
    tally_hook_free(hook);
    tally_hook_free(own);
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    n_failures += hook_run("lost", lost_body, NULL, 4);
    n_failures += hook_run("saved", saved_body, NULL, 2);
    n_failures += hook_run("saved", saved_body, NULL, 4);
    for (int by_active = 0; by_active < 2; by_active++) {
        n_failures += hook_run("join", join_body, &by_active, 4);
    }
    n_failures += hook_run("failing", failing_body, NULL, 4);
    return n_failures != 0;
}
