/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lateness of the ranks of a reducer: the rank that sleeps before it gives its buckets comes last,
 * the others wait for it while it sleeps, and the cause is that its buckets come late. A step that
 * is given up does not count. Wrong arguments are refused.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/framework_model.h"

#define N 3
#define N_STEPS 6
#define N_WARM 2
#define SLEEP_MS 60
#define MAX_SLEEP_MS 2000

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 2, {30, 20}}, {"b", TALLY_F32, 0, 1, {5}}, {"c", TALLY_F32, 0, 2, {8, 9}}};
static framework_layout layout = {2, 1, -1, 0, -1, -2};

static int check_refusals(tally_group *group, const struct framework *framework)
{
    tally_rank_stats stats = {.size = sizeof stats};
    int world = tally_group_size(group);

    CHECK_STATUS(group, tally_reducer_get_rank_stats(NULL, 0, &stats), TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_get_rank_stats(framework->reducer, 0, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_reducer_get_rank_stats(framework->reducer, world, &stats), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "there is no rank ");
    CHECK_OK(group, tally_reducer_get_rank_stats(framework->reducer, 0, &stats));
    CHECK(group, stats.n_rounds == 0 && stats.n_last == 0 && stats.cause == TALLY_LATE_NOT);
    return 0;
}

/* The first bucket of a step, which the next step gives up. */
static int give_up(tally_group *group, struct framework *framework)
{
    static const int first[] = {2, 1};
    tally_future *future;

    memset(framework->room, 0, sizeof framework->room);
    CHECK_OK(group,
             tally_reducer_reduce(framework->reducer, first, 2, framework->room, 0, 0, &future));
    return ranks_finish(future);
}

static int take_steps(tally_group *group, struct framework *framework, int late, int sleep_ms)
{
    const struct timespec time = {sleep_ms / 1000, sleep_ms % 1000 * 1000000L};

    for (unsigned step = 0; step < N_STEPS; step++) {
        if (step >= N_WARM && tally_group_rank(group) == late) {
            (void)nanosleep(&time, NULL);
        }
        CHECK_OK(group, framework_step(group, framework, layout, step, 0));
        if (step == 0) {
            CHECK_OK(group, give_up(group, framework));
        }
    }
    return 0;
}

/* Takes steps until all ranks have seen the others wait for half of SLEEP_MS. On a machine that has
 * much else to do, a rank may arrive later than the one that sleeps; then the sleep gets longer. */
static int take_late_steps(tally_group *group, struct framework *framework, int late)
{
    double seen_s = 0;

    for (int sleep_ms = SLEEP_MS; seen_s <= SLEEP_MS / 2e3 && sleep_ms < MAX_SLEEP_MS;
         sleep_ms *= 3) {
        tally_rank_stats stats = {.size = sizeof stats};
        tally_future *future;

        CHECK_OK(group, take_steps(group, framework, late, sleep_ms));
        CHECK_OK(group, tally_reducer_get_rank_stats(framework->reducer, late, &stats));
        seen_s = stats.computes_s;
        CHECK_OK(group, tally_all_reduce(group, &seen_s, 1, TALLY_F64, TALLY_MIN, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    return 0;
}

static int check_late(tally_group *group, const tally_rank_stats *stats)
{
    CHECK(group, stats->n_last > 0 && stats->n_last <= stats->n_rounds);
    CHECK(group, stats->computes_s > SLEEP_MS / 2e3 && stats->link_s == 0);
    CHECK(group, stats->step_waited_s <= stats->waited_s);
    CHECK(group, (stats->n_late_steps == 0) == (stats->cause == TALLY_LATE_NOT));
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct framework *framework = calloc(1, sizeof *framework);
    int world = tally_group_size(group);
    int late = world / 2;

    (void)user;
    CHECK(group, framework);
    CHECK_OK(group, framework_make(group, specs, N, "allreduce", framework));
    CHECK_OK(group, check_refusals(group, framework));
    if (world > 1) {
        CHECK_OK(group, take_late_steps(group, framework, late));
    } else {
        CHECK_OK(group, take_steps(group, framework, late, SLEEP_MS));
    }
    for (int r = 0; r < world; r++) {
        tally_rank_stats stats = {.size = sizeof stats};

        CHECK_OK(group, tally_reducer_get_rank_stats(framework->reducer, r, &stats));
        CHECK(group, world > 1 || (stats.n_last == 0 && stats.waited_s == 0));
        /* Each bucket compares the calls, reduces, and ends with a round. */
        CHECK(group, stats.n_rounds >= 2 * 2 * N_STEPS || world == 1);
        CHECK(group, stats.clock_known);
        if (r == late && world > 1) {
            CHECK_OK(group, check_late(group, &stats));
        }
    }
    CHECK_OK(group, framework_end(group, framework));
    free(framework);
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 7};
    int n_failures = 0;

    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        n_failures += ddp_run_world("test_reducer_late", body, NULL, 1, worlds[w]);
    }
    n_failures += ddp_run_world("test_reducer_late: no lanes", body, NULL, 0, 2);
    return n_failures != 0;
}
