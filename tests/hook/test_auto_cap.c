/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket cap of the hook auto: changed where buckets may move, taken back if steps refute it,
 * reported elsewhere; residuals, plans and checkpoints with it; and without memory for it. Figures
 * of links and steps are given by the test: rounds cost much, so that few buckets are best.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>
#include <unistd.h>

#include "support/auto_pretence.h"
#include "support/counting_memory.h"
#include "support/hook_rules.h"
#include "support/hook_states.h"

#define CAP 2000
#define N_STEPS 130 /* enough for a trial, and for measuring again after it */
#define INT8 "auto:error=0.2,candidates=allreduce+int8"

struct run {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_hook *hook;
    double cap_s; /* a step with another cap; the others take one second, or half of it */
    double *sums; /* of errors, per element */
};

static void pretend(void *user, struct tally__profile *profile)
{
    (void)user;
    auto_pretend(profile, (struct tally__link){1e-2, 1e-6, 0.001});
}

static double step_time(void *user, bool is_proposal)
{
    const struct run *run = user;
    const struct tally__auto *self = run->hook->state;

    return self->phase == TALLY__AUTO_CAP ? run->cap_s : is_proposal ? 0.5 : 1;
}

/* The first parameters, which are fp32; or all. */
#define N_F32 6

static int start_with(tally_group *group, const char *text, size_t n, bool copies, struct run *run)
{
    const struct tally__auto_seam seam = {pretend, step_time, run};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = CAP;
    CHECK(group, ddp_model_make(&run->model, hook_specs, n, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, run->model.params, n, &config, &run->ddp));
    CHECK_OK(group, tally_hook_parse(text, &run->hook));
    tally__auto_set_seam(run->hook, &seam);
    CHECK_OK(group, tally_ddp_attach_hook(run->ddp, run->hook));
    return 0;
}

static int start(tally_group *group, const char *text, bool copies, struct run *run)
{
    return start_with(group, text, HOOK_N_PARAMS, copies, run);
}

static int end(tally_group *group, struct run *run)
{
    CHECK_OK(group, tally_ddp_free(run->ddp));
    tally_hook_free(run->hook);
    free(run->sums);
    ddp_model_free(&run->model);
    return 0;
}

static int go(tally_group *group, struct run *run, unsigned first, unsigned n)
{
    for (unsigned s = first; s < first + n; s++) {
        CHECK_OK(group, hook_step(group, run->ddp, &run->model, s));
    }
    return 0;
}

static tally_ddp_stats stats_of(const struct run *run)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    (void)tally_ddp_get_stats(run->ddp, &stats);
    return stats;
}

/* The explanation of bucket 0. */
static tally_bucket_choice explain(const struct run *run)
{
    tally_bucket_choice choice = {.size = sizeof choice};

    (void)tally_ddp_explain(run->ddp, 0, &choice);
    return choice;
}

/* ---- changing it, and residuals ---- */

static void add_errors(const struct run *run, unsigned s, int world)
{
    size_t at = 0;

    for (size_t i = 0; i < run->model.n; i++) {
        const float *mean = tally_ddp_mean(run->ddp, (int)i);

        for (size_t e = 0; e < run->model.count[i] && run->model.spec[i].dtype == TALLY_F32; e++) {
            double exact = 0;

            for (int r = 0; r < world; r++) {
                exact += (double)hook_value(s, r, i, e);
            }
            run->sums[at + e] += (double)mean[e] - exact / world;
        }
        at += run->model.count[i];
    }
}

/* Takes all steps, and adds up their errors. */
static int sum_up(tally_group *group, struct run *run)
{
    int world = tally_group_size(group);
    size_t n = 0;

    for (size_t i = 0; i < run->model.n; i++) {
        n += run->model.count[i];
    }
    run->sums = calloc(n + 1, sizeof *run->sums);
    CHECK(group, run->sums);
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, hook_step(group, run->ddp, &run->model, s));
        add_errors(run, s, world);
    }
    return 0;
}

/* A step by allreduce delivers all residuals: the sum of the means is then that of the gradients.
 */
static int deliver(tally_group *group, struct run *run)
{
    double worst = 0;
    size_t n = 0;

    CHECK_OK(group, tally_ddp_set_hook(run->ddp, "allreduce"));
    CHECK_OK(group, hook_step(group, run->ddp, &run->model, N_STEPS));
    add_errors(run, N_STEPS, tally_group_size(group));
    for (size_t i = 0; i < run->model.n; i++) {
        n += run->model.count[i];
    }
    for (size_t k = 0; k < n; k++) {
        worst = fabs(run->sums[k]) > worst ? fabs(run->sums[k]) : worst;
    }
    CHECK(group, worst < 2e-3); /* rounding alone; a lost residual of int8 is above 0.1 */
    return 0;
}

