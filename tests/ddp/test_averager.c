/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The averager, as PyTorch's tests have it: when averages are due and among whom, with one level
 * and with several, all or some parameters, of every dtype; what is refused, on all ranks, and by
 * which words; and a hook whose start is not the warm-up.
 */
#include <stdio.h>
#include <string.h>

#include "support/ddp_model.h"
#include "support/oracle.h"

#define N_STEPS 20

/* A ddp of these parameters, and an averager. */
struct scene {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_averager *averager;
};

static tally_averager_config one_level(const tally_averager_level *level, int warmup)
{
    tally_averager_config config;

    tally_averager_config_init(&config, sizeof config);
    config.levels = level;
    config.n_levels = 1;
    config.warmup = warmup;
    return config;
}

static int start(tally_group *group, struct scene *scene, const struct ddp_spec *specs, size_t n,
                 const tally_averager_config *config)
{
    CHECK(group, ddp_model_make(&scene->model, specs, n, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, scene->model.params, n, NULL, &scene->ddp));
    CHECK_OK(group, tally_averager_create(scene->ddp, config, &scene->averager));
    return 0;
}

static int end(tally_group *group, struct scene *scene)
{
    CHECK_STATUS(group, tally_ddp_free(scene->ddp), TALLY_STATE);
    CHECK_OK(group, tally_averager_free(scene->averager));
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    ddp_model_free(&scene->model);
    return 0;
}

static void fill_with(const struct ddp_model *model, size_t i, float value)
{
    float *data = model->params[i].data;

    for (size_t e = 0; e < model->count[i]; e++) {
        data[e] = value;
    }
}

/* Whether all elements of an fp32 parameter are this. */
static bool is_all(const struct ddp_model *model, size_t i, float value)
{
    const float *data = model->params[i].data;

    for (size_t e = 0; e < model->count[i]; e++) {
        if (data[e] != value) {
            return false;
        }
    }
    return true;
}

static const struct ddp_spec two[] = {{"w", TALLY_F32, 0, 2, {5, 7}}, {"b", TALLY_F32, 0, 1, {3}}};

/* ---- the mean, and outsiders ---- */

/* All ones stay ones; and in a group of the first two ranks 0 and 1 become a half, while what is
 * outside stays. */
static int means_body(tally_group *group, void *user)
{
    static const tally_averager_level every_step = {1, 0};
    const tally_averager_config config = one_level(&every_step, 0);
    int rank = tally_group_rank(group);
    tally_group *pair;
    struct scene scene;
    struct ddp_model outside;
    int n_averaged = -1;

    (void)user;
    CHECK_OK(group, start(group, &scene, two, 2, &config));
    fill_with(&scene.model, 0, 1);
    fill_with(&scene.model, 1, 1);
    CHECK_OK(group, tally_averager_step(scene.averager, &n_averaged));
    CHECK(group, n_averaged == tally_group_size(group));
    CHECK(group, is_all(&scene.model, 0, 1) && is_all(&scene.model, 1, 1));
    CHECK_OK(group, end(group, &scene));

    CHECK(group, ddp_model_make(&outside, two, 2, false) == 0);
    fill_with(&outside, 0, (float)rank);
    CHECK_OK(group, tally_group_split(group, rank < 2 ? 0 : -1, rank, &pair));
    if (pair) {
        CHECK_OK(group, start(pair, &scene, two, 2, &config));
        fill_with(&scene.model, 0, (float)rank);
        CHECK_OK(group, tally_averager_step(scene.averager, NULL));
        CHECK(group, is_all(&scene.model, 0, 0.5f));
        CHECK_OK(group, end(group, &scene));
    }
    CHECK(group, is_all(&outside, 0, (float)rank));
    ddp_model_free(&outside);
    CHECK_OK(group, tally_group_close(pair));
    return 0;
}

