/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error feedback of int8: over many steps of a fixed gradient the sum of the means that were
 * applied stays within one step's quantization error of the true sum, and without feedback it does
 * not; through a rebuild of the buckets, for ranks that run out of input, and when another hook
 * takes over, which delivers what is left.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

#define N_STEPS 200
#define BLOCK 512
#define N 5
#define MOST 4270 /* elements of a parameter */

/* A scale for each block: of two matrices of several blocks, one of part of a block. */
static const struct ddp_spec specs[N] = {
    {"w1", TALLY_F32, 0, 2, {70, 61}},    {"bias", TALLY_F32, 0, 1, {300}},
    {"w2", TALLY_F32, 0, 2, {13, 17}},    {"scale", TALLY_F32, 0, 0, {0}},
    {"w3", TALLY_F32, 0, 3, {3, 7, 100}},
};

struct training {
    tally_group *group;
    int world;
    struct ddp_model model;
    tally_ddp *ddp;
    double applied[N][MOST]; /* the sum of the means of all steps */
    int n_steps[16];         /* that each rank took part in with its gradient */
};

static int start(tally_group *group, struct training *training, const tally_ddp_config *config,
                 bool copies)
{
    *training = (struct training){.group = group, .world = tally_group_size(group)};
    CHECK(group, ddp_model_make(&training->model, specs, N, copies) == 0);
    CHECK_OK(group, tally_ddp_create(group, training->model.params, N, config, &training->ddp));
    for (size_t i = 0; i < N; i++) {
        CHECK(group, training->model.count[i] <= MOST);
    }
    return 0;
}

static int end(struct training *training)
{
    CHECK_OK(training->group, tally_ddp_free(training->ddp));
    ddp_model_free(&training->model);
    return 0;
}

/* One step; factor 0 is a step without a gradient. Parameters are announced in another order than
 * they lie in, so copies get other buckets after the first step. */
static int step_without(struct training *training, float factor, size_t absent)
{
    static const size_t order[N] = {2, 0, 4, 1, 3};
    tally_group *group = training->group;

    for (size_t k = 0; k < N; k++) {
        size_t i = order[k];
        float *grad = tally_ddp_grad(training->ddp, (int)i);

        if (i == absent) {
            continue;
        }
        for (size_t e = 0; e < training->model.count[i]; e++) {
            grad[e] = factor * hook_value(3, tally_group_rank(group), i, e);
        }
        CHECK_OK(group, tally_ddp_grad_ready(training->ddp, (int)i));
    }
    CHECK_OK(group, tally_ddp_wait(training->ddp));
    for (size_t i = 0; i < N; i++) {
        const float *grad = tally_ddp_grad(training->ddp, (int)i);

        for (size_t e = 0; i != absent && e < training->model.count[i]; e++) {
            training->applied[i][e] += (double)grad[e];
        }
    }
    return 0;
}

static int step(struct training *training, float factor)
{
    return step_without(training, factor, N);
}

/* ---- bounds ---- */

/* The largest value of each rank in the block that starts with this element, their mean. */
static double most_of_block(const struct training *training, size_t i, size_t first)
{
    size_t left = training->model.count[i] - first;
    size_t n = left < BLOCK ? left : BLOCK;
    double mean = 0;

    for (int r = 0; r < training->world; r++) {
        double most = 0;

        for (size_t e = first; e < first + n; e++) {
            most = fmax(most, fabs((double)hook_value(3, r, i, e)));
        }
        mean += most / training->world;
    }
    return mean;
}

/* The error that rounding in fp32 may add up to. */
static double rounding(double most)
{
    return N_STEPS * most * 4 * FLT_EPSILON;
}

/*
 * The largest error of the applied sum in a block. A residual is at most half a step of its block's
 * scale, which is at most max|v| / 127, v = gradient + residual, so max|v| <= max|x| + max|v| /
 * 254. This holds for each rank, over the divisor, and for the owner, where v is the mean of the
 * contributions.
 */
static double bound(double most)
{
    return 2 * most / 254 * 1.01 + rounding(most);
}

