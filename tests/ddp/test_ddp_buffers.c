/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that travels in addition to the gradients of a step: buffers, by broadcast or by a hook, and
 * the gradients of delayed parameters at a chosen moment.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define BUFFER_BYTES 40
#define LARGE_BYTES 20000

struct buffers {
    unsigned char small[BUFFER_BYTES];
    unsigned char large[LARGE_BYTES];
    float mean[3];
    tally_buffer list[4];
    bool fails; /* the hook, on the last rank */
    int n_calls;
};

static void fill(struct buffers *buffers, int value)
{
    memset(buffers->small, value, sizeof buffers->small);
    memset(buffers->large, value + 1, sizeof buffers->large);
    for (int i = 0; i < 3; i++) {
        buffers->mean[i] = (float)value;
    }
}

static bool is(const struct buffers *buffers, int value)
{
    for (size_t i = 0; i < LARGE_BYTES; i++) {
        if (buffers->small[i % BUFFER_BYTES] != value || buffers->large[i] != value + 1) {
            return false;
        }
    }
    return true;
}

static int average(void *user, tally_lane *lane, const tally_buffer *list, size_t n)
{
    struct buffers *buffers = user;
    tally_group *group = tally_lane_group(lane);

    buffers->n_calls++;
    if (n != 4 || list[3].data != buffers->mean || strcmp(list[3].name, "mean") != 0) {
        return tally_job_fail(lane, TALLY_INTERNAL, "not the buffers that were given");
    }
    if (buffers->fails && tally_group_rank(group) == tally_group_size(group) - 1) {
        return tally_job_fail(lane, TALLY_NUMERIC, "no average today");
    }
    return tally_lane_all_reduce(lane, list[3].data, 3, TALLY_F32, TALLY_MEAN);
}

static void prepare(struct buffers *buffers, tally_ddp_config *config)
{
    memset(buffers, 0, sizeof *buffers);
    buffers->list[0] =
        (tally_buffer){sizeof(tally_buffer), "small", buffers->small, BUFFER_BYTES, TALLY_U8};
    buffers->list[1] =
        (tally_buffer){sizeof(tally_buffer), "large", buffers->large, LARGE_BYTES, TALLY_U8};
    buffers->list[2] = (tally_buffer){sizeof(tally_buffer), "empty", NULL, 0, TALLY_U8};
    buffers->list[3] =
        (tally_buffer){sizeof(tally_buffer), "mean", buffers->mean, sizeof buffers->mean, TALLY_U8};
    tally_ddp_config_init(config, sizeof *config);
    config->buffers = buffers->list;
    config->n_buffers = 4;
}

/* ---- broadcast ---- */

static int broadcast_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);

    (void)user;
    for (int o = 0; o < 4; o++) {
        struct ddp_model model;
        struct buffers buffers;
        tally_ddp_config config;
        tally_ddp *ddp;

        prepare(&buffers, &config);
        fill(&buffers, 7 + rank);
        config.keep_parameters = o & 1;
        config.keep_buffers = o >> 1;
        CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, o & 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        CHECK(group, is(&buffers, config.keep_parameters ? 7 + rank : 7));
        for (int s = 0; s < 4; s++) {
            fill(&buffers, 20 * s + rank);
            /* Not with a step that only accumulates. */
            CHECK_OK(group, tally_ddp_no_sync_begin(ddp));
            CHECK_OK(group, ddp_step(group, ddp, &model, 1));
            CHECK_OK(group, tally_ddp_no_sync_end(ddp));
            CHECK(group, is(&buffers, 20 * s + rank));
            CHECK_OK(group, ddp_right_step(group, ddp, &model, (unsigned)s));
            CHECK(group, is(&buffers, config.keep_buffers ? 20 * s + rank : 20 * s));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- by a hook ---- */

static int hook_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);
    struct ddp_model model;
    struct buffers buffers;
    tally_ddp_config config;
    tally_ddp *ddp;
    char text[64] = "mean";

    (void)user;
    prepare(&buffers, &config);
    /* The name is gone once the ddp is made. */
    buffers.list[3].name = text;
    buffers.list[0].name = NULL;
    config.buffer_hook = average;
    config.buffer_hook_user = &buffers;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, true) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    CHECK(group, buffers.n_calls == 0);
    (void)snprintf(text, sizeof text, "rank %d: no average today", world - 1);
    for (int s = 0; s < 6; s++) {
        buffers.n_calls = 0;
        buffers.fails = s == 0 || s == 3;
        fill(&buffers, 20 + rank);
        if (buffers.fails) {
            ddp_fill_grads(&model, ddp, 1, rank);
            for (int i = 0; i < DDP_N_MIXED - 2; i++) {
                CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
            }
            CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_NUMERIC);
            CHECK(group, strcmp(tally_last_error(), text) == 0);
        } else {
            CHECK_OK(group, ddp_right_step(group, ddp, &model, (unsigned)s));
            CHECK(group, is(&buffers, 20 + rank));
            CHECK(group, buffers.mean[2] == 20 + (float)(world - 1) / 2);
        }
        CHECK(group, buffers.n_calls == 1);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- delayed parameters ---- */

#define N 5

static const struct ddp_spec specs[N] = {
    {"a", TALLY_F32, 0, 1, {30}},
    {"late", TALLY_F32, TALLY_PARAM_DELAYED, 2, {4, 5}},
    {"b", TALLY_F64, 0, 1, {8}},
    {"later", TALLY_F16, TALLY_PARAM_DELAYED, 1, {77}},
    {"latest", TALLY_F32, TALLY_PARAM_DELAYED, 1, {3000}},
};

