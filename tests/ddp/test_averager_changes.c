/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averagers that send changes: an outer optimizer against a literal reference in double precision;
 * hooks that lose something, with one level and with two: the ranks that averaged have the same
 * bits, and what is left out comes later, so that the mean stays right.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ddp_model.h"
#include "support/oracle.h"

#define N_ROWS 24
#define N_COLUMNS 30
#define N ((size_t)(N_ROWS * N_COLUMNS))
#define MAX_WORLD 4

static const struct ddp_spec matrix = {"matrix", TALLY_F32, 0, 2, {N_ROWS, N_COLUMNS}};

struct scene {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_averager *averager;
};

static int start(tally_group *group, struct scene *scene, const tally_averager_config *config)
{
    CHECK(group, ddp_model_make(&scene->model, &matrix, 1, false) == 0);
    ddp_fill_data(&scene->model, 0, 77, 0);
    CHECK_OK(group, tally_ddp_create(group, scene->model.params, 1, NULL, &scene->ddp));
    CHECK_OK(group, tally_averager_create(scene->ddp, config, &scene->averager));
    return 0;
}

static int end(tally_group *group, struct scene *scene)
{
    CHECK_OK(group, tally_averager_free(scene->averager));
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    ddp_model_free(&scene->model);
    return 0;
}

static tally_averager_config config_of(const tally_averager_level *levels, size_t n, int warmup)
{
    tally_averager_config config;

    tally_averager_config_init(&config, sizeof config);
    config.levels = levels;
    config.n_levels = n;
    config.warmup = warmup;
    return config;
}

/* ---- an outer optimizer ---- */

#define PERIOD 3
#define WARMUP 4
#define LR 0.7
#define MOMENTUM 0.9

/* All ranks' parameters and what the outer optimizer keeps, by the book. */
struct reference {
    int world;
    double x[MAX_WORLD][N];
    double anchor[N];
    double momentum[N];
};

/* The local update of this rank to element e in a step. */
static double update_of(int step, int rank, size_t e)
{
    return 0.1 * ddp_value(TALLY_F32, (unsigned)step + 100, rank, 0, e);
}

static void average_reference(struct reference *reference, bool is_first)
{
    for (size_t e = 0; e < N; e++) {
        double mean = 0;

        for (int r = 0; r < reference->world; r++) {
            mean += reference->x[r][e] / reference->world;
        }
        if (is_first) {
            reference->anchor[e] = mean;
        } else {
            double change = reference->anchor[e] - mean;

            reference->momentum[e] = MOMENTUM * reference->momentum[e] + change;
            reference->anchor[e] -= LR * (change + MOMENTUM * reference->momentum[e]);
        }
        for (int r = 0; r < reference->world; r++) {
            reference->x[r][e] = reference->anchor[e];
        }
    }
}

static int follow(tally_group *group, struct scene *scene, struct reference *reference)
{
    int rank = tally_group_rank(group);
    float *x = scene->model.params[0].data;

    for (int step = 0; step < 26; step++) {
        bool due = step >= WARMUP && (step - WARMUP) % PERIOD == 0;
        int n_averaged;

        for (size_t e = 0; e < N; e++) {
            /* In the warm-up all ranks do the same. */
            x[e] += (float)update_of(step, step < WARMUP ? 0 : rank, e);
            for (int r = 0; r < reference->world; r++) {
                reference->x[r][e] += update_of(step, step < WARMUP ? 0 : r, e);
            }
        }
        CHECK_OK(group, tally_averager_step(scene->averager, &n_averaged));
        CHECK(group, (n_averaged > 0) == due);
        if (due) {
            average_reference(reference, step == WARMUP);
        }
        for (size_t e = 0; e < N; e++) {
            CHECK(group, fabs((double)x[e] - reference->x[rank][e]) < 1e-5);
        }
        if (due) {
            ranks_note(group, 0, ranks_hash(0, x, N * sizeof *x));
        }
    }
    return 0;
}