/* Now, far from any period and with smaller groups in between: all ranks, and no step counts. */
static int now_body(tally_group *group, void *user)
{
    static const tally_averager_level levels[] = {{50, 2}, {100, 0}};
    tally_averager_config config = one_level(levels, 7);
    int world = tally_group_size(group);
    tally_averager_stats stats = {.size = sizeof stats};
    struct scene scene;

    (void)user;
    config.n_levels = 2;
    CHECK_OK(group, start(group, &scene, two, 2, &config));
    CHECK_OK(group, tally_averager_step(scene.averager, NULL));
    for (int k = 1; k <= 2; k++) {
        fill_with(&scene.model, 0, (float)(k * tally_group_rank(group)));
        CHECK_OK(group, tally_averager_average(scene.averager));
        CHECK(group, is_all(&scene.model, 0, (float)(k * (world - 1)) / 2));
    }
    CHECK(group, tally_averager_steps(scene.averager) == 1);
    CHECK_OK(group, tally_averager_get_stats(scene.averager, &stats));
    CHECK(group, stats.n_averagings == 2);
    CHECK_STATUS(group, tally_averager_average(NULL), TALLY_ARG);
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 0));
    CHECK_STATUS(group, tally_averager_average(scene.averager), TALLY_STATE);
    CHECK_OK(group, tally_ddp_grad_ready(scene.ddp, 1));
    CHECK_OK(group, tally_ddp_wait(scene.ddp));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* Every dtype: the same bits as the mean of a gradient. */
