/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook auto without memory to measure with: every allocation of one rank may fail, once, and no
 * step fails. All ranks stay with allreduce, and say so. Figures of links and steps are given by
 * the test. As threads, ranks share the door to the heap: so as processes only.
 */
#include <stdint.h>
#include <string.h>

#include "support/auto_pretence.h"
#include "support/counting_memory.h"
#include "support/hook_rules.h"

/* Steps before the first allocation that may fail; steps in which it may: measuring, coding and the
 * first decision; and all until the choice is settled. */
#define N_FIRST 2
#define N_MEASURED 7
#define N_STEPS 40
#define MOST_ALLOCATIONS 2000

static void pretend(void *user, struct tally__profile *profile)
{
    (void)user;
    auto_pretend(profile, (struct tally__link){1e-5, 1e-6, 0.01});
}

static double step_time(void *user, bool is_proposal)
{
    (void)user;
    return is_proposal ? 0.5 : 1;
}

/* The number of buckets that travel by this hook; -1: a reason lacks this part, or an error. */
static int count_by(tally_ddp *ddp, const char *hook, const char *part)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    int n = 0;

    if (tally_ddp_get_stats(ddp, &stats) != TALLY_OK) {
        return -1;
    }
    for (size_t b = 0; b < stats.n_buckets; b++) {
        tally_bucket_choice choice = {.size = sizeof choice};

        if (tally_ddp_explain(ddp, b, &choice) != TALLY_OK || !strstr(choice.reason, part)) {
            return -1;
        }
        n += strcmp(choice.hook, hook) == 0;
    }
    return n;
}

/* Steps with the n-th allocation failing; *met: there are that many. */
static int run(tally_group *group, const struct ddp_model *model, tally_ddp *ddp, size_t n,
               int64_t *met)
{
    tally_future *future;
    size_t calls = 0;

    for (unsigned s = 0; s < N_STEPS; s++) {
        if (s == N_FIRST) {
            calls = counting_memory_calls();
            counting_memory_fail_nth(tally_group_rank(group) == tally_group_size(group) - 1 ? n
                                                                                            : 0);
        }
        CHECK_OK(group, hook_step(group, ddp, model, s));
        if (s == N_FIRST + N_MEASURED - 1) {
            *met = tally_group_rank(group) == tally_group_size(group) - 1 &&
                   counting_memory_calls() - calls >= n;
            counting_memory_fail_nth(0);
            CHECK_OK(group, tally_all_reduce(group, met, 1, TALLY_I64, TALLY_MAX, &future));
            CHECK_OK(group, ranks_finish(future));
        }
    }
    return 0;
}

static int memory_body(tally_group *group, void *user)
{
    const struct tally__auto_seam seam = {pretend, step_time, NULL};
    int64_t met = 1;
    size_t n_gave_up = 0;

    for (size_t n = 1; met; n++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_hook *hook;
        tally_ddp *ddp;
        int n_int8;

        CHECK(group, n < MOST_ALLOCATIONS);
        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = 20000;
        CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, false) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, HOOK_N_PARAMS, &config, &ddp));
        CHECK_OK(group, tally_hook_parse(user, &hook));
        tally__auto_set_seam(hook, &seam);
        CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
        CHECK_OK(group, run(group, &model, ddp, n, &met));
        n_int8 = count_by(ddp, "int8", "");
        CHECK(group, n_int8 > 0 || count_by(ddp, "int8", "no memory") == 0);
        CHECK(group, met || n_int8 > 0);
        n_gave_up += n_int8 == 0;
        CHECK_OK(group, tally_ddp_free(ddp));
        tally_hook_free(hook);
        ddp_model_free(&model);
    }
    CHECK(group, n_gave_up > 10);
    return 0;
}

/* With the n-th allocation failing on one rank while auto is attached: all ranks have it, and
 * measure the line later if need be, or none has it. Steps go on in both cases. */
static int attach_body(tally_group *group, void *user)
{
    const struct tally__auto_seam seam = {pretend, step_time, NULL};
    bool fails = tally_group_rank(group) == 0;
    int64_t met = 1;

    for (size_t n = 1; met; n++) {
        struct ddp_model model;
        tally_future *future;
        tally_hook *hook;
        tally_ddp *ddp;
        size_t calls;
        int64_t codes[2];

        CHECK(group, n < MOST_ALLOCATIONS);
        CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, false) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, HOOK_N_PARAMS, NULL, &ddp));
        CHECK_OK(group, tally_hook_parse(user, &hook));
        tally__auto_set_seam(hook, &seam);
        calls = counting_memory_calls();
        counting_memory_fail_nth(fails ? n : 0);
        codes[0] = tally_ddp_attach_hook(ddp, hook);
        met = fails && counting_memory_calls() - calls >= n;
        counting_memory_fail_nth(0);
        CHECK(group, codes[0] == TALLY_OK || codes[0] == TALLY_NOMEM);
        codes[1] = -codes[0];
        CHECK_OK(group, tally_all_reduce(group, codes, 2, TALLY_I64, TALLY_MAX, &future));
        CHECK_OK(group, ranks_finish(future));
        CHECK(group, codes[0] == -codes[1]);
        CHECK_OK(group, tally_all_reduce(group, &met, 1, TALLY_I64, TALLY_MAX, &future));
        CHECK_OK(group, ranks_finish(future));
        for (unsigned s = 0; s < N_STEPS; s++) {
            CHECK_OK(group, hook_step(group, ddp, &model, s));
        }
        CHECK(group, count_by(ddp, "int8", "") > 0 || codes[0] == TALLY_NOMEM ||
                         count_by(ddp, "int8", "no memory") == 0);
        CHECK_OK(group, tally_ddp_free(ddp));
        tally_hook_free(hook);
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .world = 2, .lanes = 1};
    int failures = 0;

    if (!ranks_have_processes()) {
        return 0;
    }
    failures += ranks_run_named("no memory to measure with", &ranks, memory_body,
                                "auto:error=0.2,candidates=allreduce+int8") != 0;
    failures += ranks_run_named("no memory to attach", &ranks, attach_body,
                                "auto:error=0.2,candidates=allreduce+int8") != 0;
    return failures;
}
