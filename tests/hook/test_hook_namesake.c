/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hook of the application's with the name of one of tally's is of another kind: neither gets the
 * other's state, when a hook is replaced or a state is loaded, and ranks do not mix them.
 */
#include <string.h>

#include "support/hook_states.h"

struct namesake {
    int n_loads;
};

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int save(void *state, void *blob, size_t *bytes)
{
    (void)state;
    if (blob) {
        memset(blob, 1, 4);
    }
    *bytes = 4;
    return TALLY_OK;
}

static int load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    (void)blobs;
    (void)n_blobs;
    ((struct namesake *)state)->n_loads++;
    return TALLY_OK;
}

static int body(tally_group *group, void *user)
{
    const tally_hook_table table = {.size = sizeof table,
                                    .name = "powersgd:start=1",
                                    .concurrent = 1,
                                    .feedback = 1,
                                    .reduce = reduce,
                                    .save = save,
                                    .load = load};
    const struct state_setup setup = {table.name, false, 0};
    struct namesake namesake = {0};
    struct hook_states states;
    struct state_run run;
    tally_hook *wrapper;
    tally_hook *hook;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, state_step(group, &run, 0));
    CHECK_OK(group, state_step(group, &run, 1));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, tally_hook_create(&table, &namesake, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, hook));
    CHECK_OK(group, state_step(group, &run, 2));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK(group, namesake.n_loads == 0);
    hook_states_free(&states);

    /* Its own it gets, wrapped too. */
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, tally_hook_wrap("bf16", hook, &wrapper));
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, wrapper));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK(group, namesake.n_loads == 1);

    /* The other way round: four bytes are not a state of PowerSGD. */
    CHECK_OK(group, tally_ddp_set_hook(run.ddp, table.name));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK_OK(group, state_step(group, &run, 3));
    if (tally_group_size(group) > 1) {
        tally_hook *own;

        CHECK_OK(group, tally_hook_parse(table.name, &own));
        CHECK_STATUS(group, tally_ddp_attach_hook(run.ddp, tally_group_rank(group) ? hook : own),
                     TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(),
                   "maker is tally on rank 0 and the application on rank 1");
        tally_hook_free(own);
    }
    hook_states_free(&states);
    tally_hook_free(wrapper);
    tally_hook_free(hook);
    CHECK_OK(group, state_run_end(group, &run));
    return 0;
}

/* A wrapper around the application's "allreduce" does not have the name of one around tally's, and
 * ranks do not mix the two. */
static int plain_body(tally_group *group, void *user)
{
    const tally_hook_table table = {.size = sizeof table, .name = "allreduce", .reduce = reduce};
    const struct state_setup setup = {"bf16", false, 0};
    tally_ddp_stats stats = {.size = sizeof stats};
    struct state_run run;
    tally_hook *wrapper;
    tally_hook *own;
    tally_hook *hook;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, tally_hook_create(&table, NULL, &hook));
    CHECK_OK(group, tally_hook_wrap("bf16", hook, &wrapper));
    CHECK_OK(group, tally_hook_parse("bf16", &own));
    if (tally_group_size(group) > 1) {
        CHECK_STATUS(group, tally_ddp_attach_hook(run.ddp, tally_group_rank(group) ? wrapper : own),
                     TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(), "'bf16(allreduce)'");
    }
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, wrapper));
    CHECK_OK(group, tally_ddp_get_stats(run.ddp, &stats));
    CHECK(group, strcmp(stats.hook, "bf16(allreduce)") == 0);
    CHECK_OK(group, state_step(group, &run, 0));
    tally_hook_free(own);
    tally_hook_free(wrapper);
    tally_hook_free(hook);
    CHECK_OK(group, state_run_end(group, &run));
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("namesake", body, NULL, 1);

    n_failures += ddp_run("namesake of allreduce", plain_body, NULL, 1);
    return n_failures != 0;
}
