/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The purpose of error feedback: the mean of the applied steps approaches the true mean, also with
 * P and Q in 16 bits on the wire, and a model learns as well as without compression. Without
 * feedback neither holds.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ddp/ddp.h"
#include "hook/power.h"
#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/* ---- a fixed gradient ---- */

static const struct ddp_spec matrices[] = {
    {"w1", TALLY_F32, 0, 2, {24, 18}},
    {"conv", TALLY_F32, 0, 4, {12, 3, 3, 3}},
    {"w2", TALLY_F32, 0, 2, {30, 24}},
};
#define MOST (30 * 24)

static double steady(unsigned step, int rank, size_t i, size_t e)
{
    (void)step;
    return power_value(0, rank, i, e);
}

struct sums {
    double sum[N_OF(matrices)][MOST];
};

/* Distance of the mean of n steps from the mean of the gradients: that of the worst parameter. */
static double distance(const struct ddp_model *model, const struct sums *sums, unsigned n,
                       int world)
{
    double most = 0;

    for (size_t i = 0; i < model->n; i++) {
        double off = 0;
        double whole = 0;

        for (size_t e = 0; e < model->count[i]; e++) {
            double mean = 0;

            for (int r = 0; r < world; r++) {
                mean += steady(0, r, i, e) / world;
            }
            off += (sums->sum[i][e] / n - mean) * (sums->sum[i][e] / n - mean);
            whole += mean * mean;
        }
        most = off <= most * most * whole ? most : sqrt(off / whole);
    }
    return most;
}

/* The distances after n and after 8 n steps. */
static int average(tally_group *group, const char *text, unsigned n, double *distances)
{
    struct ddp_model model;
    struct sums sums = {0};
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, matrices, N_OF(matrices), false) == 0);
    CHECK_OK(group, power_create(group, &model, 1500, text, &ddp));
    for (unsigned s = 0; s < 8 * n; s++) {
        CHECK_OK(group, power_run_step(group, ddp, &model, steady, s));
        for (size_t i = 0; i < model.n; i++) {
            const float *grad = tally_ddp_grad(ddp, (int)i);

            for (size_t e = 0; e < model.count[i]; e++) {
                sums.sum[i][e] += (double)grad[e];
            }
        }
        if (s + 1 == n) {
            distances[0] = distance(&model, &sums, n, tally_group_size(group));
        }
    }
    distances[1] = distance(&model, &sums, 8 * n, tally_group_size(group));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int average_body(tally_group *group, void *user)
{
    static const struct {
        const char *text;
        unsigned n;
        double least;
        double most; /* distance in the end */
    } cases[] = {
        {"powersgd:start=0", 50, 0, 0.05},
        {"powersgd:rank=2,start=0", 50, 0, 0.03},
        {"powersgd:rank=2,start=0,warm_start=0", 50, 0, 0.05},
        {"batched_powersgd:rank=2,start=0", 50, 0, 0.05},
        {"powersgd:rank=2,start=0,feedback=0", 50, 0.2, 1},
    };

    (void)user;
    for (size_t k = 0; k < N_OF(cases); k++) {
        double distances[2];
        bool converges = cases[k].least == 0;

        CHECK_OK(group, average(group, cases[k].text, cases[k].n, distances));
        if (distances[1] < cases[k].least || !(distances[1] <= cases[k].most) ||
            (distances[1] < distances[0] / 4) != converges) {
            (void)fprintf(stderr, "%s: off by %g after %u steps, by %g after %u\n", cases[k].text,
                          distances[0], cases[k].n, distances[1], 8 * cases[k].n);
            return ranks_fail(group, __FILE__, __LINE__, "the mean of what is applied");
        }
    }
    return 0;
}

/*
 * 16 bits on the wire: the mean of Q has 16 bits. Later steps send what the rounding lost, so the
 * mean of many steps is nearer than one mean in 16 bits.
 */
static int halves_body(tally_group *group, void *user)
{
    double plain[2];
    double ours[2];

    (void)user;
    CHECK_OK(group, average(group, "bf16", 5, plain));
    CHECK_OK(group, average(group, "bf16(powersgd:rank=32,start=0,min_rate=0)", 50, ours));
    CHECK(group, ours[1] < plain[1] / 2);
    CHECK_OK(group, average(group, "fp16(powersgd:rank=32,start=0,min_rate=0)", 50, ours));
    CHECK(group, ours[1] < plain[1] / 8);
    return 0;
}

/* ---- residuals stay small ---- */

/* The largest residual there is. */
static float largest(const tally_ddp *ddp, const struct ddp_model *model)
{
    float most = 0;

    for (size_t i = 0; i < model->n; i++) {
        for (size_t e = 0; e < model->count[i]; e++) {
            most = fmaxf(most, fabsf(ddp->residuals->params[i].sent[e]));
        }
    }
    return most;
}

