/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first choice of the hook auto; and auto where a step has less than usual, or something comes
 * between its phases: steps without any gradient, delayed parameters, plans of other buckets;
 * another hook, a loaded state, or a step that a loss scale skips, in every phase. Figures of links
 * and steps are given by the test.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/auto_pretence.h"
#include "support/hook_rules.h"
#include "support/hook_states.h"

#define N_STEPS 60  /* enough for a settled choice */
#define N_PHASES 90 /* and for the trial of another bucket cap */
#define INT8 "auto:error=0.2,candidates=allreduce+int8"

struct run {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_hook *hook;
    bool is_near; /* ranks share memory */
};

/* The parameters and the config of a ddp. */
struct made_of {
    const struct ddp_spec *specs;
    size_t n;
    size_t cap;
    bool copies;
    bool skip_unused;
};

static const struct made_of all = {hook_specs, HOOK_N_PARAMS, 2000, true, false};

static void pretend(void *user, struct tally__profile *profile)
{
    const struct run *run = user;

    auto_pretend(profile, (struct tally__link){1e-2, 1e-6, 0.001});
    profile->hosts = run->is_near ? 1 : 4;
}

static double step_time(void *user, bool is_proposal)
{
    (void)user;
    return is_proposal ? 0.5 : 1;
}

static int start(tally_group *group, const char *text, const struct made_of *of, struct run *run)
{
    const struct tally__auto_seam seam = {pretend, step_time, run};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = of->cap;
    config.find_unused = of->skip_unused;
    config.skip_unused = of->skip_unused;
    CHECK(group, ddp_model_make(&run->model, of->specs, of->n, of->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, run->model.params, of->n, &config, &run->ddp));
    CHECK_OK(group, tally_hook_parse(text, &run->hook));
    tally__auto_set_seam(run->hook, &seam);
    CHECK_OK(group, tally_ddp_attach_hook(run->ddp, run->hook));
    return 0;
}

