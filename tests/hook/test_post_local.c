/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook postlocal: means over all ranks up to a step, then over groups of consecutive ranks or
 * over none, to the bit, with copies and views, and the bytes it sends; PyTorch's test of its hook;
 * groups that do not divide the ranks; and the hook as an object, put in the place of the inner one
 * and back.
 */
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

#define START 2
#define N_STEPS 5

/* ---- means and bytes ---- */

/* The ranks that exchange with this one in a step, as a mask. */
static unsigned ranks_of(const tally_group *group, unsigned step, int group_size)
{
    int size = step < START ? tally_group_size(group) : group_size < 1 ? 1 : group_size;

    return ((1u << size) - 1) << (tally_group_rank(group) / size * size);
}

static int count_bits(unsigned ranks)
{
    int n = 0;

    for (; ranks; ranks &= ranks - 1) {
        n++;
    }
    return n;
}

static size_t wrong_means(const struct ddp_model *model, const tally_ddp *ddp, struct ddp_mean mean)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i)) {
            n_wrong += ddp_wrong(model, ddp, i, mean);
        }
    }
    return n_wrong;
}

static int run_groups(tally_group *group, int group_size, bool copies)
{
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp_config config;
    tally_ddp *ddp;
    char text[64];

    (void)snprintf(text, sizeof text, "postlocal:start=%d,group=%d", START, group_size);
    tally_ddp_config_init(&config, sizeof config);
    config.hook = text;
    config.bucket_cap_bytes = 500;
    CHECK(group, ddp_model_make(&model, ddp_mixed, DDP_N_MIXED, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    for (unsigned step = 0; step < N_STEPS; step++) {
        unsigned ranks = ranks_of(group, step, group_size);
        tally_ddp_stats stats = {.size = sizeof stats};

        CHECK_OK(group, ddp_step(group, ddp, &model, step));
        CHECK(group, wrong_means(&model, ddp,
                                 (struct ddp_mean){step, world, ranks, count_bits(ranks)}) == 0);
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, (stats.wire_bytes > 0) == (count_bits(ranks) > 1));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int groups_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);

    (void)user;
    for (int size = 0; size <= world; size++) {
        if (size == 0 || world % size == 0) {
            CHECK_OK(group, run_groups(group, size, size % 2 == 0));
        }
    }
    return 0;
}

/* Among two ranks each inner hook sends the bytes that it sends in a world of two. */
static int bytes_body(tally_group *group, void *user)
{
    static const char *const hooks[] = {"allreduce", "bf16", "int8", "quantize_per_channel"};
    const struct ddp_spec matrix = {"matrix", TALLY_F32, 0, 2, {61, 70}};
    const struct hook_bucket bucket = {
        .dtype = TALLY_F32, .n_params = 1, .count = {61 * 70}, .n_dims = {2}};
    int rank = tally_group_rank(group);
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, &matrix, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    for (size_t k = 0; k < sizeof hooks / sizeof hooks[0]; k++) {
        tally_ddp_stats stats = {.size = sizeof stats};
        char text[64];

        (void)snprintf(text, sizeof text, "postlocal:start=0,group=2(%s)", hooks[k]);
        CHECK_OK(group, tally_ddp_set_hook(ddp, text));
        CHECK_OK(group, ddp_step(group, ddp, &model, 1));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group,
              stats.wire_bytes == hook_sent_bytes(hook_rule_of(hooks[k]), &bucket, 2, rank % 2));
        CHECK(group, strcmp(stats.hook, text) == 0 || k == 0);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* ---- PyTorch's test: a layer from 1 to 5, the input is the rank, the loss the sum ---- */

#define N_ITERATIONS 100

static int upstream_run(tally_group *group, const char *text, int n_validated)
{
    const struct ddp_spec layer = {"weight", TALLY_F32, 0, 2, {5, 1}};
    int world = tally_group_size(group);
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, &layer, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, text));
    for (int s = 0; s < N_ITERATIONS; s++) {
        float *grad = tally_ddp_grad(ddp, 0);
        float expected = s < n_validated ? (float)(world - 1) / 2 : (float)tally_group_rank(group);

        for (int e = 0; e < 5; e++) {
            grad[e] = (float)tally_group_rank(group);
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
        CHECK(group, grad[0] == expected && grad[4] == expected);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int upstream_body(tally_group *group, void *user)
{
    char text[64];

    (void)user;
    (void)snprintf(text, sizeof text, "postlocal:start=10,group=%d", tally_group_size(group));
    CHECK_OK(group, upstream_run(group, text, N_ITERATIONS));
    CHECK_OK(group, upstream_run(group, "postlocal:start=10", 10));
    CHECK_OK(group, upstream_run(group, "postlocal:start=1000", N_ITERATIONS));
    return 0;
}

/* ---- mistakes, and the hook as an object ---- */

static int errors_body(tally_group *group, void *user)
{
    const struct ddp_spec spec = {"p", TALLY_F32, 0, 2, {11, 7}};
    tally_hook *hook = NULL;
    struct ddp_model model;
    char text[64];
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    (void)snprintf(text, sizeof text, "postlocal:group=%d", tally_group_size(group) + 1);
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, text), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "do not divide");
    CHECK_STATUS(group, tally_hook_parse("postlocal(bf16(postlocal))", &hook), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "divides the ranks into groups");
    CHECK_STATUS(group, tally_hook_parse("postlocal:start=-1", &hook), TALLY_ARG);
    /* The old hook still works. */
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 3));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* Steps whose means are those over the pairs. */
static int pair_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                     unsigned seed)
{
    unsigned ranks = 3u << (tally_group_rank(group) / 2 * 2);

    CHECK_OK(group, ddp_step(group, ddp, model, seed));
    CHECK(group,
          wrong_means(model, ddp, (struct ddp_mean){seed, tally_group_size(group), ranks, 2}) == 0);
    return 0;
}