static int change_body(tally_group *group, void *user)
{
    struct run run = {.cap_s = 0.25};
    size_t n_before;

    CHECK_OK(group, start(group, user, true, &run));
    n_before = stats_of(&run).n_buckets;
    CHECK_OK(group, sum_up(group, &run));
    if (tally_group_size(group) > 1) {
        const tally_bucket_choice choice = explain(&run);

        CHECK(group, stats_of(&run).bucket_cap_bytes >= 65536);
        CHECK(group, stats_of(&run).n_buckets < n_before);
        CHECK(group, choice.settled && choice.cap_bytes == 0);
        CHECK_TEXT(group, choice.reason, "the bucket cap became");
    }
    CHECK_OK(group, deliver(group, &run));
    /* Another hook has the caps of the config. */
    CHECK(group, stats_of(&run).bucket_cap_bytes == CAP);
    CHECK(group, stats_of(&run).n_buckets == n_before);
    CHECK_OK(group, end(group, &run));
    return 0;
}

static int refute_body(tally_group *group, void *user)
{
    struct run run = {.cap_s = 0.99};
    size_t n_before;

    CHECK_OK(group, start(group, user, true, &run));
    n_before = stats_of(&run).n_buckets;
    CHECK_OK(group, sum_up(group, &run));
    CHECK(group, stats_of(&run).bucket_cap_bytes == CAP);
    CHECK(group, stats_of(&run).n_buckets == n_before);
    if (tally_group_size(group) > 1) {
        const tally_bucket_choice choice = explain(&run);

        CHECK(group, choice.settled && choice.cap_bytes == 0);
        CHECK_TEXT(group, choice.reason, "steps refuted a bucket cap");
    }
    CHECK_OK(group, deliver(group, &run));
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- reporting it ---- */

/* Buckets hold the gradients, an optimizer shares them out, or a candidate's bits depend on them.
 */
static int report(tally_group *group, const char *text, bool copies, bool shards)
{
    struct run run = {.cap_s = 0.25};
    tally_optimizer *optimizer = NULL;
    tally_optimizer_config config;

    CHECK_OK(group, start_with(group, text, shards ? N_F32 : HOOK_N_PARAMS, copies, &run));
    tally_optimizer_config_init(&config, sizeof config);
    config.shard = 1;
    if (shards) {
        CHECK_OK(group, tally_optimizer_create(run.ddp, "sgd:lr=0", &config, &optimizer));
    }
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    CHECK(group, stats_of(&run).bucket_cap_bytes == CAP);
    if (tally_group_size(group) > 1) {
        const tally_bucket_choice choice = explain(&run);

        CHECK(group, choice.settled && choice.cap_bytes >= 65536 && choice.cap_gain > 0.03);
    }
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, end(group, &run));
    return 0;
}

static int report_body(tally_group *group, void *user)
{
    CHECK_OK(group, report(group, user, false, false));
    CHECK_OK(group, report(group, user, true, true));
    CHECK_OK(group, report(group, "auto:error=1,candidates=allreduce+batched_powersgd:start=0",
                           true, false));
    return 0;
}

/* ---- plans and states ---- */

static int plan_body(tally_group *group, void *user)
{
    const char *text = user;
    struct run run = {.cap_s = 0.25};
    tally_future *future;
    size_t cap_bytes;
    uint64_t hashes[2];

    if (tally_group_rank(group) == 0) {
        (void)remove(strstr(text, "plan=") + strlen("plan="));
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, start(group, text, true, &run));
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    cap_bytes = stats_of(&run).bucket_cap_bytes;
    CHECK(group, cap_bytes >= 65536);
    CHECK_OK(group, end(group, &run));
    for (int k = 0; k < 2; k++) {
        run = (struct run){.cap_s = 0.25};
        CHECK_OK(group, start(group, text, true, &run));
        CHECK(group, stats_of(&run).bucket_cap_bytes == cap_bytes);
        CHECK_OK(group, go(group, &run, 0, 5));
        CHECK(group, stats_of(&run).bucket_cap_bytes == cap_bytes);
        hashes[k] = ddp_hash_grads(&run.model, run.ddp);
        CHECK_TEXT(group, explain(&run).reason, "plan file");
        CHECK_OK(group, end(group, &run));
    }
    CHECK(group, hashes[0] == hashes[1]);
    return 0;
}