static int end(tally_group *group, struct run *run)
{
    CHECK_OK(group, tally_ddp_free(run->ddp));
    tally_hook_free(run->hook);
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

static tally_bucket_choice explain(const struct run *run, size_t bucket)
{
    tally_bucket_choice choice = {.size = sizeof choice};

    (void)tally_ddp_explain(run->ddp, bucket, &choice);
    return choice;
}

/* ---- the opening ---- */

#define SIDE 64

/* Two steps of a gradient of rank one with some noise lead to this hook. */
static int opening_run(tally_group *group, float noise, const char *hook)
{
    static const struct ddp_spec specs[] = {{"matrix", TALLY_F32, 0, 2, {SIDE, SIDE}}};
    const struct made_of of = {specs, 1, 1000, false, false};
    struct run run = {.ddp = NULL};

    CHECK_OK(group, start(group, "auto:error=0.01,candidates=allreduce+powersgd", &of, &run));
    for (unsigned s = 0; s < 2; s++) {
        float *grad = tally_ddp_grad(run.ddp, 0);

        for (size_t e = 0; e < (size_t)SIDE * SIDE; e++) {
            float low = ((float)(e / SIDE % 7) - 3) * ((float)(e % SIDE % 5) - 2);

            grad[e] = low + noise * hook_value(s, tally_group_rank(group), 0, e);
        }
        CHECK_OK(group, tally_ddp_grad_ready(run.ddp, 0));
        CHECK_OK(group, tally_ddp_wait(run.ddp));
    }
    CHECK(group, !explain(&run, 0).settled);
    CHECK_TEXT(group, explain(&run, 0).hook, hook);
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* PowerSGD leaves much out the first time. From then on it leaves out little of a gradient with a
 * little noise, and of one with more noise less than the first time, but too much. */
static int opening_body(tally_group *group, void *user)
{
    (void)user;
    CHECK_OK(group, opening_run(group, 0.02f, "powersgd:start=0"));
    CHECK_OK(group, opening_run(group, 1.5f, "allreduce"));
    return 0;
}

/* The line is known before the first step: not even its first bucket is exact. */
static int early_body(tally_group *group, void *user)
{
    static const struct ddp_spec specs[] = {{"second", TALLY_F32, 0, 2, {SIDE, SIDE}},
                                            {"first", TALLY_F32, 0, 2, {SIDE, SIDE}}};
    const struct made_of of = {specs, 2, 1000, false, false};
    struct run run = {.ddp = NULL};
    tally_bucket_stats stats = {.size = sizeof stats};

    CHECK_OK(group, start(group, user, &of, &run));
    CHECK_OK(group, go(group, &run, 0, 1));
    for (size_t b = 0; b < 2; b++) {
        CHECK_OK(group, tally_ddp_get_bucket_stats(run.ddp, b, &stats));
        CHECK(group,
              stats.bytes == sizeof(float) * SIDE * SIDE && 3 * stats.wire_bytes < stats.bytes);
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- steps without any gradient ---- */

/* Nothing is measured until a gradient comes. */
static int nothing_body(tally_group *group, void *user)
{
    struct made_of of = all;
    struct run run = {.is_near = user != NULL};

    of.skip_unused = true;
    CHECK_OK(group, start(group, INT8, &of, &run));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, tally_ddp_wait(run.ddp));
    }
    CHECK(group, tally_group_size(group) == 1 || !explain(&run, 0).settled);
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    CHECK(group, explain(&run, 0).settled);
    CHECK_TEXT(group, explain(&run, 0).hook,
               tally_group_size(group) == 1 || run.is_near ? "allreduce" : "int8");
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- delayed parameters ---- */

#define N_LATE 4

/* The figures of bucket 0 after steps in which delayed gradients are reduced, or never are. */
static int delayed_run(tally_group *group, bool is_asked, tally_bucket_choice *choice)
{
    static const struct ddp_spec specs[N_LATE] = {
        {"first", TALLY_F32, 0, 2, {33, 47}},
        {"late matrix", TALLY_F32, TALLY_PARAM_DELAYED, 2, {60, 70}},
        {"second", TALLY_F32, 0, 2, {50, 50}},
        {"late vector", TALLY_F32, TALLY_PARAM_DELAYED, 1, {60}}};
    const struct made_of of = {specs, N_LATE, 5000, false, false};
    int world = tally_group_size(group);
    struct run run = {.ddp = NULL};

    CHECK_OK(group, start(group, INT8, &of, &run));
    for (unsigned s = 0; s < N_STEPS; s++) {
        for (int i = 0; i < N_LATE; i++) {
            ddp_fill_grad(&run.model, run.ddp, (size_t)i, s, tally_group_rank(group));
            CHECK_OK(group, specs[i].flags ? TALLY_OK : tally_ddp_grad_ready(run.ddp, i));
        }
        CHECK_OK(group, is_asked ? tally_ddp_reduce_delayed(run.ddp) : TALLY_OK);
        CHECK_OK(group, tally_ddp_wait(run.ddp));
        for (size_t i = 1; i < N_LATE && is_asked; i += 2) {
            CHECK(group,
                  ddp_wrong(&run.model, run.ddp, i, (struct ddp_mean){s, world, ~0u, world}) == 0);
        }
    }
    *choice = explain(&run, 0);
    CHECK_TEXT(group, choice->hook, world == 1 ? "allreduce" : "int8");
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* Delayed gradients are exact, and their buckets, whose indices are those of others, do not change
 * what is measured of these. */
static int delayed_body(tally_group *group, void *user)
{
    tally_bucket_choice with;
    tally_bucket_choice without;

    CHECK_OK(group, delayed_run(group, true, &with));
    CHECK_OK(group, delayed_run(group, false, &without));
    /* With several lanes, times decide which bucket of the first step is coded with which hooks. */
    CHECK(group, user || with.error == without.error);
    CHECK(group, user || with.predicted_s == without.predicted_s);
    return 0;
}

/* ---- a plan of other buckets ---- */

/* Views cannot move: parameters that the plan gives different hooks share a bucket, which is exact,
 * and is said to be. */
static int plan_body(tally_group *group, void *user)
{
    const char *text = user;
    struct made_of of = all;
    struct run run = {.ddp = NULL};
    int world = tally_group_size(group);
    tally_future *future;
    char line[100];

    of.n = 6; /* fp32 */
    of.copies = false;
    of.cap = 1000;
    if (tally_group_rank(group) == 0) {
        (void)remove(strstr(text, "plan=") + strlen("plan="));
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, start(group, text, &of, &run));
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    (void)snprintf(line, sizeof line, "%s", explain(&run, 0).hook);
    CHECK_TEXT(group, line, "int8"); /* the bucket of "big" alone */
    CHECK_OK(group, end(group, &run));
    of.cap = (size_t)1 << 20;
    run = (struct run){.ddp = NULL};
    CHECK_OK(group, start(group, text, &of, &run));
    CHECK_OK(group, go(group, &run, 0, 3));
    CHECK_TEXT(group, explain(&run, 0).hook, "allreduce");
    CHECK_TEXT(group, explain(&run, 0).reason, "different choices, so it is exact");
    for (size_t e = 0; e < run.model.count[1]; e++) {
        float sum = 0;

        for (int r = 0; r < world; r++) {
            sum += hook_value(2, r, 1, e);
        }
        CHECK(group, ((const float *)tally_ddp_mean(run.ddp, 1))[e] == sum / (float)world);
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- the profile ---- */

/* tally plan reads what auto writes; it takes the slowest of many ranks from the spread. */
static int profile_body(tally_group *group, void *user)
{
    const char *path = strstr(user, "profile=") + strlen("profile=");
    struct tally__profile profile = {.n_buckets = 0};
    static char text[100000];
    struct run run = {.ddp = NULL};
    FILE *file;
    size_t n;

    CHECK_OK(group, start(group, user, &all, &run));
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    if (tally_group_rank(group) == 0) {
        file = fopen(path, "r");
        CHECK(group, file);
        n = fread(text, 1, sizeof text, file);
        CHECK(group, fclose(file) == 0);
        CHECK_OK(group, tally__profile_read(path, text, n, &profile));
        CHECK(group, profile.hosts == 4 && profile.lanes == 1 && profile.link.gbit == 0.001);
        CHECK(group, profile.n_hooks == 2 && strcmp(profile.hooks[1].name, "int8") == 0);
        CHECK(group, profile.hooks[1].error > 0 && profile.hooks[1].error < 0.2);
        CHECK(group, profile.spread_s > 0 && profile.spread_s < 60);
        tally__profile_free(&profile);
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- another hook in each phase ---- */

static void add_errors(const struct run *run, unsigned s, int world, double *sums)
{
    for (size_t i = 0; i < run->model.n; i++) {
        const float *mean = tally_ddp_mean(run->ddp, (int)i);

        for (size_t e = 0; e < run->model.count[i] && run->model.spec[i].dtype == TALLY_F32; e++) {
            double exact = 0;

            for (int r = 0; r < world; r++) {
                exact += (double)hook_value(s, r, i, e);
            }
            sums[i * HOOK_MOST + e] += (double)mean[e] - exact / world;
        }
    }
}

/* Replaces auto in step n, and that hook three steps later by allreduce, which delivers all. */
static int replace_in_step(tally_group *group, unsigned n, double *sums, size_t n_sums)
{
    static const char *const others[] = {"allreduce", "int8", INT8, "powersgd:start=0",
                                         "batched_powersgd:start=0"};
    struct run run = {.ddp = NULL};
    double worst = 0;

    CHECK_OK(group, start(group, INT8, &all, &run));
    for (unsigned s = 0; s < n + 4; s++) {
        if (s == n) {
            CHECK_OK(group, tally_ddp_set_hook(run.ddp, others[n / 4 % 5]));
        }
        if (s == n + 3) {
            CHECK_OK(group, tally_ddp_set_hook(run.ddp, "allreduce"));
        }
        CHECK_OK(group, go(group, &run, s, 1));
        add_errors(&run, s, tally_group_size(group), sums);
    }
    for (size_t k = 0; k < n_sums; k++) {
        worst = fmax(worst, fabs(sums[k]));
    }
    CHECK(group, worst < 2e-3); /* rounding alone; a lost residual of int8 is above 0.1 */
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* No residual is lost, whatever phase auto is in. */
static int replace_body(tally_group *group, void *user)
{
    const size_t n_sums = (size_t)HOOK_N_PARAMS * HOOK_MOST;
    int rc = 0;

    (void)user;
    for (unsigned n = 0; n < N_PHASES && rc == 0; n += 4) {
        double *sums = calloc(n_sums, sizeof *sums);

        CHECK(group, sums);
        rc = replace_in_step(group, n, sums, n_sums);
        free(sums);
    }
    return rc;
}

/* ---- a state of each phase ---- */

/* The reason is one for the hook that is named beside it. */
static int check_reasons(tally_group *group, const struct run *run)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    CHECK_OK(group, tally_ddp_get_stats(run->ddp, &stats));
    for (size_t b = 0; b < stats.n_buckets; b++) {
        const tally_bucket_choice choice = explain(run, b);
        bool saves = strstr(choice.reason, "ms saved,") != NULL;

        CHECK(group, !saves || strcmp(choice.hook, "allreduce") != 0);
        CHECK(group, saves || choice.predicted_s == 0 || strcmp(choice.hook, "allreduce") == 0);
    }
    return 0;
}

/* Loaded into the ddp that saved it, later, and into one that is in some other phase. */
static int state_body(tally_group *group, void *user)
{
    (void)user;
    for (unsigned n = 0; n < N_PHASES; n += 9) {
        struct hook_states states;
        struct run run = {.ddp = NULL};
        struct run other = {.ddp = NULL};

        CHECK_OK(group, start(group, INT8, &all, &run));
        CHECK_OK(group, start(group, INT8, &all, &other));
        CHECK_OK(group, go(group, &run, 0, n));
        CHECK_OK(group, hook_states_take(group, run.ddp, &states));
        CHECK_OK(group, go(group, &run, n, N_PHASES - n));
        CHECK_OK(group, go(group, &other, 0, n * 7 % N_PHASES));
        CHECK_OK(group, hook_states_load(run.ddp, &states));
        CHECK_OK(group, hook_states_load(other.ddp, &states));
        for (unsigned s = 0; s < N_STEPS; s++) {
            CHECK_OK(group, check_reasons(group, &run));
            CHECK_OK(group, check_reasons(group, &other));
            CHECK_OK(group, go(group, &run, n + s, 1));
            CHECK_OK(group, go(group, &other, n + s, 1));
        }
        CHECK(group, explain(&run, 0).settled && explain(&other, 0).settled);
        hook_states_free(&states);
        CHECK_OK(group, end(group, &run));
        CHECK_OK(group, end(group, &other));
    }
    return 0;
}

/* ---- a loss scale ---- */

#define SCALE 1024

/* Step bad has an infinity on one rank: all ranks skip it, and it alone. */
static int scaled_run(tally_group *group, const tally_optimizer_config *config, unsigned bad)
{
    tally_optimizer_stats stats = {.size = sizeof stats};
    struct made_of of = all;
    struct run run = {.ddp = NULL};
    tally_optimizer *optimizer;

    of.n = 6; /* fp32 */
    of.copies = bad % 2 != 0;
    CHECK_OK(group, start(group, INT8, &of, &run));
    CHECK_OK(group, tally_optimizer_create(run.ddp, "sgd:lr=0.01", config, &optimizer));
    for (unsigned s = 0; s < N_STEPS; s++) {
        for (size_t i = run.model.n; i-- > 0;) {
            float *grad = tally_ddp_grad(run.ddp, (int)i);

            for (size_t e = 0; e < run.model.count[i]; e++) {
                grad[e] = SCALE * hook_value(s, tally_group_rank(group), i, e);
            }
            if (s == bad && i == 5 && tally_group_rank(group) == 0) {
                grad[3] = INFINITY;
            }
            CHECK_OK(group, tally_ddp_grad_ready(run.ddp, (int)i));
        }
        CHECK_OK(group, tally_ddp_wait(run.ddp));
    }
    CHECK_OK(group, tally_optimizer_get_stats(optimizer, &stats));
    CHECK(group, stats.skipped == 1);
    for (size_t i = 0; i < run.model.n; i++) {
        for (size_t e = 0; e < run.model.count[i]; e++) {
            CHECK(group, isfinite(((const float *)run.model.params[i].data)[e]));
        }
    }
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, end(group, &run));
    return 0;
}

static int scale_body(tally_group *group, void *user)
{
    tally_optimizer_config config;

    (void)user;
    tally_optimizer_config_init(&config, sizeof config);
    config.loss_scale = SCALE;
    config.loss_scale_interval = 2 * N_STEPS;
    for (unsigned bad = 0; bad < N_STEPS; bad += 5) {
        config.overlap = bad % 3 != 0;
        config.shard = !config.overlap;
        CHECK_OK(group, scaled_run(group, &config, bad));
    }
    return 0;
}

int main(void)
{
    char path[] = "auto-corners-plan-XXXXXX";
    char plan[100];
    int failures = 0;
    int fd = mkstemp(path);

    if (fd < 0) {
        return 1;
    }
    (void)close(fd);
    (void)snprintf(plan, sizeof plan, INT8 ",plan=%s", path);
    failures += ddp_run_world("the opening", opening_body, NULL, 1, 2);
    failures += ddp_run_world("the first step", early_body, INT8, 1, 2);
    failures += ddp_run("steps without a gradient", nothing_body, NULL, 1);
    failures += ddp_run("steps without a gradient, one machine", nothing_body, "near", 1);
    failures += ddp_run("delayed parameters", delayed_body, NULL, 1);
    failures += ddp_run("delayed parameters, several lanes", delayed_body, "lanes", 3);
    failures += ddp_run_world("a plan of other buckets", plan_body, plan, 1, 2);
    (void)remove(path);
    (void)snprintf(plan, sizeof plan, INT8 ",profile=%s", path);
    failures += ddp_run_world("a profile", profile_body, plan, 1, 2);
    (void)remove(path);
    failures += ddp_run_world("another hook", replace_body, NULL, 1, 2);
    failures += ddp_run_world("a state", state_body, NULL, 0, 2);
    failures += ddp_run_world("a loss scale", scale_body, NULL, 1, 3);
    return failures > 0;
}