/* One object serves one ddp, may be attached again, be wrapped, and wrap what is attached. */
static int objects_body(tally_group *group, void *user)
{
    const struct ddp_spec spec = {"p", TALLY_F32, 0, 2, {31, 7}};
    tally_hook *plain;
    tally_hook *local;
    tally_hook *around;
    struct ddp_model model;
    tally_ddp *ddp;
    tally_ddp *other;

    (void)user;
    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &other));
    CHECK_OK(group, tally_hook_parse("powersgd", &plain));
    CHECK_OK(group, tally_hook_wrap("postlocal:start=0,group=2", plain, &local));
    CHECK_OK(group, tally_hook_wrap("bf16", local, &around));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, plain));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, local));
    CHECK_OK(group, pair_step(group, ddp, &model, 2));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, local));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, around));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, local));
    CHECK_OK(group, pair_step(group, ddp, &model, 3));
    CHECK_STATUS(group, tally_ddp_attach_hook(other, local), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "one ddp at a time");
    CHECK_OK(group, pair_step(group, ddp, &model, 4));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, plain));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 5));
    CHECK_OK(group, tally_ddp_set_hook(ddp, "allreduce"));
    CHECK_OK(group, tally_ddp_attach_hook(other, local));
    CHECK_OK(group, pair_step(group, other, &model, 6));
    CHECK_OK(group, tally_ddp_free(ddp));
    CHECK_OK(group, tally_ddp_free(other));
    tally_hook_free(plain);
    tally_hook_free(local);
    tally_hook_free(around);
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    const struct ranks eight = {.kind = RANKS_THREADS, .world = 8, .lanes = 1};
    int n_failures = 0;

    oracle_start();
    for (int world = 1; world <= 4; world++) {
        n_failures += hook_run("groups", groups_body, NULL, world);
    }
    n_failures += ranks_run(&eight, groups_body, NULL);
    for (int world = 2; world <= 3; world++) {
        n_failures += hook_run("upstream", upstream_body, NULL, world);
        n_failures += hook_run("errors", errors_body, NULL, world);
    }
    n_failures += hook_run("bytes", bytes_body, NULL, 4);
    n_failures += hook_run("objects", objects_body, NULL, 4);
    return n_failures != 0;
}