/* A ddp that loads what one with another cap has saved takes its buckets over, and goes on with the
 * same bits. */
static int saved_body(tally_group *group, void *user)
{
    struct run run = {.cap_s = 0.25};
    struct hook_states states;
    size_t cap_bytes;
    size_t n_buckets;
    uint64_t hash;

    CHECK_OK(group, start(group, user, true, &run));
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    cap_bytes = stats_of(&run).bucket_cap_bytes;
    CHECK(group, tally_group_size(group) == 1 || cap_bytes >= 65536);
    n_buckets = stats_of(&run).n_buckets;
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, go(group, &run, N_STEPS, 3));
    hash = ddp_hash_grads(&run.model, run.ddp);
    CHECK_OK(group, end(group, &run));
    run = (struct run){.cap_s = 0.25};
    CHECK_OK(group, start(group, user, true, &run));
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK(group, stats_of(&run).bucket_cap_bytes == cap_bytes);
    CHECK(group, stats_of(&run).n_buckets == n_buckets);
    CHECK_OK(group, go(group, &run, N_STEPS, 3));
    CHECK(group, ddp_hash_grads(&run.model, run.ddp) == hash);
    hook_states_free(&states);
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- without memory ---- */

/* Every allocation of one rank in the step that ends with new buckets may fail, once: no step
 * fails, and all ranks have the same buckets. */
static int memory_body(tally_group *group, void *user)
{
    bool is_last = tally_group_rank(group) == tally_group_size(group) - 1;
    int64_t caps[2] = {0, 0};
    int64_t met = 1;
    size_t n_stayed = 0;

    for (size_t n = 1; met; n++) {
        struct run run = {.cap_s = 0.25};
        tally_future *future;
        size_t calls;

        CHECK(group, n < 2000);
        CHECK_OK(group, start(group, user, true, &run));
        for (unsigned s = 0; s < N_STEPS; s++) {
            const struct tally__auto *self = run.hook->state;

            /* This step asks for another cap, and its wait changes the layout. */
            if (self->phase == TALLY__AUTO_SETTLED && self->n_live + 1 == TALLY__AUTO_ERROR_STEPS &&
                self->trial_cap == 0) {
                calls = counting_memory_calls();
                counting_memory_fail_nth(is_last ? n : 0);
                CHECK_OK(group, go(group, &run, s, 1));
                met = is_last && counting_memory_calls() - calls >= n;
                counting_memory_fail_nth(0);
                continue;
            }
            CHECK_OK(group, go(group, &run, s, 1));
        }
        caps[0] = (int64_t)stats_of(&run).bucket_cap_bytes;
        caps[1] = -caps[0];
        CHECK_OK(group, tally_all_reduce(group, caps, 2, TALLY_I64, TALLY_MAX, &future));
        CHECK_OK(group, ranks_finish(future));
        CHECK(group, caps[0] == -caps[1]);
        CHECK_OK(group, tally_all_reduce(group, &met, 1, TALLY_I64, TALLY_MAX, &future));
        CHECK_OK(group, ranks_finish(future));
        CHECK(group, met || caps[0] >= 65536);
        n_stayed += caps[0] == CAP;
        calls = counting_memory_calls();
        CHECK_OK(group, go(group, &run, N_STEPS, 3));
        CHECK(group, counting_memory_calls() == calls);
        CHECK_OK(group, end(group, &run));
    }
    CHECK(group, n_stayed > 5);
    return 0;
}

int main(void)
{
    const struct ranks ranks = {.kind = RANKS_PROCESSES, .world = 2, .lanes = 1};
    char path[] = "auto-cap-plan-XXXXXX";
    char plan[100];
    int failures = 0;
    int fd = mkstemp(path);

    if (fd < 0) {
        return 1;
    }
    (void)close(fd);
    (void)snprintf(plan, sizeof plan, INT8 ",plan=%s", path);
    failures += ddp_run("another cap", change_body, INT8, 2);
    failures += ddp_run("another cap, PowerSGD", change_body,
                        "auto:error=1,candidates=allreduce+powersgd:rank=2", 1);
    failures += ddp_run("a refuted cap", refute_body, INT8, 2);
    failures += ddp_run("a cap that is reported", report_body, INT8, 1);
    failures += ddp_run("a saved cap", saved_body, INT8, 1);
    failures += ddp_run_world("a plan with a cap", plan_body, plan, 1, 3);
    (void)remove(path);
    if (ranks_have_processes()) {
        failures += ranks_run_named("no memory for another cap", &ranks, memory_body, INT8) != 0;
    }
    return failures > 0;
}
