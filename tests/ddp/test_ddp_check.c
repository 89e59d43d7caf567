/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check mode: a gradient that is written after it was announced, in views and in copies; parameters
 * that differ between ranks, found in a step and on demand; and correct programs, in which it finds
 * nothing: steps of every kind, ranks without input, hooks that let ranks differ until they are
 * averaged.
 */
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"

#define N 4

static const struct ddp_spec specs[N] = {{"wte", TALLY_F32, 0, 2, {5, 3}},
                                         {"bias", TALLY_F16, 0, 1, {7}},
                                         {"late", TALLY_F32, TALLY_PARAM_DELAYED, 1, {3}},
                                         {"large", TALLY_F32, 0, 2, {70, 60}}};

struct scene {
    struct ddp_model model;
    tally_ddp *ddp;
};

static int start(tally_group *group, struct scene *scene, tally_ddp_config *config, bool copies)
{
    config->bucket_cap_bytes = 64;
    CHECK(group, ddp_model_make(&scene->model, specs, N, copies) == 0);
    for (size_t i = 0; i < N; i++) {
        ddp_fill_data(&scene->model, i, 7, 0);
    }
    CHECK_OK(group, tally_ddp_create(group, scene->model.params, N, config, &scene->ddp));
    return 0;
}

static int end(tally_group *group, struct scene *scene)
{
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    ddp_model_free(&scene->model);
    return 0;
}

static tally_ddp_config checked(int check)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.check = check;
    return config;
}

/* ---- gradients that are written to after they were announced ---- */

struct written {
    bool copies;
    int culprit; /* the rank that does so */
    int param;
};

static int write_late(tally_group *group, struct scene *scene, const struct written *written)
{
    char name[32];
    bool is_culprit = tally_group_rank(group) == written->culprit;

    ddp_fill_grads(&scene->model, scene->ddp, 1, tally_group_rank(group));
    for (int i = N - 1; i >= 0; i--) {
        if (i != 2) {
            CHECK_OK(group, tally_ddp_grad_ready(scene->ddp, i));
        }
        if (i == written->param && is_culprit) {
            ((unsigned char *)tally_ddp_grad(scene->ddp, i))[1] ^= 1;
        }
    }
    CHECK_STATUS(group, tally_ddp_wait(scene->ddp), TALLY_STATE);
    (void)snprintf(name, sizeof name, "parameter %d ('%s')", written->param,
                   specs[written->param].name);
    CHECK_TEXT(group, tally_last_error(), name);
    CHECK_TEXT(group, tally_last_error(), "was written to after it was announced");
    CHECK_TEXT(group, tally_last_error(), "last contribution");
    /* The step is over, and everything can be used again. */
    CHECK_OK(group, ddp_right_step(group, scene->ddp, &scene->model, 2));
    return 0;
}

static int written_body(tally_group *group, void *user)
{
    static const int params[] = {0, 1, 3};
    int world = tally_group_size(group);

    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        tally_ddp_config config = checked(1);
        struct scene scene;

        CHECK_OK(group, start(group, &scene, &config, copies));
        CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 1));
        for (size_t p = 0; p < 3; p++) {
            CHECK_OK(group, write_late(group, &scene, &(struct written){copies, 0, params[p]}));
            CHECK_OK(group,
                     write_late(group, &scene, &(struct written){copies, world - 1, params[p]}));
        }
        CHECK_OK(group, end(group, &scene));
    }
    return 0;
}

/* The same with a delayed one, an absent one in views, and one under static_graph. */
static int written_special_body(tally_group *group, void *user)
{
    tally_ddp_config config = checked(1);
    struct scene scene;

    (void)user;
    CHECK_OK(group, start(group, &scene, &config, false));
    ddp_fill_grads(&scene.model, scene.ddp, 1, tally_group_rank(group));
    CHECK_OK(group, tally_ddp_reduce_delayed(scene.ddp));
    ((float *)tally_ddp_grad(scene.ddp, 2))[0] += 1;
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 1));
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 3));
    CHECK_STATUS(group, tally_ddp_wait(scene.ddp), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "('late')");
    CHECK_OK(group, tally_ddp_grad_absent(scene.ddp, 3));
    ((float *)tally_ddp_grad(scene.ddp, 3))[9] = 1;
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 1));
    CHECK_STATUS(group, tally_ddp_wait(scene.ddp), TALLY_STATE);
    CHECK_TEXT(group, tally_last_error(), "('large')");
    CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 2));
    CHECK_OK(group, end(group, &scene));

    config = checked(1);
    config.static_graph = 1;
    CHECK_OK(group, start(group, &scene, &config, true));
    for (int s = 0; s < 3; s++) {
        ddp_fill_grads(&scene.model, scene.ddp, 1, tally_group_rank(group));
        CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
        ((float *)tally_ddp_grad(scene.ddp, 0))[0] += 1;
        CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
        CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 1));
        CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 3));
        if (s == 1) {
            ((float *)tally_ddp_grad(scene.ddp, 0))[0] += 1;
        }
        CHECK_STATUS(group, tally_ddp_wait(scene.ddp), s == 1 ? TALLY_STATE : TALLY_OK);
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- parameters that differ ---- */