static double true_sum(const struct training *training, size_t i, size_t e)
{
    double sum = 0;

    for (int r = 0; r < training->world; r++) {
        sum += training->n_steps[r] * (double)hook_value(3, r, i, e);
    }
    return sum / training->world;
}

/* The largest of |applied - true| over what limit allows, of matrices or of vectors and scalars. */
static double worst_of(const struct training *training, bool matrices, double (*limit)(double most))
{
    double worst = 0;

    for (size_t i = 0; i < N; i++) {
        double most = 0;

        for (size_t e = 0; e < training->model.count[i] && (specs[i].n_dims >= 2) == matrices;
             e++) {
            most = e % BLOCK ? most : most_of_block(training, i, e);
            worst =
                fmax(worst, fabs(training->applied[i][e] - true_sum(training, i, e)) / limit(most));
        }
    }
    return worst;
}

/* Within one step's quantization error up to 1. */
static double worst_of_matrices(const struct training *training)
{
    return worst_of(training, true, bound);
}

/* Whether the applied sums are true up to fp32's rounding: of vectors and scalars, or of all. */
static bool is_exact(const struct training *training, bool matrices_too)
{
    return worst_of(training, false, rounding) <= 1 &&
           (!matrices_too || worst_of(training, true, rounding) <= 1);
}

/* ---- a fixed gradient ---- */

static int fixed(tally_group *group, const char *hook, bool copies, double *worst)
{
    struct training training;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 6000;
    config.hook = hook;
    CHECK_OK(group, start(group, &training, &config, copies));
    for (int s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, step(&training, 1));
    }
    for (int r = 0; r < training.world; r++) {
        training.n_steps[r] = N_STEPS;
    }
    CHECK_OK(group, tally_ddp_get_stats(training.ddp, &stats));
    CHECK(group, stats.rebuilt == copies && stats.n_buckets > 1);
    *worst = worst_of_matrices(&training);
    /* Vectors and scalars travel as numbers. */
    CHECK(group, is_exact(&training, false));
    return end(&training);
}

static int fixed_body(tally_group *group, void *user)
{
    double worst;

    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        CHECK_OK(group, fixed(group, "int8", copies, &worst));
        CHECK(group, worst > 0 && worst <= 1);
    }
    CHECK_OK(group, fixed(group, "int8:feedback=0", false, &worst));
    CHECK(group, worst > 10);
    return 0;
}

/* ---- another hook takes over ---- */

static int handed_over(tally_group *group, const char *next, bool copies, int n_steps)
{
    struct training training;
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 6000;
    CHECK_OK(group, start(group, &training, &config, copies));
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "int8"));
    for (int s = 0; s < n_steps; s++) {
        CHECK_OK(group, step(&training, 1));
    }
    for (int r = 0; r < training.world; r++) {
        training.n_steps[r] = n_steps;
    }
    CHECK(group, worst_of_matrices(&training) > 0);
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, next));
    CHECK_OK(group, step(&training, 0));
    CHECK(group, is_exact(&training, true));
    /* Once. */
    CHECK_OK(group, step(&training, 0));
    CHECK(group, is_exact(&training, true));
    return end(&training);
}

/* Keeps residuals in its own way: adds them all and leaves nothing. */
static int deliver(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    for (int k = 0; k < bucket->n_params; k++) {
        float *residual;
        int rc = tally_bucket_residual(bucket, k, &residual);

        if (rc != TALLY_OK) {
            return rc;
        }
        for (size_t e = 0; e < bucket->params[k].n; e++) {
            ((float *)bucket->params[k].gradient)[e] += residual[e];
            residual[e] = 0;
        }
    }
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int own_hook_takes_over(tally_group *group)
{
    static const tally_hook_table table = {
        .size = sizeof table, .name = "deliver", .feedback = 1, .reduce = deliver};
    struct training training;
    tally_hook *hook;

    CHECK_OK(group, start(group, &training, NULL, false));
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "int8"));
    for (int s = 0; s < 5; s++) {
        CHECK_OK(group, step(&training, 1));
    }
    for (int r = 0; r < training.world; r++) {
        training.n_steps[r] = 5;
    }
    CHECK_OK(group, tally_hook_create(&table, NULL, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(training.ddp, hook));
    tally_hook_free(hook);
    CHECK_OK(group, step(&training, 0));
    CHECK(group, is_exact(&training, true));
    return end(&training);
}

