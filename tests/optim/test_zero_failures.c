/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sharded optimizer when something goes wrong: an update that fails on one rank fails the step on
 * all, with its text, and the next step works; ranks that do not agree about sharding; memory, of
 * which steps need none, and whose lack at creation leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/counting_memory.h"
#include "support/opt_model.h"

/* ---- an update that fails ---- */

struct trap {
    int index;               /* of the parameter */
    unsigned long long step; /* in which it fails; 0: never */
};

static int descend(void *user, const tally_step_param *param)
{
    const struct trap *trap = user;

    if (param->index == trap->index && param->step == trap->step) {
        return tally_job_fail(NULL, TALLY_UNSUPPORTED, "a trap in the optimizer");
    }
    for (size_t e = 0; e < param->n; e++) {
        param->data[e] -= (float)param->lr * param->gradient[e];
    }
    return TALLY_OK;
}

static int trap_body(tally_group *group, void *user)
{
    const tally_optimizer_table table = {
        .size = sizeof table, .name = "descend", .elementwise = 1, .step_param = descend};

    (void)user;
    for (int variant = 0; variant < 4; variant++) {
        /* Every rank has a part of the largest one. */
        struct trap trap = {.index = 5};
        const tally_optimizer_group one = {
            .size = sizeof one, .table = &table, .user = &trap, .lr = 0.1};
        tally_optimizer_config config;
        const struct opt_setup setup = {.copies = variant & 1, .config = &config};
        struct opt_run run;

        tally_optimizer_config_init(&config, sizeof config);
        config.groups = &one;
        config.n_groups = 1;
        config.shard = 1;
        config.max_norm = variant & 2 ? 1 : 0;
        CHECK_OK(group, opt_start(group, &setup, &run));
        trap.step = tally_group_rank(group) == tally_group_size(group) - 1 ? 2 : 0;
        CHECK_OK(group, opt_step(&run, 1, 0));
        for (size_t i = run.model.n; i-- > 0;) {
            opt_gradient(&run, i, 2, false);
            CHECK_OK(group, tally_ddp_grad_ready(run.ddp, (int)i));
        }
        CHECK_STATUS(group, tally_ddp_wait(run.ddp), TALLY_UNSUPPORTED);
        CHECK_TEXT(group, tally_last_error(), "a trap in the optimizer");
        /* The group and the ddp are as good as before. */
        trap.step = 0;
        CHECK_OK(group, opt_step(&run, 3, 0));
        CHECK_OK(group, opt_end(&run));
    }
    return 0;
}

/* ---- ranks that do not agree ---- */

static int disagree_body(tally_group *group, void *user)
{
    const struct opt_setup setup = {0};
    tally_optimizer_config config;
    tally_optimizer *optimizer;
    struct opt_run run;
    bool alone = tally_group_size(group) == 1;

    (void)user;
    CHECK_OK(group, opt_start(group, &setup, &run));
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.shard = tally_group_rank(group) == 0;
    CHECK_STATUS(group, tally_optimizer_create(run.ddp, "adam", &config, &optimizer),
                 alone ? TALLY_OK : TALLY_MISMATCH);
    CHECK(group, alone || strstr(tally_last_error(), "shard is 1 on rank 0 and 0 on rank 1"));
    CHECK_OK(group, alone ? tally_optimizer_free(optimizer) : TALLY_OK);
    CHECK_OK(group, opt_step(&run, 1, 0));
    CHECK_OK(group, opt_end(&run));
    return 0;
}

/* ---- memory ---- */

static int steady_body(tally_group *group, void *user)
{
    (void)user;
    for (unsigned variant = 0; variant < 4; variant++) {
        tally_optimizer_config config;
        const struct opt_setup setup = {
            .copies = variant & 1, .text = "adamw", .config = &config, .hook = "bf16"};
        struct opt_run run;
        size_t before;
        size_t after;

        tally_optimizer_config_init(&config, sizeof config);
        config.shard = 1;
        config.max_norm = variant & 2 ? 1 : 0;
        CHECK_OK(group, opt_start(group, &setup, &run));
        for (unsigned s = 0; s < 3; s++) {
            CHECK_OK(group, opt_step(&run, s, 0));
        }
        CHECK_OK(group, ranks_meet(group));
        before = counting_memory_calls();
        CHECK_OK(group, ranks_meet(group));
        for (unsigned s = 0; s < 20; s++) {
            CHECK_OK(group, opt_step(&run, s, 0));
        }
        CHECK_OK(group, ranks_meet(group));
        after = counting_memory_calls();
        CHECK(group, after == before);
        CHECK_OK(group, ranks_meet(group));
        CHECK_OK(group, opt_end(&run));
    }
    return 0;
}

static int create_and_free(void *user)
{
    tally_optimizer_config config;
    tally_optimizer *optimizer;
    int rc;

    tally_optimizer_config_init(&config, sizeof config);
    config.shard = 1;
    rc = tally_optimizer_create(user, "adam", &config, &optimizer);
    if (rc == TALLY_OK) {
        rc = tally_optimizer_free(optimizer);
    }
    return rc;
}

static void test_creation(void **state)
{
    struct ddp_model model;
    tally_group *group;
    tally_ddp *ddp;

    (void)state;
    assert_int_equal(ddp_model_make(&model, opt_specs, OPT_N_PARAMS, false), 0);
    assert_int_equal(tally_group_open_threads(NULL, 1, &group), TALLY_OK);
    assert_int_equal(tally_ddp_create(group, model.params, model.n, NULL, &ddp), TALLY_OK);
    assert_true(counting_memory_exhaust(create_and_free, ddp) > 10);
    assert_int_equal(tally_ddp_free(ddp), TALLY_OK);
    assert_int_equal(tally_group_close(group), TALLY_OK);
    ddp_model_free(&model);
}

int main(void)
{
    static const int some[] = {1, 2, 3, 0};
    static const int two[] = {2, 0};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_creation)};
    int n_failures = opt_worlds("a trap", trap_body, NULL, 1, some);

    n_failures += opt_worlds("disagreement", disagree_body, NULL, 1, some);
    n_failures += opt_worlds("steady", steady_body, NULL, 1, two);
    return n_failures + cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