/* As many columns as rows and more: sooner or later every P has been near every row. */
static const struct ddp_spec wide[N_OF(matrices)] = {
    {"w1", TALLY_F32, 0, 2, {18, 24}},
    {"conv", TALLY_F32, 0, 4, {12, 3, 3, 3}},
    {"w2", TALLY_F32, 0, 2, {24, 30}},
};

/* Gradients are below 2, and differ from rank to rank by always the same. */
static int small_body(tally_group *group, void *user)
{
    static const char *const texts[] = {"powersgd:rank=2,start=0",
                                        "batched_powersgd:rank=2,start=0"};

    (void)user;
    for (size_t k = 0; k < N_OF(texts); k++) {
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, wide, N_OF(wide), false) == 0);
        CHECK_OK(group, power_create(group, &model, 1500, texts[k], &ddp));
        for (unsigned s = 0; s < RANKS_REPEATS(1000, 100); s++) {
            CHECK_OK(group, power_run_step(group, ddp, &model, steady, s));
        }
        CHECK_OK(group, tally__residuals_make_plain(ddp->residuals));
        CHECK(group, largest(ddp, &model) > 0.1F);
        CHECK(group, largest(ddp, &model) < 50);
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- least squares ---- */

#define INPUTS 16
#define OUTPUTS 12
#define SAMPLES 40 /* of each rank */
#define N_STEPS 200
#define RATE 0.2

static const struct ddp_spec weights = {"weights", TALLY_F32, 0, 2, {OUTPUTS, INPUTS}};

struct sample {
    double x[INPUTS];
    double y[OUTPUTS];
};

/* Inputs of several sizes; outputs are a linear map of them, and noise. */
static struct sample sample_of(int rank, size_t n)
{
    struct sample sample;

    for (size_t j = 0; j < INPUTS; j++) {
        sample.x[j] = 2 * ddp_value(TALLY_F64, 1, rank, n, j) / sqrt((double)(j + 1));
    }
    for (size_t i = 0; i < OUTPUTS; i++) {
        sample.y[i] = ddp_value(TALLY_F64, 2, rank, n, i);
        for (size_t j = 0; j < INPUTS; j++) {
            sample.y[i] += 3 * ddp_value(TALLY_F64, 3, 0, i, j) * sample.x[j];
        }
    }
    return sample;
}

/* The loss of a rank's samples, and its gradient, which may be NULL. */
static double loss_of(int rank, const float *w, float *grad)
{
    double sum[OUTPUTS * INPUTS] = {0};
    double loss = 0;

    for (size_t n = 0; n < SAMPLES; n++) {
        struct sample sample = sample_of(rank, n);

        for (size_t i = 0; i < OUTPUTS; i++) {
            double error = -sample.y[i];

            for (size_t j = 0; j < INPUTS; j++) {
                error += (double)w[i * INPUTS + j] * sample.x[j];
            }
            loss += error * error / 2 / SAMPLES;
            for (size_t j = 0; j < INPUTS; j++) {
                sum[i * INPUTS + j] += error * sample.x[j] / SAMPLES;
            }
        }
    }
    for (size_t e = 0; e < OUTPUTS * INPUTS && grad; e++) {
        grad[e] = (float)sum[e];
    }
    return loss;
}

static int train(tally_group *group, const char *text, double *loss)
{
    struct ddp_model model;
    tally_ddp *ddp;
    float *w;

    CHECK(group, ddp_model_make(&model, &weights, 1, false) == 0);
    CHECK_OK(group, power_create(group, &model, 0, text, &ddp));
    w = model.params[0].data;
    for (int s = 0; s < N_STEPS; s++) {
        float *grad = tally_ddp_grad(ddp, 0);

        (void)loss_of(tally_group_rank(group), w, grad);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
        for (size_t e = 0; e < OUTPUTS * INPUTS; e++) {
            w[e] -= (float)RATE * grad[e];
        }
    }
    *loss = 0;
    for (int r = 0; r < tally_group_size(group); r++) {
        *loss += loss_of(r, w, NULL) / tally_group_size(group);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int learning_body(tally_group *group, void *user)
{
    static const char *const texts[] = {"powersgd:start=0", "powersgd:start=0,warm_start=0",
                                        "bf16(powersgd:start=10)", "batched_powersgd:start=0"};
    double plain;
    double without;

    (void)user;
    CHECK_OK(group, train(group, "allreduce", &plain));
    for (size_t k = 0; k < N_OF(texts); k++) {
        double loss;

        CHECK_OK(group, train(group, texts[k], &loss));
        CHECK(group, loss <= 1.05 * plain);
    }
    CHECK_OK(group, train(group, "powersgd:start=0,feedback=0", &without));
    CHECK(group, without > 2 * plain);
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    n_failures += hook_run("average", average_body, NULL, 3);
    n_failures += hook_run("halves", halves_body, NULL, 3);
    n_failures += hook_run("small", small_body, NULL, 3);
    n_failures += hook_run("learning", learning_body, NULL, 4);
    return n_failures != 0;
}
