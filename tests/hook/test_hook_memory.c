/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of hooks: after the first steps no hook allocates, and in copies after the buckets were
 * rearranged; and every allocation that setting a hook or its first step makes may fail on one
 * rank: all ranks hear of it, nothing leaks, and the next try works.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/counting_ranks.h"
#include "support/hook_rules.h"
#include "support/oracle.h"

#define N_COUNTED 10
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *const hooks[] = {
    "allreduce",
    "fp16",
    "fp16:saturate=1",
    "bf16:accumulate=wire",
    "quantize_per_tensor",
    "quantize_per_tensor:exchange=gather,scope=bucket",
    "quantize_per_channel",
    "quantize_per_channel:exchange=gather",
    "int8",
    "int8:feedback=0",
    "bf16(int8:exempt=none)",
    "powersgd:start=0",
    "bf16(powersgd:start=0,warm_start=0)",
    "batched_powersgd:start=0",
    "postlocal:start=1(int8)",
};

static int make(tally_group *group, struct ddp_model *model, bool copies, tally_ddp **ddp)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 9000;
    CHECK(group, ddp_model_make(model, hook_specs, HOOK_N_PARAMS, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}

/* ---- none per step ---- */

static int count(tally_group *group, const char *hook, bool copies)
{
    struct ddp_model model;
    tally_ddp *ddp;
    size_t before;

    CHECK_OK(group, make(group, &model, copies, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, hook));
    for (unsigned s = 0; s < 2; s++) {
        CHECK_OK(group, hook_step(group, ddp, &model, s));
    }
    CHECK_OK(group, counting_ranks_begin(group, &before));
    for (unsigned s = 0; s < N_COUNTED; s++) {
        CHECK_OK(group, hook_step(group, ddp, &model, s));
    }
    CHECK_OK(group, counting_ranks_none(group, before));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int count_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < COUNT(hooks); k++) {
        for (int copies = 0; copies < 2; copies++) {
            if (count(group, hooks[k], copies) != 0) {
                (void)fprintf(stderr, "with %s, %s\n", hooks[k], copies ? "copies" : "views");
                return RANKS_FAILED;
            }
        }
    }
    return 0;
}

/* ---- the N-th fails on one rank ---- */

/* Whether the hook is the one with this text. */
static bool has(tally_ddp *ddp, const char *text)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    return tally_ddp_get_stats(ddp, &stats) == TALLY_OK && strcmp(stats.hook, text) == 0;
}

/* The n-th allocation of the last rank fails. *met says, on all ranks, whether there was one. */
static int with_failure(tally_group *group, const char *hook, size_t n, bool *met)
{
    bool fails = tally_group_rank(group) == tally_group_size(group) - 1;
    struct ddp_model model;
    tally_future *future;
    size_t before;
    tally_ddp *ddp;
    int rc;

    CHECK_OK(group, make(group, &model, false, &ddp));
    /* Futures are made once and kept. */
    CHECK_OK(group, tally_ddp_set_hook(ddp, "noop"));
    CHECK_OK(group, hook_step(group, ddp, &model, 1));
    before = counting_memory_calls();
    counting_memory_fail_nth(fails ? n : 0);
    rc = tally_ddp_set_hook(ddp, hook);
    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_TEXT(group, tally_last_error(), "cannot allocate");
        CHECK(group, has(ddp, "noop"));
        CHECK_OK(group, tally_ddp_set_hook(ddp, hook));
    }
    ranks_note(group, 0, (uint64_t)rc);
    rc = hook_try_step(group, ddp, &model, 2);
    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_TEXT(group, tally_last_error(), "cannot allocate");
        CHECK_OK(group, hook_step(group, ddp, &model, 2));
    }
    ranks_note(group, 0, (uint64_t)rc);
    ranks_note(group, 0, ddp_hash_grads(&model, ddp));
    counting_memory_fail_nth(0);
    CHECK_OK(group, hook_step(group, ddp, &model, 3));
    ranks_note(group, 0, ddp_hash_grads(&model, ddp));
    if (fails) {
        atomic_store(&ranks_words()[1], counting_memory_calls() - before >= n);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    *met = atomic_load(&ranks_words()[1]) != 0;
    ddp_model_free(&model);
    return 0;
}

static int fail_body(tally_group *group, void *user)
{
    static const char *const stateful[] = {
        "fp16:saturate=1",          "quantize_per_tensor",       "bf16(int8)", "powersgd:start=0",
        "batched_powersgd:start=0", "postlocal:start=100(int8)", "auto"};
    size_t most = 0;

    (void)user;
    for (size_t k = 0; k < COUNT(stateful); k++) {
        bool met = true;
        size_t n = 0;

        while (met) {
            if (with_failure(group, stateful[k], ++n, &met) != 0) {
                (void)fprintf(stderr, "with %s, allocation %zu\n", stateful[k], n);
                return RANKS_FAILED;
            }
        }
        most = n > most ? n : most;
    }
    CHECK(group, most > 10);
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < COUNT(worlds); w++) {
        /* As processes: a failure meant for one rank must not reach another. */
        const struct ranks ranks = {
            .kind = RANKS_PROCESSES, .world = worlds[w], .lanes = worlds[w] == 3 ? 3 : 1};

        n_failures += hook_run("none per step", count_body, NULL, worlds[w]);
        n_failures += ranks_run(&ranks, fail_body, NULL);
    }
    return n_failures != 0;
}