static bool is_delayed(size_t i)
{
    return (specs[i].flags & TALLY_PARAM_DELAYED) != 0;
}

/* Delayed gradients were written in step 0 of three and are reduced with the third. */
static int delayed_round(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                         unsigned seed, int moment)
{
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);

    for (size_t i = 0; i < N; i++) {
        if (is_delayed(i)) {
            ddp_fill_grad(model, ddp, i, seed, rank);
        }
    }
    for (unsigned s = 0; s < 3; s++) {
        if (s == 2 && moment == 0) {
            CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
        }
        for (size_t i = N; i-- > 0;) {
            if (!is_delayed(i)) {
                ddp_fill_grad(model, ddp, i, seed + s, rank);
                CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
            }
            if (s == 2 && moment == 1 && i == 1) {
                CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
            }
        }
        if (s == 2 && moment == 2) {
            CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, ddp_wrong_means(model, ddp, seed + s, world) == 0);
        for (size_t i = 0; i < N; i++) {
            const void *grad = tally_ddp_grad(ddp, (int)i);

            if (is_delayed(i)) {
                CHECK(group, s < 2 ? ddp_not_of(model, i, grad, seed, rank) == 0
                                   : ddp_wrong(model, ddp, i,
                                               ((struct ddp_mean){seed, world, ~0u, world})) == 0);
            }
        }
    }
    return 0;
}

static int delayed_body(tally_group *group, void *user)
{
    (void)user;
    for (int o = 0; o < 8; o++) {
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = 100;
        config.static_graph = o >> 1 & 1;
        config.skip_unused = o >> 2 & 1;
        CHECK(group, ddp_model_make(&model, specs, N, o & 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, N, &config, &ddp));
        for (int round = 0; round < 4; round++) {
            CHECK_OK(group, delayed_round(group, ddp, &model, 10 * (unsigned)round, round % 3));
        }
        /* Asked for in a step that only accumulates: not now, and not later. */
        CHECK_OK(group, tally_ddp_no_sync_begin(ddp));
        CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
        CHECK_OK(group, tally_ddp_no_sync_end(ddp));
        CHECK_OK(group, delayed_round(group, ddp, &model, 90, 2));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- before wait ---- */

#define N_SEEN_WORD 8

/* Counts, per rank, the buckets of delayed parameters. */
static int counting_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    int rank = tally_group_rank(tally_lane_group(lane));

    (void)state;
    if (is_delayed((size_t)bucket->params[0].index)) {
        (void)atomic_fetch_add(&ranks_words()[N_SEEN_WORD + rank], 1);
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

/* Delayed gradients travel as soon as those of the step do, in either order of the calls: no rank
 * has to wait. */
static int early_body(tally_group *group, void *user)
{
    static const tally_hook_table table = {
        .size = sizeof table, .name = "counting", .reduce = counting_reduce};
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);
    struct ddp_model model;
    tally_hook *hook;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, specs, N, *(const int *)user) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N, NULL, &ddp));
    CHECK_OK(group, tally_hook_create(&table, NULL, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    tally_hook_free(hook);
    for (uint32_t s = 0; s < 4; s++) {
        ddp_fill_grads(&model, ddp, s, rank);
        if (s % 2 == 0) {
            CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 2));
        CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
        /* One of fp32 and one of fp16. */
        CHECK_OK(group, ranks_await(&ranks_words()[N_SEEN_WORD + rank], 2 * (s + 1)));
        CHECK_STATUS(group, tally_ddp_zero_grad(ddp), TALLY_STATE);
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, ddp_wrong_means(&model, ddp, s, world) == 0);
        for (size_t i = 0; i < N; i++) {
            CHECK(group,
                  !is_delayed(i) ||
                      ddp_wrong(&model, ddp, i, ((struct ddp_mean){s, world, ~0u, world})) == 0);
        }
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* Nothing else has a gradient. */
static int only_delayed_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);

    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        tally_ddp_stats stats = {.size = sizeof stats};
        tally_bucket_stats bucket = {.size = sizeof bucket};
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, &specs[3], 2, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 2, NULL, &ddp));
        for (unsigned s = 0; s < 3; s++) {
            CHECK_STATUS(group, tally_ddp_wait(ddp), TALLY_STATE);
            ddp_fill_grads(&model, ddp, s, tally_group_rank(group));
            CHECK_OK(group, tally_ddp_reduce_delayed(ddp));
            CHECK_OK(group, tally_ddp_wait(ddp));
            CHECK(group, ddp_wrong(&model, ddp, 0, ((struct ddp_mean){s, world, ~0u, world})) == 0);
            CHECK(group, ddp_wrong(&model, ddp, 1, ((struct ddp_mean){s, world, ~0u, world})) == 0);
        }
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, stats.step == 3 && stats.n_buckets == 0);
        CHECK_STATUS(group, tally_ddp_get_bucket_stats(ddp, 0, &bucket), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "there is no bucket 0: a step has none");
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    int n_failures = ddp_run("broadcast", broadcast_body, NULL, 1);

    n_failures += ddp_run("buffer hook", hook_body, NULL, 1);
    n_failures += ddp_run("delayed", delayed_body, NULL, 1);
    n_failures += ddp_run("delayed", delayed_body, NULL, 3);
    for (int copies = 0; copies < 2; copies++) {
        n_failures += ddp_run("delayed, before wait", early_body, &copies, 1);
    }
    n_failures += ddp_run("only delayed", only_delayed_body, NULL, 1);
    return n_failures != 0;
}
