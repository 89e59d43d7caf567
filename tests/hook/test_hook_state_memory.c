/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of saving, of loading and of replacing a hook fails once: all ranks are told so
 * where all take part, nothing has changed, nothing leaks, and the next attempt works.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting_memory.h"
#include "support/hook_states.h"

#define N_BEFORE 3

/* A hook with its own state, and residuals. */
static const char *const hooks[] = {"int8", "powersgd:rank=1,start=1", "bf16(int8)"};

static int meet(tally_group *group)
{
    tally_future *future;

    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    return 0;
}

/* The call under test, on all ranks. Returns its status. */
typedef int attempt(struct state_run *run, const struct hook_states *states, const char *hook);

/*
 * Tries it with the first allocation on any rank failing, then the second, and so on, until none is
 * met. As processes, it is one of the last rank's.
 */
static int exhaust(tally_group *group, struct state_run *run, const struct hook_states *states,
                   const char *hook, attempt *try)
{
    bool threads = ranks_now()->kind == RANKS_THREADS;
    bool breaks = tally_group_rank(group) == tally_group_size(group) - 1;
    size_t n = 0;
    int rc;

    do {
        CHECK_OK(group, meet(group));
        if (breaks) {
            counting_memory_fail_nth(++n);
        }
        CHECK_OK(group, meet(group));
        rc = try(run, states, hook);
        CHECK_OK(group, meet(group));
        if (breaks) {
            counting_memory_fail_nth(0);
        }
        CHECK_OK(group, meet(group));
        CHECK(group, rc == TALLY_OK || rc == TALLY_NOMEM);
        CHECK(group, rc == TALLY_OK || strstr(tally_last_error(), "cannot allocate"));
        CHECK(group, hook_states_unchanged(group, run->ddp, states));
    } while (rc == TALLY_NOMEM);
    CHECK(group, !breaks || n > 3 || !threads);
    return 0;
}

static int load(struct state_run *run, const struct hook_states *states, const char *hook)
{
    (void)hook;
    return hook_states_load(run->ddp, states);
}

static int replace(struct state_run *run, const struct hook_states *states, const char *hook)
{
    (void)states;
    return tally_ddp_set_hook(run->ddp, hook);
}

static int together_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof hooks / sizeof hooks[0]; k++) {
        const struct state_setup setup = {hooks[k], false, 0};
        struct hook_states states;
        struct state_run run;
        uint64_t hash[2];

        for (int tries = 0; tries < 2; tries++) {
            CHECK_OK(group, state_run_start(group, &setup, &run));
            CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash[tries]));
            if (tries) {
                CHECK_OK(group, hook_states_take(group, run.ddp, &states));
                CHECK_OK(group, exhaust(group, &run, &states, hooks[k], load));
                CHECK_OK(group, exhaust(group, &run, &states, hooks[k], replace));
                hook_states_free(&states);
            }
            CHECK_OK(group, state_steps(group, &run, N_BEFORE, 3, &hash[tries]));
            CHECK_OK(group, state_run_end(group, &run));
        }
        CHECK(group, hash[0] == hash[1]);
    }
    return 0;
}

/* ---- saving, which is for one rank alone ---- */

struct saving {
    tally_ddp *ddp;
    void *blob;
    size_t bytes;
};

static int save(void *user)
{
    const struct saving *saving = user;
    size_t bytes = saving->bytes;

    return tally_ddp_save(saving->ddp, saving->blob, &bytes);
}

static int alone_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof hooks / sizeof hooks[0]; k++) {
        const struct state_setup setup = {hooks[k], true, 0};
        struct saving saving = {0};
        struct state_run run;
        uint64_t hash;

        CHECK_OK(group, state_run_start(group, &setup, &run));
        CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash));
        saving.ddp = run.ddp;
        CHECK_OK(group, tally_ddp_save(run.ddp, NULL, &saving.bytes));
        saving.blob = malloc(saving.bytes);
        CHECK(group, saving.blob);
        /* Only a hook that saves needs memory. */
        CHECK(group, (counting_memory_exhaust(save, &saving) > 0) == (k == 1));
        free(saving.blob);
        CHECK_OK(group, state_run_end(group, &run));
    }
    return 0;
}

int main(void)
{
    const struct ranks alone = {.kind = RANKS_THREADS, .world = 1, .lanes = 1};
    int n_failures = ddp_run("together", together_body, NULL, 1);

    return n_failures + ranks_run(&alone, alone_body, NULL) != 0;
}
