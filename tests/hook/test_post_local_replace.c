/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that follow one another with exchanges among different ranks: all, pairs, none. The next
 * hooks deliver the residual of a mean that its owner keeps: on average over all ranks, nothing is
 * lost. The same for a state that fewer ranks load.
 */
#include <stdio.h>

#include "support/hook_states.h"
#include "support/oracle.h"

#define N_HOOKS 3
#define N_STEPS 3 /* with each of them */

/* Of sums of N_HOOKS * N_STEPS gradients and what they lack; what int8 leaves out is a hundred
 * times as much. */
#define ROUNDING 4e-5

#define ALL "int8:block=64"
#define PAIRS "postlocal:start=0,group=2(int8:block=64)"

/* The last one leaves nothing out. */
static const char *const chains[][N_HOOKS] = {
    {ALL, PAIRS, "allreduce"},
    {PAIRS, PAIRS, "allreduce"},
    {PAIRS, "int8:block=128", "allreduce"},
    {PAIRS, ALL, "postlocal:start=0,group=2"},
    {PAIRS, PAIRS, "postlocal:start=0,group=2"},
    {ALL, PAIRS, "postlocal:start=0"},
    {PAIRS, "powersgd:start=0,rank=2", "allreduce"},
    {"postlocal:start=2,group=2(int8:block=64)", ALL, "allreduce"},
};

static int mean_job(tally_lane *lane, void *user)
{
    return tally_lane_all_reduce(lane, user, STATE_N_ELEMENTS, TALLY_F64, TALLY_MEAN);
}

/* On average over all ranks, they got what was due. */
static int settle(tally_group *group, struct state_totals *totals)
{
    double owed;

    CHECK_OK(group, ranks_job(group, 0, mean_job, totals->delivered));
    owed = state_owed(totals);
    if (owed > ROUNDING) {
        (void)fprintf(stderr, "%g is lost\n", owed);
    }
    CHECK(group, owed <= ROUNDING);
    return 0;
}

static int chain_body(tally_group *group, void *user)
{
    const char *const *hooks = user;
    const struct state_setup setup = {.hook = hooks[0]};
    struct state_totals totals = {{0}, {0}};
    struct state_run run;

    CHECK_OK(group, state_run_start(group, &setup, &run));
    for (unsigned k = 0; k < N_HOOKS; k++) {
        CHECK_OK(group, tally_ddp_set_hook(run.ddp, hooks[k]));
        CHECK_OK(group, state_count_steps(group, &run, k * N_STEPS, N_STEPS, &totals));
    }
    CHECK_OK(group, settle(group, &totals));
    return state_run_end(group, &run);
}

/* Half of the ranks, twice, take up what all have left out. */
static int fewer_body(tally_group *group, void *user)
{
    const struct state_setup setup = {.hook = user};
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);
    struct state_totals totals = {{0}, {0}};
    struct hook_states states;
    struct state_run run;
    struct state_run half;
    tally_group *few;

    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, state_count_steps(group, &run, 0, N_STEPS, &totals));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, tally_group_split(group, rank / (world / 2), rank, &few));
    CHECK_OK(group, state_run_start(few, &setup, &half));
    CHECK_OK(group, hook_states_load(half.ddp, &states));
    CHECK_OK(group, tally_ddp_set_hook(half.ddp, "allreduce"));
    CHECK_OK(group, state_count_steps(few, &half, N_STEPS, 1, &totals));
    CHECK_OK(group, settle(group, &totals));
    hook_states_free(&states);
    CHECK_OK(group, state_run_end(few, &half));
    CHECK_OK(group, tally_group_close(few));
    return state_run_end(group, &run);
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t k = 0; k < sizeof chains / sizeof chains[0]; k++) {
        n_failures += ddp_run_world(chains[k][0], chain_body, (void *)chains[k], 1, 4);
    }
    n_failures += ddp_run_world("six ranks", chain_body, (void *)chains[0], 1, 6);
    n_failures += ddp_run_world("fewer, of all", fewer_body, ALL, 1, 4);
    n_failures += ddp_run_world("fewer, of pairs", fewer_body, PAIRS, 1, 4);
    return n_failures != 0;
}
