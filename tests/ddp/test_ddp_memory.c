/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: after warm-up no step allocates; and each allocation may fail once, without a leak, a
 * hang or a wrong mean.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/counting_ranks.h"
#include "support/ddp_model.h"
#include "support/oracle.h"

#define N_WARM_UP 4
#define N_COUNTED 100

/* ---- none per step ---- */

struct variant {
    const char *what;
    int copies;
    int find_unused;
    int static_graph;
    int skip_unused;
    int join;
    bool delayed;
};

static const struct variant variants[] = {
    {"views", .copies = 0},
    {"copies", .copies = 1},
    {"views, unused", .find_unused = 1, .skip_unused = 1},
    {"copies, unused", .copies = 1, .find_unused = 1},
    {"copies, static graph", .copies = 1, .static_graph = 1},
    {"views, join", .join = 1},
    {"copies, join", .copies = 1, .join = 1},
    {"copies, delayed", .copies = 1, .delayed = true},
    {"views, delayed", .delayed = true},
};

static int step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                const struct variant *variant, unsigned s)
{
    double loss = 1;
    double norm;

    for (int i = DDP_N_MIXED - 3; i >= 0; i--) {
        bool absent = variant->find_unused && ((unsigned)i + s) % 3 == 0;

        if (!(model->spec[i].flags & TALLY_PARAM_DELAYED) && !absent) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
    }
    if (variant->delayed && s % 2 == 0) {
        CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK_OK(group, tally_ddp_clip_grad_norm(ddp, 1, &norm));
    CHECK_OK(group, tally_ddp_mean_scalar(ddp, &loss));
    CHECK_OK(group, tally_ddp_zero_grad(ddp));
    return 0;
}

static int count(tally_group *group, const struct variant *variant)
{
    struct ddp_spec specs[DDP_N_MIXED];
    struct ddp_model model;
    char text[32] = "";
    tally_buffer buffer = {sizeof buffer, "text", text, sizeof text, TALLY_U8};
    tally_ddp_config config;
    tally_ddp *ddp;
    size_t before;

    memcpy(specs, ddp_mixed, sizeof specs);
    specs[1].flags = variant->delayed ? TALLY_PARAM_DELAYED : 0;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 400;
    config.find_unused = variant->find_unused;
    config.static_graph = variant->static_graph;
    config.skip_unused = variant->skip_unused;
    config.join = variant->join;
    config.buffers = &buffer;
    config.n_buffers = 1;
    CHECK(group, ddp_model_make(&model, specs, DDP_N_MIXED, variant->copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    for (unsigned s = 0; s < N_WARM_UP; s++) {
        CHECK_OK(group, step(group, ddp, &model, variant, s));
    }
    CHECK_OK(group, counting_ranks_begin(group, &before));
    for (unsigned s = 0; s < N_COUNTED; s++) {
        CHECK_OK(group, step(group, ddp, &model, variant, s));
    }
    CHECK_OK(group, counting_ranks_none(group, before));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int count_body(tally_group *group, void *user)
{
    (void)user;
    for (unsigned v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        if (count(group, &variants[v]) != 0) {
            (void)fprintf(stderr, "with %s\n", variants[v].what);
            return RANKS_FAILED;
        }
    }
    return 0;
}

/* ---- the N-th fails ---- */

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

struct alone {
    struct ddp_model model;
    int lanes;
    char text[32];
};

static int make_and_free(tally_group *group, struct alone *alone)
{
    const tally_hook_table table = {.size = sizeof table, .name = "own", .reduce = reduce};
    tally_buffer buffer = {sizeof buffer, "text", alone->text, sizeof alone->text, TALLY_U8};
    tally_ddp_config config;
    tally_hook *hook = NULL;
    tally_ddp *ddp;
    int rc;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 300;
    config.buffers = &buffer;
    config.n_buffers = 1;
    rc = tally_ddp_create(group, alone->model.params, alone->model.n, &config, &ddp);
    if (rc != TALLY_OK) {
        return rc;
    }
    rc = tally_hook_create(&table, NULL, &hook);
    if (rc == TALLY_OK) {
        rc = tally_ddp_attach_hook(ddp, hook);
    }
    tally_hook_free(hook);
    (void)tally_ddp_free(ddp);
    return rc;
}

static int exhaust_creation(void *user)
{
    struct alone *alone = user;
    tally_group_config config;
    tally_group *group;
    int rc;

    tally_group_config_init(&config, sizeof config);
    config.lanes = alone->lanes;
    rc = tally_group_open_threads(&config, 1, &group);
    if (rc == TALLY_OK) {
        rc = make_and_free(group, alone);
        (void)tally_group_close(group);
    }
    return rc;
}

static int check_creation(bool copies, int lanes)
{
    struct alone alone = {.lanes = lanes};
    int failed = ddp_model_make(&alone.model, ddp_mixed, DDP_N_MIXED, copies);

    /* The first one's array makes tally make the others'. */
    for (size_t i = 1; i < alone.model.n; i++) {
        free(alone.model.params[i].grad);
        alone.model.params[i].grad = NULL;
    }
    if (failed == 0) {
        size_t n = counting_memory_exhaust(exhaust_creation, &alone);

        (void)printf("creation, %s, %d lanes: %zu allocations\n", copies ? "copies" : "views",
                     lanes, n);
        failed = n < 20;
    }
    ddp_model_free(&alone.model);
    return failed;
}

/* ---- the N-th fails during steps ---- */

/* Steps with an absent gradient in each, until one fails; what can be tried again is. A rebuild
 * that fails costs nothing but speed. Returns OK or NOMEM; anything else is wrong. */
static int steps_with_failure(tally_ddp *ddp, const struct ddp_model *model)
{
    for (unsigned s = 0; s < 3; s++) {
        int rc;

        for (int i = DDP_N_MIXED - 3; i >= 0; i--) {
            ddp_fill_grad(model, ddp, (size_t)i, s, 0);
            rc = i == 1 ? tally_ddp_grad_absent(ddp, i) : tally_ddp_grad_ready(ddp, i);
            if (rc == TALLY_NOMEM && i == 1) {
                rc = tally_ddp_grad_absent(ddp, i);
            }
            /* The gradient stays announced; its launch is tried again. */
            if (rc != TALLY_OK && rc != TALLY_NOMEM && rc != TALLY_STATE) {
                return rc;
            }
        }
        rc = tally_ddp_wait(ddp);
        if (rc != TALLY_OK) {
            return rc;
        }
        for (size_t i = 0; i < DDP_N_MIXED - 2; i++) {
            if (i != 1 && ddp_wrong(model, ddp, i, ((struct ddp_mean){s, 1, 1, 1})) != 0) {
                return TALLY_INTERNAL;
            }
        }
    }
    return TALLY_OK;
}

static int check_steps(bool copies, int lanes)
{
    struct ddp_model model;
    int n_failures = ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, copies) != 0;
    size_t n = 0;
    bool met = true;

    while (met && n_failures == 0) {
        size_t live = counting_memory_live();
        tally_group_config group_config;
        tally_ddp_config config;
        tally_group *group;
        tally_ddp *ddp;
        size_t calls;
        int rc;

        tally_group_config_init(&group_config, sizeof group_config);
        group_config.lanes = lanes;
        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = 300;
        if (tally_group_open_threads(&group_config, 1, &group) != TALLY_OK ||
            tally_ddp_create(group, model.params, model.n, &config, &ddp) != TALLY_OK) {
            (void)fprintf(stderr, "%s\n", tally_last_error());
            return 1;
        }
        calls = counting_memory_calls();
        counting_memory_fail_nth(++n);
        rc = steps_with_failure(ddp, &model);
        counting_memory_fail_nth(0);
        met = counting_memory_calls() - calls >= n;
        n_failures += rc != TALLY_OK && !(rc == TALLY_NOMEM && met);
        n_failures += tally_ddp_free(ddp) != TALLY_OK || tally_group_close(group) != TALLY_OK;
        n_failures += counting_memory_live() != live;
        if (n_failures) {
            (void)fprintf(stderr, "allocation %zu of the steps: %s: %s\n", n, tally_status_name(rc),
                          tally_last_error());
        }
    }
    (void)printf("steps, %s, %d lanes: %zu allocations\n", copies ? "copies" : "views", lanes,
                 n - 1);
    ddp_model_free(&model);
    return n_failures;
}

/* ---- on one rank of several ---- */

/* Rank 0 cannot keep an absent gradient: it is told, and the step goes on when it tries again. */
static int one_rank_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 300;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    for (int i = DDP_N_MIXED - 3; i >= 0; i--) {
        if (rank > 0 || i != 1) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
    }
    if (rank == 0) {
        /* Only the first absence in a bucket needs memory, and no other call is under way but those
         * of lanes, which allocate nothing. */
        counting_memory_fail_nth(1);
        CHECK_STATUS(group, tally_ddp_grad_absent(ddp, 1), TALLY_NOMEM);
        CHECK_TEXT(group, tally_last_error(), "unused gradients");
        counting_memory_fail_nth(0);
        CHECK_OK(group, tally_ddp_grad_absent(ddp, 1));
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 2));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* The last rank's N-th allocation of a creation fails: all ranks hear of it at once, and creation
 * works afterwards. As threads, ranks share the door to the heap: so as processes only. */
static int creation_body(tally_group *group, void *user)
{
    int last = tally_group_size(group) - 1;
    struct ddp_model model;
    tally_buffer buffer = {sizeof buffer, "buffer", &last, 0, TALLY_U8};
    tally_ddp_config config;
    tally_ddp *ddp = NULL;
    int rc = TALLY_NOMEM;

    tally_ddp_config_init(&config, sizeof config);
    config.buffers = &buffer;
    config.n_buffers = 1;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, *(const int *)user) == 0);
    /* Warm-up: what jobs are kept in is there afterwards. */
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    CHECK_OK(group, tally_ddp_free(ddp));
    for (unsigned n = 1; rc == TALLY_NOMEM; n++) {
        char text[32];

        CHECK(group, n < 500);
        (void)snprintf(text, sizeof text, "rank %d: ", last);
        if (tally_group_rank(group) == last) {
            counting_memory_fail_nth(n);
        }
        rc = tally_ddp_create(group, model.params, model.n, &config, &ddp);
        counting_memory_fail_nth(0);
        CHECK(group, rc == TALLY_OK || rc == TALLY_NOMEM);
        if (rc == TALLY_NOMEM) {
            CHECK_TEXT(group, tally_last_error(), text);
        }
        CHECK(group, n > 20 || rc == TALLY_NOMEM);
    }
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 2));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int check_creation_of_one(void)
{
    int n_failures = 0;

    for (int world = 1; world <= 3 && ranks_have_processes(); world++) {
        for (int copies = 0; copies < 2; copies++) {
            const struct ranks ranks = {.kind = RANKS_PROCESSES, .world = world, .lanes = 1};

            n_failures += ranks_run(&ranks, creation_body, &copies);
        }
    }
    return n_failures;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (int lanes = 0; lanes < 2; lanes++) {
        for (int copies = 0; copies < 2; copies++) {
            n_failures += check_creation(copies, lanes) + check_steps(copies, lanes);
        }
    }
    n_failures += ddp_run("none per step", count_body, NULL, 1);
    n_failures += ddp_run("none per step", count_body, NULL, 3);
    n_failures += ddp_run("on one rank", one_rank_body, NULL, 1);
    n_failures += check_creation_of_one();
    return n_failures != 0;
}
