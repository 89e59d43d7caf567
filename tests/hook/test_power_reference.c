/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD against a reference in double precision, step by step: all options, in views and in
 * copies, whose buckets are rearranged after the first step, in buckets of several sizes, in every
 * world; all ranks have the same bits. And five hundred steps in a row.
 */
#include <stdio.h>

#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define TOLERANCE 1e-4
#define STEPS_APART 3

struct trial {
    const char *text;
    struct power_setting setting;
};

/* The reference starts at once; so must the hook. */
static const struct trial trials[] = {
    {"powersgd:start=0", {1, 2, true, true, 0, 0, false, false}},
    {"powersgd:rank=2,start=0,seed=7", {2, 2, true, true, 0, 7, false, false}},
    {"powersgd:rank=4,start=0,batch=1", {4, 2, true, true, 0, 0, false, false}},
    {"powersgd:rank=8,start=0,min_rate=0", {8, 0, true, true, 0, 0, false, false}},
    {"powersgd:rank=2,start=0,feedback=0", {2, 2, false, true, 0, 0, false, false}},
    {"powersgd:rank=2,start=0,warm_start=0", {2, 2, true, false, 0, 0, false, false}},
    {"powersgd:start=0,feedback=0,warm_start=0", {1, 2, false, false, 0, 0, false, false}},
    {"powersgd:rank=2,start=0,epsilon=0.125", {2, 2, true, true, 0.125, 0, false, false}},
    {"powersgd:rank=1,start=0,min_rate=10", {1, 10, true, true, 0, 0, false, false}},
    {"batched_powersgd:start=0", {1, 0, true, true, 0, 0, true, false}},
    {"batched_powersgd:rank=2,start=0", {2, 0, true, true, 0, 0, true, false}},
    {"batched_powersgd:rank=2,start=0,feedback=0", {2, 0, false, true, 0, 0, true, false}},
    {"batched_powersgd:rank=2,start=0,warm_start=0", {2, 0, true, false, 0, 0, true, false}},
};
#define N_TRIALS (sizeof trials / sizeof trials[0])

struct run {
    const struct trial *trial;
    bool copies;
    size_t cap;
    unsigned n_steps;
};

/* Rank 0 alone looks how near it is; all must have the same. */
static int check_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                      struct power_reference *reference, unsigned s)
{
    int world = tally_group_size(group);
    const struct power_step step = {s, ~0u, world, power_value};
    double distance = 0;

    if (s % STEPS_APART == 0 && s > 0) {
        CHECK_OK(group, power_reference_take(reference, group, ddp));
    }
    /* The buckets of this step: its end may rearrange them. */
    if (tally_group_rank(group) == 0) {
        power_reference_step(reference, ddp, &step);
    }
    CHECK_OK(group, power_run_step(group, ddp, model, power_value, s));
    if (tally_group_rank(group) == 0) {
        distance = power_reference_distance(reference, ddp);
    }
    if (!(distance <= TOLERANCE)) {
        (void)fprintf(stderr, "step %u: off by %g\n", s, distance);
        return ranks_fail(group, __FILE__, __LINE__, "not the reference's means");
    }
    CHECK(group, ddp_wrong(model, ddp, 7, (struct ddp_mean){s, world, ~0u, world}) == 0);
    ranks_note(group, 0, ddp_hash_grads(model, ddp));
    return 0;
}

static int check_run(tally_group *group, const struct run *run)
{
    struct ddp_model model;
    struct power_reference *reference;
    tally_ddp *ddp;
    int rc = 0;

    CHECK(group, ddp_model_make(&model, power_specs, POWER_N_PARAMS, run->copies) == 0);
    CHECK_OK(group, power_create(group, &model, run->cap, run->trial->text, &ddp));
    reference = power_reference_make(&run->trial->setting, &model, tally_group_size(group));
    for (unsigned s = 0; s < run->n_steps && rc == 0; s++) {
        rc = check_step(group, ddp, &model, reference, s);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "%s, %s, buckets of %zu bytes\n", run->trial->text,
                      run->copies ? "copies" : "views", run->cap);
    }
    power_reference_free(reference);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return rc;
}

static int options_body(tally_group *group, void *user)
{
    static const size_t caps[] = {1, 1500, 1 << 20};

    (void)user;
    for (size_t k = 0; k < N_TRIALS; k++) {
        for (int variant = 0; variant < 2; variant++) {
            const struct run run = {&trials[k], variant == 1, caps[(k + (size_t)variant) % 3], 8};

            CHECK_OK(group, check_run(group, &run));
        }
    }
    return 0;
}

static int long_body(tally_group *group, void *user)
{
    const struct run layers = {&trials[0], false, 1500, RANKS_REPEATS(500, 50)};
    const struct run batched = {&trials[9], true, 3000, RANKS_REPEATS(100, 20)};

    (void)user;
    CHECK_OK(group, check_run(group, &layers));
    return check_run(group, &batched);
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS - 1; w++) {
        n_failures += hook_run("options", options_body, NULL, ranks_worlds[w]);
        n_failures += hook_run("long", long_body, NULL, ranks_worlds[w]);
    }
    return n_failures != 0;
}
