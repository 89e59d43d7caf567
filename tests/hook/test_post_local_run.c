/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole run of post-local SGD: eight ranks, of which pairs exchange gradients after the warm-up
 * and all average every eighth step, against plain data-parallel training on the same batches. The
 * bytes are those of the formula, on every rank; the loss stays within 5 %. The same with an outer
 * optimizer, and with averages as bytes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

#define WORLD 8
#define PAIR 2
#define PERIOD 8
#define WARMUP 24
#define N_STEPS 120 /* and one, which ends with an average */
#define N_INPUTS 24
#define N_OUTPUTS 40
#define N ((size_t)(N_INPUTS * N_OUTPUTS))
#define BATCH 4

static const struct ddp_spec weights = {"weights", TALLY_F32, 0, 2, {N_INPUTS, N_OUTPUTS}};

/* ---- least squares: outputs are a linear map of inputs, and noise ---- */

static double input_of(int sample, size_t i)
{
    return ddp_value(TALLY_F32, 1, sample, 0, i);
}

static double output_of(int sample, size_t o)
{
    double sum = 0.5 * ddp_value(TALLY_F32, 3, sample, 0, o);

    for (size_t i = 0; i < N_INPUTS; i++) {
        sum += input_of(sample, i) * ddp_value(TALLY_F32, 2, 0, 0, i * N_OUTPUTS + o);
    }
    return sum;
}

/* Sample's residual for output o. */
static double miss_of(const float *w, int sample, size_t o)
{
    double sum = -output_of(sample, o);

    for (size_t i = 0; i < N_INPUTS; i++) {
        sum += input_of(sample, i) * (double)w[i * N_OUTPUTS + o];
    }
    return sum;
}

static void backward(const float *w, int first, float *gradient)
{
    memset(gradient, 0, N * sizeof *gradient);
    for (int sample = first; sample < first + BATCH; sample++) {
        for (size_t o = 0; o < N_OUTPUTS; o++) {
            double miss = miss_of(w, sample, o);

            for (size_t i = 0; i < N_INPUTS; i++) {
                gradient[i * N_OUTPUTS + o] += (float)(miss * input_of(sample, i) / BATCH);
            }
        }
    }
}

/* On samples nobody trained on. */
static double loss_of(const float *w)
{
    double sum = 0;

    for (int sample = 0; sample < 60; sample++) {
        for (size_t o = 0; o < N_OUTPUTS; o++) {
            double miss = miss_of(w, -1 - sample, o);

            sum += miss * miss / (60.0 * N_OUTPUTS);
        }
    }
    return sum;
}

/* ---- runs ---- */

struct plan {
    const char *hook; /* of gradients */
    bool averages;
    const char *average_hook;
    const char *outer;
    double loss; /* of rank 0, when done */
    unsigned long long gradient_bytes;
    unsigned long long average_bytes;
};

static int train(tally_group *group, struct plan *plan)
{
    static const tally_averager_level level = {PERIOD, 0};
    tally_averager_config config;
    tally_averager *averager = NULL;
    tally_averager_stats averaged = {.size = sizeof averaged};
    tally_ddp_stats stats = {.size = sizeof stats};
    struct ddp_model model;
    tally_ddp *ddp;
    float *w;

    tally_averager_config_init(&config, sizeof config);
    config.levels = &level;
    config.n_levels = 1;
    config.warmup = WARMUP;
    config.hook = plan->average_hook;
    config.outer = plan->outer;
    CHECK(group, ddp_model_make(&model, &weights, 1, false) == 0);
    w = model.params[0].data;
    memset(w, 0, N * sizeof *w);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, plan->hook));
    if (plan->averages) {
        CHECK_OK(group, tally_averager_create(ddp, &config, &averager));
    }
    for (int step = 0; step <= N_STEPS; step++) {
        float *gradient = tally_ddp_grad(ddp, 0);

        backward(w, (step * WORLD + tally_group_rank(group)) * BATCH, gradient);
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
        for (size_t e = 0; e < N; e++) {
            w[e] -= 0.1f * gradient[e];
        }
        CHECK_OK(group, averager ? tally_averager_step(averager, NULL) : TALLY_OK);
    }
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    plan->gradient_bytes = stats.total_wire_bytes;
    if (averager) {
        CHECK_OK(group, tally_averager_get_stats(averager, &averaged));
        CHECK(group, averaged.step == N_STEPS + 1);
        CHECK(group, averaged.n_averagings == (N_STEPS - WARMUP) / PERIOD + 1);
        plan->average_bytes = averaged.total_wire_bytes;
        CHECK_OK(group, tally_averager_free(averager));
    }
    ranks_note(group, 0, ranks_hash(0, w, N * sizeof *w));
    plan->loss = loss_of(w);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

/* Bytes that this rank sends in one exchange of all weights among this number of ranks. */
static unsigned long long bytes_of(const tally_group *group, const char *hook, int n_ranks)
{
    const struct hook_bucket bucket = {
        .dtype = TALLY_F32, .n_params = 1, .count = {N}, .n_dims = {2}};

    return hook_sent_bytes(hook_rule_of(hook), &bucket, n_ranks, tally_group_rank(group) % n_ranks);
}

static int check_run(tally_group *group, struct plan *plan, double plain_loss)
{
    const char *hook = plan->average_hook ? plan->average_hook : "allreduce";
    /* The first average is of the weights as they are. */
    unsigned long long n_averages = (N_STEPS - WARMUP) / PERIOD;

    CHECK_OK(group, train(group, plan));
    CHECK(group,
          plan->gradient_bytes == WARMUP * bytes_of(group, "allreduce", WORLD) +
                                      (N_STEPS + 1 - WARMUP) * bytes_of(group, "allreduce", PAIR));
    CHECK(group, plan->average_bytes == bytes_of(group, "allreduce", WORLD) +
                                            n_averages * bytes_of(group, hook, WORLD));
    if (!(plan->loss <= 1.05 * plain_loss)) {
        (void)fprintf(stderr, "loss %g, plain %g\n", plan->loss, plain_loss);
        return ranks_fail(group, __FILE__, __LINE__, "the loss stays within 5 %");
    }
    return 0;
}

static int run_body(tally_group *group, void *user)
{
    struct plan plain = {.hook = "allreduce"};
    struct plan local = {.hook = "postlocal:start=24,group=2", .averages = true};
    struct plan bytes = local;
    struct plan outer = local;

    (void)user;
    bytes.average_hook = "int8";
    outer.outer = "sgd:lr=0.7,momentum=0.5,nesterov=1";
    CHECK_OK(group, train(group, &plain));
    CHECK(group, plain.gradient_bytes == (N_STEPS + 1) * bytes_of(group, "allreduce", WORLD));
    CHECK_OK(group, check_run(group, &local, plain.loss));
    CHECK_OK(group, check_run(group, &bytes, plain.loss));
    CHECK_OK(group, check_run(group, &outer, plain.loss));
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (int kind = RANKS_THREADS; kind <= RANKS_PROCESSES; kind++) {
        const struct ranks ranks = {.kind = (enum ranks_kind)kind, .world = WORLD, .lanes = 1};

        n_failures += ranks_run(&ranks, run_body, NULL);
    }
    return n_failures != 0;
}
