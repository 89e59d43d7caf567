/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of every hook, to the bit, against plain loops: in every world, in views and copies,
 * in group memory and through stages, on one lane and on three, in buckets of all sizes. The hooks
 * that treat a bucket as one tensor get one bucket. Hooks follow each other in one ddp, so nothing
 * of one may show in the next.
 */
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

#define SEED 11
#define MOST_RULES 32

static float expected[MOST_RULES][HOOK_N_PARAMS * HOOK_MOST];

struct variant {
    const char *what;
    bool copies;
    bool staged;
    size_t cap;
};

#define ONE_BUCKET (1 << 20)

static const struct variant variants[] = {
    {"views, one bucket", false, false, ONE_BUCKET}, {"copies, one bucket", true, true, ONE_BUCKET},
    {"views, small buckets", false, true, 1},        {"copies, small buckets", true, false, 1},
    {"views, some buckets", false, false, 9000},
};

/* A hook that does nothing has no mean. */
static bool applies(const struct hook_rule *rule, const struct variant *variant)
{
    return rule->form != HOOK_NOTHING && (!rule->whole || variant->cap == ONE_BUCKET);
}

static int check_variant(tally_group *group, const struct variant *variant)
{
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = variant->cap;
    CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, variant->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    ranks_stage(group, variant->staged);
    for (size_t k = 0; k < hook_n_rules; k++) {
        if (!applies(&hook_rules[k], variant)) {
            continue;
        }
        CHECK_OK(group, tally_ddp_set_hook(ddp, hook_rules[k].text));
        CHECK_OK(group, hook_step(group, ddp, &model, SEED));
        if (hook_wrong(&model, ddp, SEED, tally_group_size(group), expected[k]) != 0) {
            (void)fprintf(stderr, "%s, %s:\n", hook_rules[k].text, variant->what);
            return ranks_fail(group, __FILE__, __LINE__, "not the expected means");
        }
        /* A residual would reach the next hook. */
        if (hook_rules[k].feedback) {
            CHECK_OK(group, tally_ddp_set_hook(ddp, "allreduce"));
            CHECK_OK(group, hook_step(group, ddp, &model, SEED));
        }
    }
    ranks_stage(group, false);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int exact_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        CHECK_OK(group, check_variant(group, &variants[v]));
    }
    return 0;
}

int main(void)
{
    int n_failures = hook_n_rules > MOST_RULES;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS && n_failures == 0; w++) {
        for (size_t k = 0; k < hook_n_rules; k++) {
            if (hook_rules[k].form != HOOK_NOTHING) {
                hook_expect_all(&hook_rules[k], SEED, ranks_worlds[w], expected[k]);
            }
        }
        n_failures += hook_run("exact", exact_body, NULL, ranks_worlds[w]);
    }
    return n_failures != 0;
}
