/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers in mixed precision: masters are updated by the means of the literal reference, to the
 * bit, on call, after the hook and in shards; low copies follow; gradients are released as they
 * were written. And training: the network of the ddp example, y = w2 . tanh(w1 x), comes to the
 * loss of fp32 with weights and gradients in bf16, and in fp16 with a loss scale.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/mixed_model.h"
#include "support/oracle.h"

/* ---- updates ---- */

#define N_STEPS 4

struct setup {
    struct mixed_case of;
    int overlap;
    int shard;
    int release;
};

/* Masters as they must be, with room for the largest. */
struct reference {
    float masters[MIXED_N_PARAMS][131 * 65];
};

static void copy_masters(const struct ddp_model *model, struct reference *reference)
{
    for (size_t i = 0; i < model->n; i++) {
        if (ddp_has_gradient(model, i)) {
            memcpy(reference->masters[i], model->params[i].data, model->count[i] * sizeof(float));
        }
    }
}

static size_t follow(const struct ddp_model *model, const struct mixed_case *of,
                     struct reference *reference, unsigned seed, int world)
{
    const struct ddp_mean mean = {seed, world, ~0u, world};
    size_t n_wrong = 0;

    for (size_t i = 0; i < model->n; i++) {
        const float *masters = model->params[i].data;

        for (size_t e = 0; ddp_has_gradient(model, i) && e < model->count[i]; e++) {
            reference->masters[i][e] -= 0.5f * mixed_mean(of, i, e, mean);
            n_wrong += reference->masters[i][e] != masters[e];
        }
    }
    return n_wrong;
}

static bool are_released(const struct ddp_model *model, const tally_ddp *ddp, int dtype)
{
    for (size_t i = 0; i < model->n; i++) {
        for (size_t e = 0; ddp_has_gradient(model, i) && e < model->count[i]; e++) {
            if (mixed_get(dtype, tally_ddp_grad(ddp, (int)i), e) != 0) {
                return false;
            }
        }
    }
    return true;
}

static int updates_body(tally_group *group, void *user)
{
    const struct setup *setup = user;
    const struct mixed_case *of = &setup->of;
    int world = tally_group_size(group);
    struct reference reference = {0};
    struct ddp_model model;
    tally_ddp_config config;
    tally_optimizer_config optimizer_config;
    tally_optimizer *optimizer;
    tally_ddp *ddp;

    CHECK(group, mixed_make(&model, of, tally_group_rank(group), &config) == 0);
    config.bucket_cap_bytes = 100;
    CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
    copy_masters(&model, &reference);
    tally_optimizer_config_init(&optimizer_config, sizeof optimizer_config);
    optimizer_config.overlap = setup->overlap;
    optimizer_config.shard = setup->shard;
    optimizer_config.release_gradients = setup->release;
    CHECK_OK(group, tally_optimizer_create(ddp, "sgd:lr=0.5", &optimizer_config, &optimizer));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, mixed_step(group, ddp, &model, of, s));
        CHECK_OK(group,
                 setup->overlap || setup->shard ? TALLY_OK : tally_optimizer_step(optimizer));
        CHECK(group, follow(&model, of, &reference, s, world) == 0);
        CHECK(group, mixed_wrong_lows(&model, ddp, of->param_dtype) == 0);
        CHECK(group, !setup->release || are_released(&model, ddp, of->param_dtype));
    }
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int run_updates(void)
{
    static const int ways[][3] = {{0, 0, 0}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}};
    int n_failures = 0;

    for (size_t c = 0; c < MIXED_N_CASES; c++) {
        for (size_t w = c % 2; w < sizeof ways / sizeof ways[0]; w += 2) {
            struct setup setup = {mixed_cases[c], ways[w][0], ways[w][1], ways[w][2]};
            const struct ranks ranks = {.kind = (c + w) / 2 % 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                        .world = 2 + (int)(c + w) % 3,
                                        .lanes = 1 + (int)w % 2};

            if (ranks_run(&ranks, updates_body, &setup)) {
                (void)fprintf(stderr, "case %zu, way %zu: failed\n", c, w);
                n_failures++;
            }
        }
    }
    return n_failures;
}

/* ---- training ---- */

#define SAMPLES 96
#define IN 5
#define HIDDEN 16
#define N_W1 ((size_t)HIDDEN * IN)
#define TRAINING_STEPS 200

static float next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}

struct data {
    float inputs[SAMPLES][IN];
    float targets[SAMPLES];
};

static void make_data(struct data *data)
{
    unsigned seed = 7;

    for (int s = 0; s < SAMPLES; s++) {
        for (int i = 0; i < IN; i++) {
            data->inputs[s][i] = i < IN - 1 ? next_random(&seed) : 1;
        }
        data->targets[s] = sinf(3 * data->inputs[s][0]) + data->inputs[s][1] * data->inputs[s][2];
    }
}

/* A network, its gradients, and the samples it learns from; all that it reads of weights, and
 * writes of gradients, is of dtype. */
struct pass {
    const struct data *data;
    int first;
    int end;
    double weight; /* of each sample, with the scale of the loss */
    int dtype;
    const void *w1;
    const void *w2;
    void *g1;
    void *g2;
};

static double forward(const struct pass *pass, int s, double *hidden)
{
    double y = 0;

    for (int h = 0; h < HIDDEN; h++) {
        double sum = 0;

        for (int i = 0; i < IN; i++) {
            sum += mixed_get(pass->dtype, pass->w1, (size_t)h * IN + (size_t)i) *
                   (double)pass->data->inputs[s][i];
        }
        hidden[h] = tanh(sum);
        y += mixed_get(pass->dtype, pass->w2, (size_t)h) * hidden[h];
    }
    return y;
}