static int dtypes_body(tally_group *group, void *user)
{
    static const tally_averager_level every_step = {1, 0};
    const tally_averager_config config = one_level(&every_step, 0);
    struct scene scene;

    (void)user;
    CHECK_OK(group, start(group, &scene, ddp_mixed, DDP_N_MIXED, &config));
    for (size_t i = 0; i < scene.model.n; i++) {
        if (ddp_has_gradient(&scene.model, i)) {
            ddp_fill_data(&scene.model, i, 5, tally_group_rank(group));
        }
    }
    CHECK_OK(group, ddp_step(group, scene.ddp, &scene.model, 5));
    CHECK_OK(group, tally_averager_step(scene.averager, NULL));
    for (size_t i = 0; i < scene.model.n; i++) {
        if (ddp_has_gradient(&scene.model, i)) {
            CHECK(group,
                  memcmp(scene.model.params[i].data, tally_ddp_grad(scene.ddp, (int)i),
                         scene.model.count[i] * tally_dtype_bytes(scene.model.spec[i].dtype)) == 0);
        }
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* Masters are averaged, and low copies follow. */
static int mixed_body(tally_group *group, void *user)
{
    static const tally_averager_level every_step = {1, 0};
    const tally_averager_config config = one_level(&every_step, 0);
    tally_ddp_config ddp_config;
    struct scene scene;

    (void)user;
    tally_ddp_config_init(&ddp_config, sizeof ddp_config);
    ddp_config.param_dtype = TALLY_BF16;
    CHECK(group, ddp_model_make(&scene.model, two, 2, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, scene.model.params, 2, &ddp_config, &scene.ddp));
    CHECK_OK(group, tally_averager_create(scene.ddp, &config, &scene.averager));
    fill_with(&scene.model, 1, 1 + (float)tally_group_rank(group));
    CHECK_OK(group, tally_averager_step(scene.averager, NULL));
    CHECK(group, is_all(&scene.model, 1, (float)(tally_group_size(group) + 1) / 2));
    for (size_t e = 0; e < scene.model.count[1]; e++) {
        CHECK(group, oracle_from_bfloat(((const uint16_t *)tally_ddp_low(scene.ddp, 1))[e]) ==
                         ((const float *)scene.model.params[1].data)[e]);
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- one level ---- */

/* The parameter is the rank before each step; afterwards the mean, where it was due. */
static int periodic_run(tally_group *group, tally_averager_level level, int warmup, bool by_name)
{
    const int second = 1;
    tally_averager_config config = one_level(&level, warmup);
    int world = tally_group_size(group);
    float rank = (float)tally_group_rank(group);
    struct scene scene;

    config.params = by_name ? &second : NULL;
    config.n_params = by_name;
    CHECK_OK(group, start(group, &scene, two, 2, &config));
    for (int step = 0; step < N_STEPS; step++) {
        bool due = step >= warmup && (step - warmup) % level.period == 0;
        float expected = due ? (float)(world - 1) / 2 : rank;
        int n_averaged;

        fill_with(&scene.model, 0, rank);
        fill_with(&scene.model, 1, rank);
        CHECK_OK(group, tally_averager_step(scene.averager, &n_averaged));
        CHECK(group, n_averaged == (due ? world : 0));
        CHECK(group, is_all(&scene.model, 1, expected));
        CHECK(group, is_all(&scene.model, 0, by_name ? rank : expected));
        CHECK(group, tally_averager_steps(scene.averager) == (unsigned)step + 1);
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* One level of groups is the same as all at once, for every warm-up: PyTorch's test of that
 * compares the periodic averager with itself, and there they differ. */
static int periodic_body(tally_group *group, void *user)
{
    const int period = 4;
    int world = tally_group_size(group);

    (void)user;
    for (int warmup = 12; warmup < 16; warmup++) {
        CHECK_OK(group, periodic_run(group, (tally_averager_level){period, 0}, warmup, false));
        CHECK_OK(group, periodic_run(group, (tally_averager_level){period, world}, warmup, true));
    }
    for (int warmup = 0; warmup < 4; warmup++) {
        CHECK_OK(group, periodic_run(group, (tally_averager_level){period, 0}, warmup, false));
    }
    return 0;
}

/* ---- three levels ---- */

/*
 * Periods 2, 4, 8 among 2, 4, 4 of four ranks, warm-up 10. PyTorch takes the step itself modulo the
 * period, so its largest average comes at step 16; here periods count from the end of the warm-up,
 * as with one level: 10 and 18 are of the third level, 14 and 22 of the second, 12, 16, 20, 24 of
 * pairs.
 */
static int levels_body(tally_group *group, void *user)
{
    static const tally_averager_level levels[] = {{2, 2}, {4, 4}, {8, 0}};
    const int warmup = *(const int *)user;
    tally_averager_config config = one_level(levels, warmup);
    int rank = tally_group_rank(group);
    float of_pair = rank < 2 ? 0.5f : 2.5f;
    struct scene scene;

    config.n_levels = 3;
    CHECK_OK(group, start(group, &scene, two, 2, &config));
    for (int step = 0; step < 26; step++) {
        int phase = step - warmup;
        int expected_n = phase < 0 || phase % 2 != 0 ? 0 : phase % 4 != 0 ? 2 : 4;
        float expected = expected_n == 0 ? (float)rank : expected_n == 2 ? of_pair : 1.5f;
        int n_averaged;

        fill_with(&scene.model, 0, (float)rank);
        CHECK_OK(group, tally_averager_step(scene.averager, &n_averaged));
        CHECK(group, n_averaged == expected_n);
        CHECK(group, is_all(&scene.model, 0, expected));
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- what is refused ---- */

struct refused {
    tally_averager_level levels[2];
    size_t n_levels;
    int warmup;
    const char *hook;
    const char *outer;
    int status;
    const char *words;
};

/* For six ranks. */
static const struct refused refused[] = {
    {{{0, 0}}, 1, 0, NULL, NULL, TALLY_ARG, "level 0 has period 0"},
    {{{-3, 0}}, 1, 0, NULL, NULL, TALLY_ARG, "level 0 has period -3"},
    {{{4, 0}}, 1, -1, NULL, NULL, TALLY_ARG, "warmup is -1"},
    {{{4, 0}}, 0, 0, NULL, NULL, TALLY_ARG, "no levels"},
    {{{4, 2}}, 1, 0, NULL, NULL, TALLY_ARG, "the last level has groups of 2 ranks, but must have "},
    {{{4, 4}}, 1, 0, NULL, NULL, TALLY_ARG, "level 0: groups of 4 do not divide 6"},
    {{{4, 12}}, 1, 0, NULL, NULL, TALLY_ARG, "level 0: groups of 12 do not divide 6"},
    {{{4, -2}}, 1, 0, NULL, NULL, TALLY_ARG, "level 0 has groups of -2"},
    {{{2, 2}, {4, 3}}, 2, 0, NULL, NULL, TALLY_ARG, "level 1 has groups of 3 ranks, which are not"},
    {{{2, 0}, {4, 3}}, 2, 0, NULL, NULL, TALLY_ARG, "level 1 has groups of 3 ranks, which are not"},
    {{{4, 2}, {4, 0}}, 2, 0, NULL, NULL, TALLY_ARG, "level 1 has period 4, not more than the 4"},
    {{{4, 0}}, 1, 0, "int9", NULL, TALLY_ARG, "no hook 'int9'"},
    {{{4, 0}}, 1, 0, "postlocal", NULL, TALLY_ARG, "divides the ranks into groups"},
    {{{4, 0}}, 1, 0, NULL, "sdg", TALLY_ARG, "sdg"},
};

static int refused_body(tally_group *group, void *user)
{
    static const int params[3] = {1, 1, 7};
    static const tally_averager_level level = {4, 0};
    struct scene scene;
    tally_averager_config config;

    (void)user;
    CHECK(group, ddp_model_make(&scene.model, ddp_mixed, DDP_N_MIXED, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, scene.model.params, DDP_N_MIXED, NULL, &scene.ddp));
    for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
        config = one_level(refused[k].levels, refused[k].warmup);
        config.n_levels = refused[k].n_levels;
        config.hook = refused[k].hook;
        config.outer = refused[k].outer;
        CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager),
                     refused[k].status);
        CHECK_TEXT(group, tally_last_error(), refused[k].words);
    }
    config = one_level(&level, 0);
    config.params = params;
    config.n_params = 2;
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "named twice");
    config.n_params = 0;
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "names none");
    config = one_level(&level, 0);
    config.outer = "sgd:lr=0.5";
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager),
                 TALLY_UNSUPPORTED);
    CHECK_TEXT(group, tally_last_error(), "is not fp32");
    CHECK_STATUS(group, tally_averager_create(scene.ddp, NULL, &scene.averager), TALLY_ARG);
    /* Ranks that do not agree. */
    config = one_level(&level, tally_group_rank(group) == 1 ? 3 : 2);
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "averager: warmup is 2 on rank 0 and 3 on rank 1");
    config = one_level(&level, 0);
    CHECK_OK(group, tally_averager_create(scene.ddp, &config, &scene.averager));
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager), TALLY_STATE);
    CHECK_STATUS(group, tally_averager_step(NULL, NULL), TALLY_ARG);
    CHECK_OK(group, tally_averager_free(NULL));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- a hook that starts when the warm-up ends, or does not ---- */

