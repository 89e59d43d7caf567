/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook auto when gradients of one rank have infinities or NaN, as in the first steps with a
 * loss scale: such steps do not fail and tell no errors; the choice is made from the finite ones.
 * If all of them are like that, and for buckets that no step measured, gradients travel as they
 * are, and the reason says so. Figures of links and steps are given by the test.
 */
#include <math.h>
#include <string.h>

#include "support/auto_pretence.h"
#include "support/hook_rules.h"

#define N_STEPS 120
#define ALWAYS N_STEPS
#define BROKEN 5 /* the parameter with infinities and NaN: the largest */
#define ABSENT 4 /* a parameter without gradients in the steps that code them */
#define FIRST_CODED 6
#define N_CODED 3

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

static int start(tally_group *group, const char *text, struct ddp_model *model, tally_ddp **ddp,
                 tally_hook **hook)
{
    const struct tally__auto_seam seam = {pretend, step_time, NULL};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 2000;
    config.find_unused = 1;
    CHECK(group, ddp_model_make(model, hook_specs, HOOK_N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model->params, HOOK_N_PARAMS, &config, ddp));
    CHECK_OK(group, tally_hook_parse(text, hook));
    tally__auto_set_seam(*hook, &seam);
    CHECK_OK(group, tally_ddp_attach_hook(*ddp, *hook));
    return 0;
}

static int end(tally_group *group, struct ddp_model *model, tally_ddp *ddp, tally_hook *hook)
{
    CHECK_OK(group, tally_ddp_free(ddp));
    tally_hook_free(hook);
    ddp_model_free(model);
    return 0;
}

/* One step; the last rank's gradient of BROKEN begins with this value, if it is not finite. */
static int step(tally_group *group, const struct ddp_model *model, tally_ddp *ddp, unsigned seed,
                float first, bool is_complete)
{
    int rank = tally_group_rank(group);

    for (size_t i = model->n; i-- > 0;) {
        float *grad = tally_ddp_grad(ddp, (int)i);

        if (i == ABSENT && !is_complete) {
            continue;
        }
        if (model->spec[i].dtype != TALLY_F32) {
            ddp_fill_grad(model, ddp, i, seed, rank);
        }
        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            grad[e] = hook_value(seed, rank, i, e);
        }
        if (i == BROKEN && !isfinite(first) && rank == tally_group_size(group) - 1) {
            grad[0] = first;
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK(group, isfinite(first) || !isfinite(*(const float *)tally_ddp_mean(ddp, BROKEN)));
    return 0;
}

/* The explanation of the bucket that parameter i is in. */
static tally_bucket_choice explain(tally_ddp *ddp, int i)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_choice choice = {.size = sizeof choice};
    bool is_found = false;

    (void)tally_ddp_get_stats(ddp, &stats);
    for (size_t b = 0; b < stats.n_buckets && !is_found; b++) {
        int params[HOOK_N_PARAMS];
        size_t n = tally_ddp_bucket_params(ddp, b, params, HOOK_N_PARAMS);

        for (size_t k = 0; k < n; k++) {
            is_found = is_found || params[k] == i;
        }
        (void)tally_ddp_explain(ddp, b, &choice);
    }
    return choice;
}

/* ---- infinities and NaN in the first steps ---- */

struct course {
    const char *text;
    unsigned n_broken; /* steps */
    float value;
    bool is_measured; /* in the end */
};

static int course_body(tally_group *group, void *user)
{
    const struct course *course = user;
    struct ddp_model model;
    tally_bucket_choice choice;
    tally_hook *hook;
    tally_ddp *ddp;

    CHECK_OK(group, start(group, course->text, &model, &ddp, &hook));
    for (unsigned s = 0; s < N_STEPS; s++) {
        float first = s < course->n_broken ? course->value : 0;

        CHECK_OK(group, step(group, &model, ddp, s, first, true));
    }
    choice = explain(ddp, BROKEN);
    CHECK(group, choice.settled);
    CHECK_TEXT(group, choice.hook, course->is_measured ? "int8" : "allreduce");
    if (!course->is_measured) {
        CHECK_TEXT(group, choice.reason, "infinities or NaN");
    }
    CHECK_OK(group, end(group, &model, ddp, hook));
    return 0;
}

/* ---- a bucket that no coded step had ---- */

static int absent_body(tally_group *group, void *user)
{
    struct ddp_model model;
    tally_hook *hook;
    tally_ddp *ddp;

    CHECK_OK(group, start(group, user, &model, &ddp, &hook));
    for (unsigned s = 0; s < N_STEPS; s++) {
        bool is_coded = s >= FIRST_CODED && s < FIRST_CODED + N_CODED;

        CHECK_OK(group, step(group, &model, ddp, s, 0, !is_coded));
    }
    CHECK_TEXT(group, explain(ddp, BROKEN).hook, "int8");
    CHECK_TEXT(group, explain(ddp, ABSENT).hook, "allreduce");
    CHECK_TEXT(group, explain(ddp, ABSENT).reason, "its gradients were zero, absent or not fp32");
    CHECK_OK(group, end(group, &model, ddp, hook));
    return 0;
}

int main(void)
{
    const char *int8 = "auto:error=0.2,candidates=allreduce+int8";
    struct course courses[] = {{int8, 1, INFINITY, true},
                               {int8, 8, NAN, true},
                               {int8, 20, -INFINITY, true},
                               {int8, ALWAYS, NAN, false}};
    int failures = 0;

    for (size_t k = 0; k < sizeof courses / sizeof courses[0]; k++) {
        failures += hook_run("infinities and NaN", course_body, &courses[k], k == 1 ? 3 : 2);
    }
    failures += hook_run("a bucket that was not measured", absent_body, (void *)int8, 2);
    return failures > 0;
}