static int outer_body(tally_group *group, void *user)
{
    static const tally_averager_level level = {PERIOD, 0};
    tally_averager_config config = config_of(&level, 1, WARMUP);
    struct reference *reference = calloc(1, sizeof *reference);
    struct scene scene;
    int rc;

    config.outer = "sgd:lr=0.7,momentum=0.9,nesterov=1";
    config.hook = user;
    CHECK(group, reference);
    reference->world = tally_group_size(group);
    rc = start(group, &scene, &config);
    for (int r = 0; r < reference->world && rc == 0; r++) {
        for (size_t e = 0; e < N; e++) {
            reference->x[r][e] = ((const float *)scene.model.params[0].data)[e];
        }
    }
    rc = rc ? rc : follow(group, &scene, reference);
    rc = rc ? rc : end(group, &scene);
    free(reference);
    return rc;
}

/* ---- hooks that lose something ---- */

struct lossy {
    const char *hook;
    double largest; /* error of the mean */
};

/* Whether all ranks have the same value: 1 or 0. */
static int equal_job(tally_lane *lane, void *user)
{
    uint64_t *hash = user;
    int64_t ends[2] = {(int64_t)(*hash >> 1), -(int64_t)(*hash >> 1)};
    int rc = tally_lane_all_reduce(lane, ends, 2, TALLY_I64, TALLY_MIN);

    *hash = rc == TALLY_OK && ends[0] == -ends[1];
    return rc;
}

/* Each rank approaches its own goal; all ranks together should reach the mean of the goals. */
static double goal_of(int rank, size_t e)
{
    return ddp_value(TALLY_F32, 9, rank, 0, e);
}

static void pull(struct scene *scene, int rank)
{
    float *x = scene->model.params[0].data;

    for (size_t e = 0; e < N; e++) {
        x[e] -= 0.1f * (x[e] - (float)goal_of(rank, e));
    }
}

static double error_of(const struct scene *scene, int world)
{
    const float *x = scene->model.params[0].data;
    double most = 0;

    for (size_t e = 0; e < N; e++) {
        double mean = 0;

        for (int r = 0; r < world; r++) {
            mean += goal_of(r, e) / world;
        }
        most = fmax(most, fabs((double)x[e] - mean));
    }
    return most;
}

static int pull_together(tally_group *group, const struct lossy *lossy,
                         const tally_averager_config *config)
{
    int world = tally_group_size(group);
    struct scene scene;
    double worst = 0;

    CHECK_OK(group, start(group, &scene, config));
    for (int step = 0; step < 320; step++) {
        int n_averaged;

        pull(&scene, tally_group_rank(group));
        CHECK_OK(group, tally_averager_step(scene.averager, &n_averaged));
        if (n_averaged == world) {
            const float *x = scene.model.params[0].data;
            uint64_t hash = ranks_hash(0, x, N * sizeof *x);

            CHECK_OK(group, ranks_job(group, 0, equal_job, &hash));
            CHECK(group, hash == 1);
            worst = step >= 200 ? fmax(worst, error_of(&scene, world)) : worst;
        }
    }
    if (!(worst <= lossy->largest)) {
        (void)fprintf(stderr, "%s: %g, at most %g\n", lossy->hook, worst, lossy->largest);
        return ranks_fail(group, __FILE__, __LINE__, "the mean stays right");
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

static int lossy_body(tally_group *group, void *user)
{
    static const tally_averager_level levels[] = {{2, 2}, {4, 0}};
    const struct lossy *lossy = user;
    tally_averager_config config = config_of(&levels[1], 1, 0);

    config.hook = lossy->hook;
    CHECK_OK(group, pull_together(group, lossy, &config));
    config = config_of(levels, 2, 3);
    config.hook = lossy->hook;
    if (tally_group_size(group) % 2 == 0) {
        CHECK_OK(group, pull_together(group, lossy, &config));
    }
    return 0;
}

int main(void)
{
    /* A rank goes a third of its way to its own goal, up to 0.7, between two averages. Without
     * feedback PowerSGD would be 0.2 off for good. */
    static struct lossy hooks[] = {{"allreduce", 1e-6},
                                   {"bf16", 3e-3},
                                   {"int8:block=64", 3e-3},
                                   {"bf16(int8:exempt=none)", 4e-3},
                                   {"powersgd:rank=6,start=0", 3e-3}};
    int n_failures = 0;

    oracle_start();
    for (int world = 2; world <= 4; world++) {
        n_failures += ddp_run_world("outer", outer_body, NULL, 1, world);
        for (size_t k = 0; k < sizeof hooks / sizeof hooks[0] && world > 2; k++) {
            n_failures += ddp_run_world(hooks[k].hook, lossy_body, &hooks[k], 1, world);
        }
    }
    return n_failures != 0;
}
