/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook auto. Measurements of links and steps are given by the test, different ones on each
 * rank, so that decisions are the same on every machine; coding, errors and residuals are real.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/auto_pretence.h"
#include "support/hook_rules.h"
#include "support/hook_states.h"

#define N_STEPS 40 /* enough for all phases up to a settled choice */
#define N_LONG 120 /* and for the error, which is measured over 32 of them */
#define N_REVIEW 80

/* The figures that a rank pretends to have measured. */
struct pretence {
    int rank;
    double gbit;  /* 0: all ranks share memory */
    double new_s; /* a step of the proposal; that of the old choice takes one second */
    double backward_s;
    double plain_s; /* to code a bucket for allreduce */
};

static void pretend(void *user, struct tally__profile *profile)
{
    const struct pretence *pretence = user;
    double gbit = pretence->gbit * (1 + 1000 * pretence->rank);

    /* Ranks measure wildly different things: only the slowest line counts. */
    auto_pretend(profile, (struct tally__link){1e-5, 1e-6, gbit});
    profile->hosts = gbit > 0 ? 4 : 1;
    profile->backward_s = pretence->backward_s;
    for (size_t b = 0; b < profile->n_buckets; b++) {
        profile->hooks[0].coding[b].code_s = pretence->plain_s;
    }
}

static double step_time(void *user, bool is_proposal)
{
    const struct pretence *pretence = user;

    return (is_proposal ? pretence->new_s : 1) * (1 + 1e-3 * pretence->rank);
}

struct run {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_hook *hook;
    struct pretence pretence;
    double *sums; /* of errors, per element; NULL: not asked for */
};

/* The parameters and the config of a ddp. */
struct made_of {
    const struct ddp_spec *specs;
    size_t n;
    size_t cap;
    bool copies;
};

static int start_with(tally_group *group, const char *text, const struct made_of *of,
                      struct run *run)
{
    const struct tally__auto_seam seam = {pretend, step_time, &run->pretence};
    tally_ddp_config config;

    run->pretence.rank = tally_group_rank(group);
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = of->cap;
    config.first_bucket_bytes = of->cap;
    CHECK(group, ddp_model_make(&run->model, of->specs, of->n, of->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, run->model.params, of->n, &config, &run->ddp));
    CHECK_OK(group, tally_hook_parse(text, &run->hook));
    tally__auto_set_seam(run->hook, &seam);
    CHECK_OK(group, tally_ddp_attach_hook(run->ddp, run->hook));
    return 0;
}

static int start(tally_group *group, const char *text, bool copies, struct run *run)
{
    const struct made_of of = {hook_specs, HOOK_N_PARAMS, 20000, copies};

    return start_with(group, text, &of, run);
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

static size_t count_buckets(const struct run *run)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    return tally_ddp_get_stats(run->ddp, &stats) == TALLY_OK ? stats.n_buckets : 0;
}

/* The number of buckets that travel by this hook, -1 after an error; *found is one of them, whose
 * reason has this part if one has. */
static int count_reasons(const struct run *run, const char *hook, const char *part,
                         tally_bucket_choice *found)
{
    bool has_part = false;
    int n = 0;

    for (size_t b = 0; b < count_buckets(run); b++) {
        tally_bucket_choice choice = {.size = sizeof choice};

        if (tally_ddp_explain(run->ddp, b, &choice) != TALLY_OK || !choice.hook ||
            choice.reason[0] == '\0') {
            return -1;
        }
        if (strcmp(choice.hook, hook) == 0) {
            n++;
            *found = has_part ? *found : choice;
            has_part = has_part || strstr(choice.reason, part);
        }
    }
    return n;
}

static int count_by(const struct run *run, const char *hook, tally_bucket_choice *found)
{
    return count_reasons(run, hook, "", found);
}

/* ---- decisions ---- */

struct decision {
    const char *text;
    double gbit;
    double new_s;
    double backward_s;
    const char *hook;   /* by which most buckets travel in the end */
    const char *reason; /* a part of the sentence */
};

#define TWO "auto:error=0.2,candidates=allreduce+int8"
#define THREE "auto:error=0.2,candidates=allreduce+bf16+int8"

