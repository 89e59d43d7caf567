/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combinations of features of the ddp: accumulation with absent gradients, delayed parameters with
 * clipping, a static graph with parameters that are never used, a ddp freed in the middle of a
 * step.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 8

struct two {
    float data[2][N];
    size_t shape[1];
    tally_param params[2];
};

/* Two parameters with gradients in separate buckets; flags are those of the second. */
static void make_two(struct two *two, unsigned flags)
{
    static const char *const names[] = {"a", "b"};

    memset(two, 0, sizeof *two);
    two->shape[0] = N;
    for (int i = 0; i < 2; i++) {
        two->params[i] = (tally_param){.size = sizeof(tally_param),
                                       .name = names[i],
                                       .n_dims = 1,
                                       .shape = two->shape,
                                       .dtype = TALLY_F32,
                                       .data = two->data[i],
                                       .flags = i == 1 ? flags : 0};
    }
}

static void fill(tally_ddp *ddp, int i, float value)
{
    float *grad = tally_ddp_grad(ddp, i);

    for (int k = 0; k < N; k++) {
        grad[k] = value;
    }
}

static bool is(tally_ddp *ddp, int i, float value)
{
    const float *grad = tally_ddp_grad(ddp, i);

    for (int k = 0; k < N; k++) {
        if (grad[k] != value) {
            return false;
        }
    }
    return true;
}

/* Even ranks use a and then b, odd ones b and then a: each gradient is there on every rank. */
static int accumulate_body(tally_group *group, void *user)
{
    struct two two;
    tally_ddp_config config;
    tally_ddp *ddp;
    int first = tally_group_rank(group) % 2;

    (void)user;
    make_two(&two, 0);
    tally_ddp_config_init(&config, sizeof config);
    config.find_unused = 1;
    config.bucket_cap_bytes = 1;
    CHECK_OK(group, tally_ddp_create(group, two.params, 2, &config, &ddp));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(group, tally_ddp_zero_grad(ddp));
        CHECK_OK(group, tally_ddp_no_sync_begin(ddp));
        fill(ddp, first, 1);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, first));
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK_OK(group, tally_ddp_no_sync_end(ddp));
        fill(ddp, 1 - first, 1);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 1 - first));
        if (step == 1) {
            CHECK_OK(group, tally_ddp_grad_absent(ddp, first));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, is(ddp, 0, 1) && is(ddp, 1, 1));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* A delayed gradient that was not reduced differs between ranks: clipping leaves it out. */
static int delayed_body(tally_group *group, void *user)
{
    struct two two;
    tally_ddp *ddp;
    float own = (float)(10 * (tally_group_rank(group) + 1));
    double norm;

    (void)user;
    make_two(&two, TALLY_PARAM_DELAYED);
    CHECK_OK(group, tally_ddp_create(group, two.params, 2, NULL, &ddp));
    CHECK(group, tally_ddp_grad_ready(ddp, 1) == TALLY_ARG);
    CHECK(group, strstr(tally_last_error(), "'b'") != NULL);
    CHECK(group, tally_ddp_grad_absent(ddp, 1) == TALLY_ARG);
    fill(ddp, 0, 2);
    fill(ddp, 1, own);
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK(group, is(ddp, 1, own));
    CHECK_OK(group, tally_ddp_clip_grad_norm(ddp, 1, &norm));
    CHECK(group, norm * norm > 4 * N - 1e-9 && norm * norm < 4 * N + 1e-9);
    CHECK(group, is(ddp, 1, own));
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* The first bucket's parameter is never used: the second must not wait for tally_ddp_wait. */
static int static_body(tally_group *group, void *user)
{
    struct two two;
    tally_ddp_config config;
    tally_ddp *ddp;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_bucket_stats bucket = {.size = sizeof bucket};

    (void)user;
    make_two(&two, 0);
    tally_ddp_config_init(&config, sizeof config);
    config.static_graph = 1;
    config.bucket_cap_bytes = 1;
    CHECK_OK(group, tally_ddp_create(group, two.params, 2, &config, &ddp));
    for (int step = 0; step < 3; step++) {
        fill(ddp, 0, 3);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        ranks_sleep_ms(20);
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, is(ddp, 0, 3));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK_OK(group, tally_ddp_get_bucket_stats(ddp, 1, &bucket));
        CHECK(group, step == 0 || bucket.launch_s < stats.backward_s);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* Rank 0 forgets a gradient and gives up; no other rank waits long for it. */
static int freed_body(tally_group *group, void *user)
{
    struct two two;
    tally_ddp *ddp;

    (void)user;
    make_two(&two, 0);
    CHECK_OK(group, tally_ddp_create(group, two.params, 2, NULL, &ddp));
    /* A rank that is still in the last round of the creation would be told of the end there. */
    (void)atomic_fetch_add(&ranks_words()[0], 1);
    CHECK_OK(group, ranks_await(&ranks_words()[0], (uint32_t)tally_group_size(group)));
    fill(ddp, 0, 1);
    fill(ddp, 1, 1);
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    if (tally_group_rank(group) == 0) {
        CHECK(group, tally_ddp_wait(ddp) == TALLY_STATE);
    } else {
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
        CHECK(group, tally_ddp_wait(ddp) == TALLY_ABORTED);
        CHECK(group, strstr(tally_last_error(), "rank 0") != NULL);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    /* The group it was made from is as it was. */
    CHECK_OK(group, tally_ddp_create(group, two.params, 2, NULL, &ddp));
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("accumulated and absent", accumulate_body, NULL, 1);

    n_failures += ddp_run("delayed and clipped", delayed_body, NULL, 1);
    n_failures += ddp_run("static and never used", static_body, NULL, 2);
    n_failures += ddp_run("freed in a step", freed_body, NULL, 1);
    return n_failures > 0;
}