static int warmup_body(tally_group *group, void *user)
{
    static const tally_averager_level level = {4, 0};
    tally_averager_config config = one_level(&level, 7);
    struct scene scene;

    (void)user;
    CHECK(group, ddp_model_make(&scene.model, two, 2, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, scene.model.params, 2, NULL, &scene.ddp));
    CHECK_OK(group, tally_ddp_set_hook(scene.ddp, "postlocal:start=8"));
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &config, &scene.averager), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "step 8");
    CHECK_TEXT(group, tally_last_error(), "warmup is 7");
    CHECK_OK(group, tally_ddp_set_hook(scene.ddp, "bf16(postlocal:start=7)"));
    CHECK_OK(group, tally_averager_create(scene.ddp, &config, &scene.averager));
    CHECK_STATUS(group, tally_ddp_set_hook(scene.ddp, "postlocal:start=6"), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "step 6");
    CHECK_OK(group, tally_ddp_set_hook(scene.ddp, "postlocal:start=7(int8)"));
    CHECK_OK(group, tally_ddp_set_hook(scene.ddp, "allreduce"));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 4};
    int warmups[] = {10, 0, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
        n_failures += ddp_run_world("dtypes", dtypes_body, NULL, 1, worlds[w]);
        n_failures += ddp_run_world("mixed", mixed_body, NULL, 1, worlds[w]);
        n_failures += ddp_run_world("periodic", periodic_body, NULL, 1, worlds[w]);
    }
    n_failures += ddp_run_world("means", means_body, NULL, 1, 2);
    n_failures += ddp_run_world("means", means_body, NULL, 1, 3);
    n_failures += ddp_run_world("now", now_body, NULL, 1, 2);
    n_failures += ddp_run_world("now", now_body, NULL, 1, 4);
    for (size_t k = 0; k < sizeof warmups / sizeof warmups[0]; k++) {
        n_failures += ddp_run_world("levels", levels_body, &warmups[k], 1, 4);
    }
    n_failures += ddp_run_world("refused", refused_body, NULL, 1, 6);
    n_failures += ddp_run_world("warmup", warmup_body, NULL, 1, 2);
    return n_failures != 0;
}