static const struct decision decisions[] = {
    {"auto", 0, 0.5, 0, "allreduce", "share the memory"},
    {THREE, 0.01, 0.5, 0, "int8", "the line is 0.01 Gbit/s"},
    /* Every old step is cut short, and one or two pairs are enough. */
    {THREE, 0.01, 0.3, 0, "int8", "2 pairs of steps confirmed it"},
    {"auto:error=1,candidates=allreduce+powersgd", 0.01, 1e-9, 0, "powersgd:start=0", "1 pair of"},
    {THREE, 0.01, 3, 0, "allreduce", "2 pairs of steps refuted"},
    {THREE, 0.01, 0.7, 0, "int8", "3 pairs of steps confirmed it"},
    {THREE, 0.01, 0.85, 0, "int8", "5 pairs of steps confirmed it"},
    {"auto:error=0.2,margin=0.4,candidates=allreduce+bf16+int8", 0.01, 0.7, 0, "allreduce",
     "5 pairs of steps refuted"},
    {THREE, 0.01, 1.5, 0, "allreduce", "3 pairs of steps refuted"},
    {THREE, 0.01, 0.99, 0, "allreduce", "refuted a change"},
    {TWO, 1e5, 0.5, 0, "allreduce", "coding costs more than the line saves"},
    {TWO, 0.01, 0.5, 100, "allreduce", "hides it"},
    {"auto:error=0,candidates=allreduce+int8", 0.01, 0.5, 0, "allreduce", "leaves out"},
    {"auto:error=1,candidates=allreduce+powersgd", 0.01, 0.5, 0, "powersgd:start=0", "the line is"},
    {"auto:error=0.01,candidates=allreduce+bf16", 0.01, 0.5, 0, "bf16", "the line is"},
};

static int decide(tally_group *group, const struct decision *of, bool copies)
{
    struct run run = {
        .pretence = {.gbit = of->gbit, .new_s = of->new_s, .backward_s = of->backward_s}};
    tally_bucket_choice choice = {.size = sizeof choice};
    int world = tally_group_size(group);

    CHECK_OK(group, start(group, of->text, copies, &run));
    CHECK(group, count_by(&run, "allreduce", &choice) == (int)count_buckets(&run));
    CHECK(group, world == 1 || !choice.settled);
    /* Later, another bucket cap may be tried (test_auto_cap.c). */
    for (unsigned s = 0; s < N_STEPS && (world == 1 || !choice.settled); s++) {
        CHECK_OK(group, go(group, &run, s, 1));
        CHECK_OK(group, tally_ddp_explain(run.ddp, 0, &choice));
    }
    CHECK_OK(group, go(group, &run, N_STEPS, 2));
    if (world == 1) {
        CHECK(group, count_by(&run, "allreduce", &choice) == (int)count_buckets(&run));
        CHECK_TEXT(group, choice.reason, "one rank");
    } else {
        int n = count_reasons(&run, of->hook, of->reason, &choice);

        if (n <= 0) {
            (void)fprintf(stderr, "%s: no bucket by %s\n", of->text, of->hook);
        }
        CHECK(group, n > 0 && choice.settled);
        CHECK(group, strcmp(of->hook, "allreduce") != 0 || n == (int)count_buckets(&run));
        CHECK_TEXT(group, choice.reason, of->reason);
        CHECK(group, choice.measured_s > 0);
        CHECK(group, of->gbit <= 0 || choice.predicted_s > 0);
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

static int decide_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof decisions / sizeof decisions[0]; k++) {
        CHECK_OK(group, decide(group, &decisions[k], k % 2 != 0));
    }
    return 0;
}

/* ---- residuals ---- */

/* The sum of the means and of what is still left out is the sum of the gradients. Choices change on
 * the way, by the referee; in the end, allreduce delivers all. */
