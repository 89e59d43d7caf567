/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lateness of ranks: the rank that sleeps in its backward pass comes last, the others wait for it
 * while it sleeps, and the cause is that it announces late; with one lane, with two and
 * without lane threads. Every rank knows this of every rank. Wrong arguments are refused.
 */
#include <string.h>
#include <time.h>

#include "support/ddp_model.h"

#define N 4
#define N_STEPS 6
#define N_WARM 2
#define SLEEP_MS 60
#define MAX_SLEEP_MS 2000

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {10}},
    {"b", TALLY_F32, 0, 2, {300, 51}},
    {"c", TALLY_F32, 0, 1, {90001}},
    {"d", TALLY_F32, 0, 1, {4000}},
};

static void sleep_for(int ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

    (void)nanosleep(&time, NULL);
}

static int check_refusals(tally_group *group, tally_ddp *ddp)
{
    tally_rank_stats stats = {.size = sizeof stats};
    tally_rank_stats unsized = {0};

    CHECK_STATUS(group, tally_ddp_get_rank_stats(NULL, 0, &stats), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_rank_stats(ddp, 0, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_rank_stats(ddp, 0, &unsized), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_rank_stats(ddp, -1, &stats), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_get_rank_stats(ddp, tally_group_size(group), &stats), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "there is no rank ");
    CHECK_OK(group, tally_ddp_get_rank_stats(ddp, 0, &stats));
    CHECK(group, stats.n_rounds == 0 && stats.n_last == 0 && stats.cause == TALLY_LATE_NOT);
    return 0;
}

static int check_late(tally_group *group, const tally_rank_stats *stats)
{
    double sum = stats->computes_s + stats->lane_s + stats->link_s;

    CHECK(group, stats->n_last > 0 && stats->n_last <= stats->n_rounds);
    CHECK(group, stats->computes_s > SLEEP_MS / 2e3 && stats->link_s == 0);
    CHECK(group, stats->waited_s > sum - 1e-6 && stats->waited_s < sum + 1e-6);
    CHECK(group, stats->step_waited_s <= stats->waited_s);
    CHECK(group, (stats->n_late_steps == 0) == (stats->cause == TALLY_LATE_NOT));
    return 0;
}

static int take_steps(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, int late,
                      int sleep_ms)
{
    int rank = tally_group_rank(group);

    for (unsigned step = 0; step < N_STEPS; step++) {
        for (int i = N; i-- > 0;) {
            if (i == 1 && step >= N_WARM && rank == late) {
                sleep_for(sleep_ms);
            }
            ddp_fill_grad(model, ddp, (size_t)i, step, rank);
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, ddp_wrong_means(model, ddp, step, tally_group_size(group)) == 0);
    }
    return 0;
}

/* Takes steps until all ranks have seen the others wait for half of SLEEP_MS. On a machine that has
 * much else to do, a rank may arrive later than the one that sleeps; then the sleep gets longer. */
static int take_late_steps(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                           int late)
{
    double seen_s = 0;

    for (int sleep_ms = SLEEP_MS; seen_s <= SLEEP_MS / 2e3 && sleep_ms < MAX_SLEEP_MS;
         sleep_ms *= 3) {
        tally_rank_stats stats = {.size = sizeof stats};
        tally_future *future;

        CHECK_OK(group, take_steps(group, ddp, model, late, sleep_ms));
        CHECK_OK(group, tally_ddp_get_rank_stats(ddp, late, &stats));
        seen_s = stats.computes_s;
        CHECK_OK(group, tally_all_reduce(group, &seen_s, 1, TALLY_F64, TALLY_MIN, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    return 0;
}

static int late_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp = NULL;
    int world = tally_group_size(group);
    int late = world / 2;

    (void)user;
    CHECK(group, ddp_model_make(&model, specs, N, true) == 0);
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 1;
    CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
    CHECK_OK(group, check_refusals(group, ddp));
    if (world > 1) {
        CHECK_OK(group, take_late_steps(group, ddp, &model, late));
    } else {
        CHECK_OK(group, take_steps(group, ddp, &model, late, SLEEP_MS));
    }
    for (int r = 0; r < world; r++) {
        tally_rank_stats stats = {.size = sizeof stats};

        CHECK_OK(group, tally_ddp_get_rank_stats(ddp, r, &stats));
        CHECK(group, world > 1 || (stats.n_last == 0 && stats.waited_s == 0));
        CHECK(group, stats.n_rounds >= N_STEPS * N || world == 1);
        CHECK(group, stats.clock_known);
        if (r == late && world > 1) {
            CHECK_OK(group, check_late(group, &stats));
        }
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int wrong = 0;

    wrong += ddp_run_world("one", late_body, NULL, 1, 1);
    for (int lanes = 0; lanes <= 2; lanes++) {
        wrong += ddp_run_world("late", late_body, NULL, lanes, 2);
        wrong += ddp_run_world("late", late_body, NULL, lanes, 3);
    }
    return wrong + ddp_run_world("late", late_body, NULL, 1, 7) > 0;
}