static void backward(const struct pass *pass)
{
    double g1[N_W1] = {0};
    double g2[HIDDEN] = {0};

    for (int s = pass->first; s < pass->end; s++) {
        double hidden[HIDDEN];
        double error = pass->weight * (forward(pass, s, hidden) - (double)pass->data->targets[s]);

        for (int h = 0; h < HIDDEN; h++) {
            double back =
                error * mixed_get(pass->dtype, pass->w2, (size_t)h) * (1 - hidden[h] * hidden[h]);

            g2[h] += error * hidden[h];
            for (int i = 0; i < IN; i++) {
                g1[h * IN + i] += back * (double)pass->data->inputs[s][i];
            }
        }
    }
    for (size_t e = 0; e < N_W1; e++) {
        mixed_put(pass->dtype, pass->g1, e, g1[e]);
    }
    for (size_t e = 0; e < HIDDEN; e++) {
        mixed_put(pass->dtype, pass->g2, e, g2[e]);
    }
}

static double loss_of(const struct pass *pass)
{
    double sum = 0;
    double hidden[HIDDEN];

    for (int s = 0; s < SAMPLES; s++) {
        double error = forward(pass, s, hidden) - (double)pass->data->targets[s];

        sum += error * error / 2 / SAMPLES;
    }
    return sum;
}

struct training {
    struct mixed_case of;
    const char *hook;
    double loss_scale;
    double loss; /* the result */
};

/* The loss after training, with the weights that forward reads. */
static int train(tally_group *group, const struct data *data, struct training *training)
{
    static const struct ddp_spec specs[] = {{"w1", TALLY_F32, 0, 2, {HIDDEN, IN}},
                                            {"w2", TALLY_F32, 0, 1, {HIDDEN}}};
    int rank = tally_group_rank(group);
    int world = tally_group_size(group);
    bool is_low = training->of.param_dtype != TALLY_F32;
    unsigned seed = 1 + (unsigned)rank;
    struct pass pass = {.data = data, .dtype = training->of.param_dtype};
    struct ddp_model model;
    tally_ddp_config config;
    tally_optimizer_config optimizer_config;
    tally_optimizer *optimizer;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, specs, 2, training->of.copies) == 0);
    for (size_t e = 0; e < N_W1 + HIDDEN; e++) {
        float *w = model.params[e < N_W1 ? 0 : 1].data;

        w[e < N_W1 ? e : e - N_W1] = next_random(&seed) / 2;
    }
    tally_ddp_config_init(&config, sizeof config);
    config.param_dtype = training->of.param_dtype;
    config.reduce_dtype = training->of.reduce_dtype;
    config.hook = training->hook;
    CHECK_OK(group, tally_ddp_create(group, model.params, 2, &config, &ddp));
    tally_optimizer_config_init(&optimizer_config, sizeof optimizer_config);
    optimizer_config.overlap = 1;
    optimizer_config.loss_scale = training->loss_scale;
    optimizer_config.loss_scale_interval = 20;
    CHECK_OK(group, tally_optimizer_create(ddp, "sgd:lr=0.2", &optimizer_config, &optimizer));
    pass.w1 = is_low ? tally_ddp_low(ddp, 0) : model.params[0].data;
    pass.w2 = is_low ? tally_ddp_low(ddp, 1) : model.params[1].data;
    pass.first = SAMPLES * rank / world;
    pass.end = SAMPLES * (rank + 1) / world;
    for (int s = 0; s < TRAINING_STEPS; s++) {
        pass.weight = tally_optimizer_loss_scale(optimizer) * world / SAMPLES;
        pass.g1 = tally_ddp_grad(ddp, 0);
        pass.g2 = tally_ddp_grad(ddp, 1);
        backward(&pass);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 1));
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
    }
    training->loss = loss_of(&pass);
    CHECK_OK(group, tally_optimizer_free(optimizer));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int training_body(tally_group *group, void *user)
{
    struct training trainings[] = {
        {{TALLY_F32, TALLY_F32, false}, "allreduce", 0, 0},
        {{TALLY_BF16, TALLY_F32, false}, "allreduce", 0, 0},
        {{TALLY_BF16, TALLY_BF16, false}, "allreduce", 0, 0},
        {{TALLY_BF16, TALLY_F32, true}, "int8", 0, 0},
        {{TALLY_F16, TALLY_F16, true}, "allreduce", 1024, 0},
    };
    struct data data;

    (void)user;
    make_data(&data);
    for (size_t t = 0; t < sizeof trainings / sizeof trainings[0]; t++) {
        CHECK_OK(group, train(group, &data, &trainings[t]));
        CHECK(group, isfinite(trainings[t].loss));
        CHECK(group, fabs(trainings[t].loss - trainings[0].loss) <= 0.02 * trainings[0].loss);
    }
    return 0;
}

int main(void)
{
    int n_failures;

    oracle_start();
    n_failures = run_updates();
    for (int world = 2; world <= 3; world++) {
        const struct ranks ranks = {
            .kind = world == 2 ? RANKS_THREADS : RANKS_PROCESSES, .world = world, .lanes = 1};

        n_failures += ranks_run(&ranks, training_body, NULL);
    }
    return n_failures != 0;
}