static int sum_up(tally_group *group, const char *text, double new_s)
{
    struct run run = {.pretence = {.gbit = 0.01, .new_s = new_s}};
    int world = tally_group_size(group);
    double worst = 0;
    size_t n = 0;

    CHECK_OK(group, start(group, text, false, &run));
    for (size_t i = 0; i < run.model.n; i++) {
        n += run.model.count[i];
    }
    run.sums = calloc(n + 1, sizeof *run.sums);
    CHECK(group, run.sums);
    for (unsigned s = 0; s < N_LONG; s++) {
        size_t at = 0;

        if (s == N_LONG - 1) {
            CHECK_OK(group, tally_ddp_set_hook(run.ddp, "allreduce"));
        }
        CHECK_OK(group, hook_step(group, run.ddp, &run.model, s));
        for (size_t i = 0; i < run.model.n; i++) {
            const float *mean = tally_ddp_mean(run.ddp, (int)i);

            for (size_t e = 0; e < run.model.count[i] && run.model.spec[i].dtype == TALLY_F32;
                 e++) {
                double exact = 0;

                for (int r = 0; r < world; r++) {
                    exact += (double)hook_value(s, r, i, e);
                }
                run.sums[at + e] += (double)mean[e] - exact / world;
            }
            at += run.model.count[i];
        }
    }
    for (size_t k = 0; k < n; k++) {
        worst = fabs(run.sums[k]) > worst ? fabs(run.sums[k]) : worst;
    }
    CHECK(group, worst < 2e-3); /* rounding alone; a lost residual of int8 is above 0.1 */
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* Also if the referee cuts steps of the old choice short: its buckets then travel by both. */
static int residuals_body(tally_group *group, void *user)
{
    CHECK_OK(group, sum_up(group, user, 0.5));
    CHECK_OK(group, sum_up(group, user, 1e-9));
    return 0;
}

/* ---- plans ---- */

static int plan_body(tally_group *group, void *user)
{
    const char *text = user;
    struct run run = {.pretence = {.gbit = 0.01, .new_s = 0.5}};
    tally_bucket_choice choice = {.size = sizeof choice};
    tally_future *future;
    uint64_t hashes[2];

    if (tally_group_rank(group) == 0) {
        (void)remove(strstr(text, "plan=") + strlen("plan="));
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, start(group, text, false, &run));
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    CHECK(group, tally_group_size(group) == 1 || count_by(&run, "int8", &choice) > 0);
    CHECK_OK(group, end(group, &run));
    for (int k = 0; k < 2; k++) {
        /* The plan fixes the choice, whatever is measured. */
        run.pretence.gbit = k;
        CHECK_OK(group, start(group, text, false, &run));
        CHECK_OK(group, go(group, &run, 0, 5));
        hashes[k] = ddp_hash_grads(&run.model, run.ddp);
        if (tally_group_size(group) > 1) {
            CHECK(group, count_by(&run, "int8", &choice) > 0 && choice.settled);
            CHECK_TEXT(group, choice.reason, "plan file");
        }
        CHECK_OK(group, end(group, &run));
    }
    CHECK(group, hashes[0] == hashes[1]);
    return 0;
}

/* ---- saving ---- */

static int save_body(tally_group *group, void *user)
{
    struct run run = {.pretence = {.gbit = 0.01, .new_s = 0.5}};
    struct run again = run;
    tally_bucket_choice choice = {.size = sizeof choice};
    struct hook_states states;
    uint64_t hash;

    CHECK_OK(group, start(group, user, false, &run));
    CHECK_OK(group, go(group, &run, 0, N_STEPS));
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    CHECK_OK(group, start(group, user, false, &again));
    CHECK_OK(group, hook_states_load(again.ddp, &states));
    CHECK_OK(group, go(group, &run, N_STEPS, 3));
    CHECK_OK(group, go(group, &again, N_STEPS, 3));
    hash = ddp_hash_grads(&run.model, run.ddp);
    CHECK(group, ddp_hash_grads(&again.model, again.ddp) == hash);
    CHECK(group, tally_group_size(group) == 1 || count_by(&again, "int8", &choice) > 0);
    hook_states_free(&states);
    CHECK_OK(group, end(group, &run));
    CHECK_OK(group, end(group, &again));
    return 0;
}

/* ---- changes ---- */

/* The line becomes fast and slow again: the choice follows within `review` steps. */
static int change_body(tally_group *group, void *user)
{
    struct run run = {.pretence = {.gbit = 0.01, .new_s = 0.5}};
    tally_bucket_choice choice = {.size = sizeof choice};
    unsigned s = 0;

    CHECK_OK(group, start(group, user, true, &run));
    for (int k = 0; k < 3; k++) {
        unsigned n = k > 0 ? N_REVIEW : N_STEPS;

        run.pretence.gbit = k == 1 ? 1e5 : 0.01;
        CHECK_OK(group, go(group, &run, s, n));
        s += n;
        if (tally_group_size(group) > 1) {
            CHECK(group, (count_by(&run, "int8", &choice) > 0) == (k != 1));
        }
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* A budget that the probes admit and the steps do not keep cannot be made with real codecs; one
 * that is exceeded by little is refused before. */
static int error_body(tally_group *group, void *user)
{
    struct run run = {.pretence = {.gbit = 0.01, .new_s = 0.5}};
    tally_bucket_choice choice = {.size = sizeof choice};

    CHECK_OK(group, start(group, user, false, &run));
    CHECK_OK(group, go(group, &run, 0, N_LONG));
    if (tally_group_size(group) > 1) {
        CHECK(group, count_by(&run, "int8", &choice) > 0);
        CHECK(group, choice.error > 0 && choice.error < 0.2);
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* Buckets of copies are arranged again after the first step, whose codings the opening goes by. The
 * vector, which int8 leaves exact, is alone in a bucket then, and afterwards comes before the
 * matrix.
 */
static int arranged_body(tally_group *group, void *user)
{
    static const struct ddp_spec specs[] = {{"vector", TALLY_F32, 0, 1, {60}},
                                            {"matrix", TALLY_F32, 0, 2, {33, 47}}};
    const struct made_of of = {specs, 2, 4000, true};
    struct run run = {.pretence = {.gbit = 10, .plain_s = 1}};
    int world = tally_group_size(group);

    CHECK_OK(group, start_with(group, user, &of, &run));
    for (unsigned s = 0; s < 3; s++) {
        for (int i = 0; i < 2; i++) {
            ddp_fill_grad(&run.model, run.ddp, (size_t)i, s, tally_group_rank(group));
            CHECK_OK(group, tally_ddp_grad_ready(run.ddp, i));
        }
        CHECK_OK(group, tally_ddp_wait(run.ddp));
        for (size_t i = 0; i < 2; i++) {
            CHECK(group,
                  ddp_wrong(&run.model, run.ddp, i, (struct ddp_mean){s, world, ~0u, world}) == 0);
        }
    }
    CHECK(group, count_buckets(&run) == 1);
    CHECK_OK(group, end(group, &run));
    return 0;
}

/* ---- mistakes ---- */

static int refuse(tally_group *group, tally_ddp *ddp, const char *text, const char *part)
{
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, text), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), part);
    CHECK(group, !strchr(tally_last_error(), '\n'));
    return 0;
}

static int write_plan(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    return file && fputs(text, file) >= 0 && fclose(file) == 0 ? 0 : -1;
}

static int refuse_plan(tally_group *group, tally_ddp *ddp, const char *path, const char *content,
                       const char *part)
{
    char text[200];
    tally_future *future;

    (void)snprintf(text, sizeof text, "auto:plan=%s", path);
    CHECK(group, tally_group_rank(group) != 0 || write_plan(path, content) == 0);
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    CHECK_OK(group, refuse(group, ddp, text, part));
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    return 0;
}

static int mistakes_body(tally_group *group, void *user)
{
    const char *path = user;
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, HOOK_N_PARAMS, NULL, &ddp));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=allreduce+int9", "no hook 'int9'"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=allreduce", "nothing to choose"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=int8+allreduce", "must be allreduce"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=allreduce+int8+int8", "given twice"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=allreduce+noop", "different gradients"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=allreduce+hosts", "divides the ranks"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=allreduce+auto", "inside auto"));
    CHECK_OK(group, refuse(group, ddp, "auto:candidates=", "expected the value of candidates"));
    CHECK_OK(group, refuse(group, ddp, "bf16(auto)", "cannot be inside another hook"));
    CHECK_OK(group, refuse(group, ddp, "auto:error=2", "error takes 0..1"));
    CHECK_OK(group, refuse(group, ddp, "auto:error=-1", "error takes 0..1"));
    CHECK_OK(group, refuse(group, ddp, "auto:review=1", "review takes 80 or more"));
    CHECK_OK(group, refuse(group, ddp, "auto:plan=/", "/ is not a file"));
    CHECK_OK(group, refuse(group, ddp, "auto:profile=/no/file", "cannot write /no/file"));
    CHECK_OK(group, refuse_plan(group, ddp, path, "", "line 1: expected 'tally plan 1'"));
    CHECK_OK(group, refuse_plan(group, ddp, path, "tally plan 1\n", "line 2: expected 'model'"));
    CHECK_OK(group,
             refuse_plan(group, ddp, path, "tally plan 1\nmodel 0000000000000000 of 3 parameters\n",
                         "of another model: it has"));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    char path[] = "auto-test-plan-XXXXXX";
    char plan[100];
    int failures = 0;
    int fd = mkstemp(path);

    if (fd < 0) {
        return 1;
    }
    (void)close(fd);
    (void)snprintf(plan, sizeof plan, TWO ",plan=%s", path);
    failures += ddp_run_seven("decisions", decide_body, NULL, 2);
    failures += ddp_run_seven("residuals", residuals_body, TWO, 2);
    failures += ddp_run("residuals of PowerSGD", residuals_body,
                        "auto:error=1,candidates=allreduce+powersgd:rank=2", 1);
    failures += ddp_run("saving", save_body, TWO, 1);
    failures += ddp_run("changes", change_body, TWO ",review=80", 1);
    failures += ddp_run("errors", error_body, TWO, 1);
    failures +=
        ddp_run("an arranged layout", arranged_body, "auto:error=0,candidates=allreduce+int8", 1);
    failures += ddp_run_world("mistakes", mistakes_body, path, 1, 3);
    (void)remove(path);
    failures += ddp_run_world("a plan", plan_body, plan, 2, 3);
    (void)remove(path);
    return failures > 0;
}