/* A parameter that was encoded and is exempt now gets its residual added too. */
static int exemption_changes(tally_group *group)
{
    struct training training;

    CHECK_OK(group, start(group, &training, NULL, false));
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "int8:exempt=none"));
    for (int s = 0; s < 5; s++) {
        CHECK_OK(group, step(&training, 1));
    }
    for (int r = 0; r < training.world; r++) {
        training.n_steps[r] = 5;
    }
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "int8"));
    CHECK_OK(group, step(&training, 0));
    CHECK(group, is_exact(&training, false));
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "allreduce"));
    CHECK_OK(group, step(&training, 0));
    CHECK(group, is_exact(&training, true));
    return end(&training);
}

static int hand_over_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        CHECK_OK(group, handed_over(group, "allreduce", copies, 7));
        /* Before the rebuild's buckets have been used: the owners are others now. */
        CHECK_OK(group, handed_over(group, "allreduce", copies, 1));
    }
    CHECK_OK(group, own_hook_takes_over(group));
    CHECK_OK(group, exemption_changes(group));
    return 0;
}

/* ---- ranks that run out of input ---- */

static int join_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    struct training training;
    tally_ddp_config config;
    double worst;

    tally_ddp_config_init(&config, sizeof config);
    config.join = 1;
    config.bucket_cap_bytes = 6000;
    CHECK_OK(group, start(group, &training, &config, *(const int *)user));
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "int8"));
    for (int r = 0; r < training.world; r++) {
        training.n_steps[r] = 3 + 4 * r;
    }
    for (int s = 0; s < training.n_steps[rank]; s++) {
        CHECK_OK(group, step(&training, 1));
    }
    CHECK_OK(group, tally_ddp_join(training.ddp));
    /* Only the last rank saw all the means. */
    worst = rank == training.world - 1 ? worst_of_matrices(&training) : 0;
    CHECK(group, worst <= 1);
    /* With the residuals of all ranks the sum is exact. */
    CHECK_OK(group, tally_ddp_set_hook(training.ddp, "allreduce"));
    CHECK_OK(group, step(&training, 0));
    CHECK(group, rank < training.world - 1 || is_exact(&training, true));
    CHECK_OK(group, tally_ddp_join(training.ddp));
    return end(&training);
}

/* ---- a parameter that no rank has a gradient for, every other step ---- */

static int unused_body(tally_group *group, void *user)
{
    struct training training;
    tally_ddp_config config;
    double worst = 0;
    double limit = 0;

    tally_ddp_config_init(&config, sizeof config);
    config.find_unused = 1;
    config.hook = "int8";
    CHECK_OK(group, start(group, &training, &config, *(const int *)user));
    for (int s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, step_without(&training, 1, s % 2 ? 0 : N));
    }
    for (int r = 0; r < training.world; r++) {
        training.n_steps[r] = N_STEPS / 2;
    }
    for (size_t e = 0; e < training.model.count[0]; e++) {
        limit = e % BLOCK ? limit : bound(most_of_block(&training, 0, e));
        worst = fmax(worst, fabs(training.applied[0][e] - true_sum(&training, 0, e)) / limit);
    }
    CHECK_OK(group, end(&training));
    /* The residual that was taken back travels once more, together with a gradient. */
    CHECK(group, worst > 0 && worst <= 2);
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_REPEATS(sizeof worlds / sizeof worlds[0], 3); w++) {
        n_failures += hook_run("a fixed gradient", fixed_body, NULL, worlds[w]);
        n_failures += hook_run("another hook", hand_over_body, NULL, worlds[w]);
        for (int copies = 0; copies < 2; copies++) {
            n_failures += hook_run("join", join_body, &copies, worlds[w]);
            n_failures += hook_run("unused", unused_body, &copies, worlds[w]);
        }
    }
    return n_failures != 0;
}