/* A step, and what wait returned. */
static int step_of(struct scene *scene)
{
    for (int i = N - 1; i >= 0; i--) {
        if (i != 2) {
            (void)tally_ddp_grad_ready(scene->ddp, i);
        }
    }
    return tally_ddp_wait(scene->ddp);
}

static int expect_mismatch(tally_group *group, int rc, const char *parameter, int steps)
{
    char part[64];
    int last = tally_group_size(group) - 1;

    CHECK_STATUS(group, rc, last > 0 ? TALLY_MISMATCH : TALLY_OK);
    if (last > 0) {
        CHECK_TEXT(group, tally_last_error(), parameter);
        (void)snprintf(part, sizeof part, "after %d steps", steps);
        CHECK_TEXT(group, tally_last_error(), part);
        (void)snprintf(part, sizeof part, "rank %d differs from rank 0", last);
        CHECK_TEXT(group, tally_last_error(), part);
    }
    return 0;
}

static int differ_body(tally_group *group, void *user)
{
    int world = tally_group_size(group);
    bool errs = tally_group_rank(group) == world - 1;

    (void)user;
    for (int check = -1; check <= 2; check += 1 + (check < 0)) {
        tally_ddp_config config = checked(check);
        struct scene scene;
        unsigned char *wrong;

        CHECK_OK(group, start(group, &scene, &config, false));
        wrong = tally_ddp_data(scene.ddp, 1);
        CHECK_OK(group, tally_ddp_check(scene.ddp));
        CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 1));
        CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 1));
        wrong[3] ^= errs ? 1 : 0;
        CHECK_OK(group, expect_mismatch(group, tally_ddp_check(scene.ddp), "1 ('bias')", 2));
        if (check < 0) {
            CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 3));
        } else {
            CHECK_OK(group, expect_mismatch(group, step_of(&scene), "1 ('bias')", 2));
        }
        /* Mended, it goes on. */
        wrong[3] ^= errs ? 1 : 0;
        CHECK_OK(group, tally_ddp_check(scene.ddp));
        CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 4));
        /* Every second step is looked at. */
        wrong[3] ^= errs ? 1 : 0;
        CHECK_STATUS(group, step_of(&scene), check == 1 && world > 1 ? TALLY_MISMATCH : TALLY_OK);
        CHECK_OK(group, end(group, &scene));
    }
    return 0;
}

/* Several ranks differ: all are named. */
static int many_differ_body(tally_group *group, void *user)
{
    tally_ddp_config config = checked(0);
    struct scene scene;

    (void)user;
    if (tally_group_size(group) != 4) {
        return 0;
    }
    CHECK_OK(group, start(group, &scene, &config, true));
    ((float *)tally_ddp_data(scene.ddp, 3))[0] += (float)(tally_group_rank(group) % 2);
    CHECK_STATUS(group, tally_ddp_check(scene.ddp), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "ranks 1, 3 differ from rank 0");
    CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, 1));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* Ranks with and without check mode disagree. */
static int config_body(tally_group *group, void *user)
{
    bool errs = tally_group_rank(group) == 1;
    tally_ddp_config config = checked(errs ? 3 : 0);
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, specs, N, false) == 0);
    if (tally_group_size(group) > 1) {
        CHECK_STATUS(group, tally_ddp_create(group, model.params, N, &config, &ddp),
                     TALLY_MISMATCH);
        CHECK_TEXT(group, tally_last_error(), "check is 0 on rank 0 and 3 on rank 1");
    }
    config.check = -2;
    CHECK_STATUS(group, tally_ddp_create(group, model.params, N, &config, &ddp), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "config.check is -2");
    CHECK_STATUS(group, tally_ddp_check(NULL), TALLY_ARG);
    ddp_model_free(&model);
    return 0;
}

/* ---- correct programs ---- */

