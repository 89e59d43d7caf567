/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: after warm-up a step with an optimizer allocates nothing; and every allocation there is
 * when one is made, saved, loaded and used may fail, once, without a leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/counting_ranks.h"
#include "support/opt_model.h"

#define N_WARM_UP 3
#define N_COUNTED 20

/* ---- none per step ---- */

struct variant {
    const char *what;
    bool copies;
    int overlap;
    int find_unused;
    int join;
    double max_norm;
};

static const struct variant variants[] = {
    {"on call", false, 0, 0, 0, 0},
    {"on call, clipped", true, 0, 1, 0, 0.5},
    {"views, overlap", false, 1, 0, 0, 0},
    {"copies, overlap, unused", true, 1, 1, 0, 0},
    {"views, overlap, clipped", false, 1, 1, 0, 0.5},
    {"views, overlap, join", false, 1, 0, 1, 0},
};

static int step(struct opt_run *run, const struct variant *variant, unsigned s)
{
    unsigned absent = variant->find_unused ? 1u << s % OPT_N_PARAMS : 0;

    CHECK_OK(run->group, tally_optimizer_set_lr(run->optimizer, -1, 0.1 / (s + 1)));
    CHECK_OK(run->group, opt_step(run, s, absent));
    if (!variant->overlap) {
        CHECK_OK(run->group, tally_optimizer_step(run->optimizer));
    }
    return 0;
}

static int count(tally_group *group, const struct variant *variant)
{
    tally_ddp_config ddp;
    tally_optimizer_config config;
    const struct opt_setup setup = {
        .copies = variant->copies, .text = "adamw", .config = &config, .ddp = &ddp};
    struct opt_run run;
    size_t before;

    tally_ddp_config_init(&ddp, sizeof ddp);
    ddp.bucket_cap_bytes = 4000;
    ddp.find_unused = variant->find_unused;
    ddp.join = variant->join;
    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = variant->overlap;
    config.max_norm = variant->max_norm;
    config.release_gradients = 1;
    CHECK_OK(group, opt_start(group, &setup, &run));
    for (unsigned s = 0; s < N_WARM_UP; s++) {
        CHECK_OK(group, step(&run, variant, s));
    }
    CHECK_OK(group, counting_ranks_begin(group, &before));
    for (unsigned s = 0; s < N_COUNTED; s++) {
        CHECK_OK(group, step(&run, variant, s));
    }
    CHECK_OK(group, counting_ranks_none(group, before));
    return opt_end(&run);
}

static int count_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        if (count(group, &variants[v]) != 0) {
            (void)fprintf(stderr, "with %s\n", variants[v].what);
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* ---- the N-th fails ---- */

static int step_param(void *user, const tally_step_param *param)
{
    (void)user;
    param->state[0][0] += param->gradient[0];
    return TALLY_OK;
}

/* Not through CHECK: a failure is what is wanted. */
static int use(tally_ddp *ddp, tally_optimizer *optimizer, void *blob, size_t room)
{
    const void *const blobs[] = {blob};
    size_t bytes = room;
    int rc = TALLY_OK;

    for (int i = OPT_N_PARAMS - 1; i >= 0 && rc == TALLY_OK; i--) {
        rc = tally_ddp_grad_ready(ddp, i);
    }
    if (rc == TALLY_OK) {
        rc = tally_ddp_wait(ddp);
    }
    if (rc == TALLY_OK) {
        rc = tally_optimizer_save(optimizer, blob, &bytes);
    }
    if (rc == TALLY_OK) {
        rc = tally_optimizer_consolidate(optimizer, 0, blob, &bytes);
    }
    if (rc == TALLY_OK) {
        rc = tally_optimizer_load(optimizer, blobs, &bytes, 1);
    }
    return rc;
}

static int create(tally_ddp *ddp, tally_optimizer **optimizer)
{
    static const int some[] = {0, 4};
    static const tally_optimizer_table table = {
        .size = sizeof table, .name = "own", .n_states = 2, .step_param = step_param};
    const tally_optimizer_group groups[] = {
        {.size = sizeof groups[0], .table = &table, .params = some, .n_params = 2},
        {.size = sizeof groups[0], .text = "adam:amsgrad=1"}};
    tally_optimizer_config config;

    tally_optimizer_config_init(&config, sizeof config);
    config.groups = groups;
    config.n_groups = 2;
    config.overlap = 1;
    config.max_norm = 1;
    return tally_optimizer_create(ddp, NULL, &config, optimizer);
}

static int exhaust(void *user)
{
    const struct ddp_model *model = user;
    size_t room = (size_t)1 << 20;
    unsigned char *blob = malloc(room);
    tally_optimizer *optimizer = NULL;
    tally_ddp *ddp = NULL;
    tally_group_config config;
    tally_group *group = NULL;
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.lanes = 0;
    rc = tally_group_open_threads(&config, 1, &group);
    if (rc == TALLY_OK) {
        rc = tally_ddp_create(group, model->params, model->n, NULL, &ddp);
    }
    if (rc == TALLY_OK) {
        rc = create(ddp, &optimizer);
    }
    if (rc == TALLY_OK) {
        /* Unaligned: a copy is made to load it. */
        rc = use(ddp, optimizer, blob + 1, room - 1);
    }
    /* In the middle of a step the ddp has to go first. */
    (void)tally_ddp_free(ddp);
    (void)tally_optimizer_free(optimizer);
    (void)tally_group_close(group);
    free(blob);
    return rc;
}

static void test_nth_allocation(void **state)
{
    struct ddp_model model;
    size_t n;

    (void)state;
    assert_int_equal(ddp_model_make(&model, opt_specs, OPT_N_PARAMS, false), 0);
    n = counting_memory_exhaust(exhaust, &model);
    (void)printf("%zu allocations\n", n);
    assert_true(n > 60);
    ddp_model_free(&model);
}

static void test_none_per_step(void **state)
{
    static const int two_three[] = {2, 3, 0};

    (void)state;
    assert_int_equal(opt_worlds("steps", count_body, NULL, 1, two_three), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_per_step),
        cmocka_unit_test(test_nth_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