/* Absent gradients, several orders, accumulation, a hook that is replaced. */
static int right_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        tally_ddp_config config = checked(1);
        struct scene scene;

        config.find_unused = 1;
        CHECK_OK(group, start(group, &scene, &config, copies));
        for (unsigned s = 0; s < 3; s++) {
            CHECK_OK(group, ddp_right_step(group, scene.ddp, &scene.model, s));
        }
        CHECK_OK(group, tally_ddp_no_sync_begin(scene.ddp));
        CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
        CHECK_OK(group, tally_ddp_wait(scene.ddp));
        CHECK_OK(group, tally_ddp_no_sync_end(scene.ddp));
        ddp_fill_grads(&scene.model, scene.ddp, 4, tally_group_rank(group));
        CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 3));
        CHECK_OK(group, tally_ddp_wait(scene.ddp));
        CHECK_OK(group, tally_ddp_set_hook(scene.ddp, "noop"));
        /* With noop ranks may go their own ways. */
        ((float *)tally_ddp_data(scene.ddp, 0))[0] = (float)tally_group_rank(group);
        CHECK_OK(group, ddp_step(group, scene.ddp, &scene.model, 5));
        CHECK_STATUS(group, tally_ddp_check(scene.ddp), TALLY_STATE);
        CHECK_TEXT(group, tally_last_error(), "noop");
        CHECK_OK(group, end(group, &scene));
    }
    return 0;
}

/* A rank that has run out of input keeps its old parameters until all have. */
static int join_body(tally_group *group, void *user)
{
    tally_ddp_config config = checked(1);
    int rank = tally_group_rank(group);
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    config.join = 1;
    CHECK(group, ddp_model_make(&model, specs, 2, true) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 2, &config, &ddp));
    for (int s = 0; s < 2 + rank; s++) {
        CHECK_OK(group, ddp_step(group, ddp, &model, 1));
        ((float *)tally_ddp_data(ddp, 0))[0] += 1;
    }
    CHECK_OK(group, tally_ddp_join(ddp));
    CHECK_OK(group, tally_ddp_check(ddp));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* Between averagings ranks differ; behind one of all ranks they must not. */
static int average_body(tally_group *group, void *user)
{
    static const tally_averager_level level = {.period = 2};
    tally_averager_config averaging;
    tally_ddp_config config = checked(1);
    tally_averager *averager;
    struct scene scene;
    float *data;

    (void)user;
    config.hook = "postlocal:start=1";
    CHECK_OK(group, start(group, &scene, &config, true));
    tally_averager_config_init(&averaging, sizeof averaging);
    averaging.levels = &level;
    averaging.n_levels = 1;
    averaging.warmup = 1;
    CHECK_OK(group, tally_averager_create(scene.ddp, &averaging, &averager));
    data = tally_ddp_data(scene.ddp, 0);
    for (int s = 0; s < 6; s++) {
        int n_averaged;

        CHECK_OK(group, ddp_step(group, scene.ddp, &scene.model, 1));
        /* Up to the end of the warm-up all ranks make the same update. */
        data[0] += (float)(s < 1 ? 1 : tally_group_rank(group));
        CHECK_OK(group, tally_averager_step(averager, &n_averaged));
        CHECK_STATUS(group, tally_ddp_check(scene.ddp),
                     s < 1 || n_averaged ? TALLY_OK : TALLY_STATE);
    }
    CHECK_OK(group, tally_averager_average(averager));
    CHECK_OK(group, tally_ddp_check(scene.ddp));
    data[0] += (float)tally_group_rank(group);
    CHECK_STATUS(group, tally_ddp_check(scene.ddp),
                 tally_group_size(group) > 1 ? TALLY_MISMATCH : TALLY_OK);
    CHECK_OK(group, tally_averager_free(averager));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* Another test checks the messages. */
static void hear_nothing(void *user, int level, const char *text)
{
    (void)user;
    (void)level;
    (void)text;
}

int main(void)
{
    int n_failures = tally_log_set(hear_nothing, NULL, TALLY_LOG_WARN);

    n_failures += ddp_run_seven("written to", written_body, NULL, 1);

    n_failures += ddp_run("written to", written_body, NULL, 3);
    n_failures += ddp_run("written to", written_body, NULL, 0);
    n_failures += ddp_run("written to, special", written_special_body, NULL, 1);
    n_failures += ddp_run_seven("parameters differ", differ_body, NULL, 1);
    n_failures += ddp_run_world("many differ", many_differ_body, NULL, 2, 4);
    n_failures += ddp_run("config", config_body, NULL, 1);
    n_failures += ddp_run("right", right_body, NULL, 2);
    n_failures += ddp_run("join", join_body, NULL, 1);
    n_failures += ddp_run("averaged", average_body, NULL, 1);
    return n_failures != 0;
}
