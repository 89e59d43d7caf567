/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requirements of PyTorch's own tests of its hooks, with their tolerances: a model of one 40 x
 * 20 parameter whose gradient with a hook is compared with the one without; and a model of one 2 x
 * 2 parameter whose gradient is 0.25 everywhere, for hooks by name, by text, wrapped, and of the
 * application.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

static bool is_close(double value, double reference, double rtol, double atol)
{
    return fabs(value - reference) <= atol + rtol * fabs(reference);
}

/* ---- one parameter of 40 x 20 ---- */

#define N 800

static const struct ddp_spec matrix = {"p", TALLY_F32, 0, 2, {40, 20}};

/* Element e of the input: about N(0, 1), twelve uniform numbers at a time. */
static double input_at(size_t e)
{
    double sum = 0;

    for (int k = 0; k < 12; k++) {
        sum += ddp_value(TALLY_F64, 2020, k, 0, e) / 2;
    }
    return sum;
}

/* The output is p * x^(1 + rank % 2), the loss its mean: so is p's gradient. */
static int backward(tally_group *group, tally_ddp *ddp)
{
    float *grad = tally_ddp_grad(ddp, 0);

    for (size_t e = 0; e < N; e++) {
        double x = input_at(e);

        grad[e] = (float)((tally_group_rank(group) % 2 ? x * x : x) / N);
    }
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

static int divide_and_sum(tally_lane *lane, void *user)
{
    float *grad = user;

    for (size_t e = 0; e < N; e++) {
        grad[e] /= (float)tally_group_size(tally_lane_group(lane));
    }
    return tally_lane_all_reduce(lane, grad, N, TALLY_F32, TALLY_SUM);
}

static const struct {
    const char *hook;
    double rtol;
    double atol;
} tolerances[] = {
    {"allreduce", 1e-5, 0},
    {"fp16", 1e-5, 1e-4},
    {"bf16", 1.6e-2, 1e-4},
    {"quantize_per_tensor", 1e-5, 1e-4},
    {"quantize_per_tensor:exchange=gather,scope=bucket", 1e-5, 1e-4},
    {"quantize_per_channel", 1e-5, 1e-4},
    {"quantize_per_channel:exchange=gather,scope=bucket", 1e-5, 1e-4},
    {"noop", 1e-5, 0},
    {"int8", 1e-5, 1e-4},
};

static int compare(tally_group *group, tally_ddp *ddp, const float *reference, size_t t)
{
    int world = tally_group_size(group);
    /* Divided before the sum: the same unless the division rounds. */
    bool rounds = strcmp(tolerances[t].hook, "noop") == 0 && (world & (world - 1)) != 0;
    const float *grad = tally_ddp_grad(ddp, 0);

    for (size_t e = 0; e < N; e++) {
        CHECK(group, is_close(grad[e], reference[e], tolerances[t].rtol,
                              rounds ? 1e-9 : tolerances[t].atol));
    }
    return 0;
}

static int matrix_body(tally_group *group, void *user)
{
    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        float reference[N];
        tally_ddp *ddp;

        (void)user;
        CHECK(group, ddp_model_make(&model, &matrix, 1, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
        CHECK_OK(group, backward(group, ddp));
        memcpy(reference, tally_ddp_grad(ddp, 0), sizeof reference);
        for (size_t t = 0; t < sizeof tolerances / sizeof tolerances[0]; t++) {
            CHECK_OK(group, tally_ddp_set_hook(ddp, tolerances[t].hook));
            CHECK_OK(group, backward(group, ddp));
            if (strcmp(tolerances[t].hook, "noop") == 0) {
                CHECK_OK(group, ranks_job(group, 0, divide_and_sum, tally_ddp_grad(ddp, 0)));
            }
            CHECK_OK(group, compare(group, ddp, reference, t));
            ranks_note(group, 0, ddp_hash_grads(&model, ddp));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- the last bucket ---- */

#define N_LAYERS 11

struct flags {
    int n;
    int is_last[N_LAYERS];
    int n_wrong;
};

static int record(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct flags *flags = state;

    flags->n_wrong += bucket->index != flags->n || bucket->count > N_LAYERS;
    flags->is_last[flags->n++ % N_LAYERS] = bucket->is_last;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int last_body(tally_group *group, void *user)
{
    static const tally_hook_table table = {
        .size = sizeof table, .name = "record", .reduce = record};
    struct ddp_spec specs[N_LAYERS];

    (void)user;
    for (size_t i = 0; i < N_LAYERS; i++) {
        specs[i] = (struct ddp_spec){"", TALLY_F32, 0, 2, {i ? 40 : 2, 40}};
        specs[i].name = (const char *[]){"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}[i];
    }
    for (int variant = 0; variant < 4; variant++) {
        int n_buckets = variant & 1 ? N_LAYERS : 1;
        struct flags flags = {0};
        struct ddp_model model;
        tally_ddp_config config;
        tally_hook *hook;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = variant & 1;
        CHECK(group, ddp_model_make(&model, specs, N_LAYERS, variant >> 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, N_LAYERS, &config, &ddp));
        CHECK_OK(group, tally_hook_create(&table, &flags, &hook));
        CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
        tally_hook_free(hook);
        for (unsigned s = 0; s < 3; s++) {
            flags.n = 0;
            CHECK_OK(group, ddp_right_step(group, ddp, &model, s));
            CHECK(group, flags.n == n_buckets && flags.n_wrong == 0);
            for (int b = 0; b < n_buckets; b++) {
                CHECK(group, flags.is_last[b] == (b == n_buckets - 1));
            }
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- one parameter of 2 x 2, gradient 0.25 ---- */

/* PyTorch's tolerances for its types. */
#define RTOL_F32 1.3e-6
#define RTOL_F16 1e-3
#define RTOL_BF16 1.6e-2

static const struct ddp_spec small = {"p", TALLY_F32, 0, 2, {2, 2}};

static int constant(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    float *x = bucket->data;

    (void)state;
    (void)lane;
    for (size_t e = 0; e < bucket->n; e++) {
        x[e] = 1;
        x[e] += 1;
    }
    return TALLY_OK;
}

static int sum_of_parts(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    float *x = bucket->data;

    (void)state;
    for (size_t e = 0; e < bucket->n; e++) {
        x[e] /= (float)bucket->divisor;
    }
    return tally_lane_all_reduce(lane, x, bucket->n, TALLY_F32, TALLY_SUM);
}

static int chain(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    float *x = bucket->data;
    int rc = sum_of_parts(state, lane, bucket);

    for (size_t e = 0; rc == TALLY_OK && e < bucket->n; e++) {
        x[e] *= 10;
        x[e] *= 0.5f;
    }
    return rc;
}

/* One step; the gradient is this everywhere. */
static int gives(tally_group *group, tally_ddp *ddp, double value, double rtol)
{
    float *grad = tally_ddp_grad(ddp, 0);

    for (int e = 0; e < 4; e++) {
        grad[e] = 0.25f;
    }
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, tally_ddp_wait(ddp));
    for (int e = 0; e < 4; e++) {
        CHECK(group, is_close(grad[e], value, rtol, 1e-5));
    }
    return 0;
}

static int own_hooks(tally_group *group, tally_ddp *ddp)
{
    static const struct {
        const char *name;
        int (*reduce)(void *state, tally_lane *lane, const tally_bucket *bucket);
        double value;
    } own[] = {
        {"constant", constant, 2}, {"sum of parts", sum_of_parts, 0.25}, {"chain", chain, 1.25}};

    for (size_t k = 0; k < 3; k++) {
        const tally_hook_table table = {
            .size = sizeof table, .name = own[k].name, .reduce = own[k].reduce};
        tally_ddp_stats stats = {.size = sizeof stats};
        tally_hook *hook;

        CHECK_OK(group, tally_hook_create(&table, NULL, &hook));
        CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
        tally_hook_free(hook);
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, strcmp(stats.hook, own[k].name) == 0);
        CHECK_OK(group, gives(group, ddp, own[k].value, RTOL_F32));
        CHECK_OK(group, gives(group, ddp, own[k].value, RTOL_F32));
    }
    return 0;
}

/* All ten; PowerSGD's first thousand steps are plain. */
static int by_name(tally_group *group, tally_ddp *ddp)
{
    static const struct {
        tally_hook_name name;
        const char *text;
    } names[10] = {
        {TALLY_HOOK_ALLREDUCE, "allreduce"},
        {TALLY_HOOK_FP16_COMPRESS, "fp16"},
        {TALLY_HOOK_BF16_COMPRESS, "bf16"},
        {TALLY_HOOK_QUANTIZE_PER_TENSOR, "quantize_per_tensor"},
        {TALLY_HOOK_QUANTIZE_PER_CHANNEL, "quantize_per_channel"},
        {TALLY_HOOK_POWER_SGD, "powersgd"},
        {TALLY_HOOK_POWER_SGD_RANK2, "powersgd:rank=2"},
        {TALLY_HOOK_BATCHED_POWER_SGD, "batched_powersgd"},
        {TALLY_HOOK_BATCHED_POWER_SGD_RANK2, "batched_powersgd:rank=2"},
        {TALLY_HOOK_NOOP, "noop"},
    };

    for (size_t k = 0; k < 10; k++) {
        tally_ddp_stats stats = {.size = sizeof stats};

        CHECK_OK(group, tally_ddp_register_hook(ddp, names[k].name));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, strcmp(stats.hook, names[k].text) == 0);
        CHECK_OK(group, gives(group, ddp, 0.25, RTOL_F32));
    }
    return 0;
}

static int power_by_text(tally_group *group, tally_ddp *ddp)
{
    static const char *const wrappers[] = {"%s", "fp16(%s)", "bf16(%s)"};

    for (int variant = 0; variant < 24; variant++) {
        char inner[80];
        char text[100];

        (void)snprintf(inner, sizeof inner, "powersgd:feedback=%d,warm_start=%d,batch=%d",
                       variant & 1, variant >> 1 & 1, variant >> 2 & 1);
        (void)snprintf(text, sizeof text, wrappers[variant / 8], inner);
        CHECK_OK(group, tally_ddp_set_hook(ddp, text));
        CHECK_OK(group, gives(group, ddp, 0.25, RTOL_F32));
    }
    return 0;
}

static int by_text(tally_group *group, tally_ddp *ddp)
{
    for (size_t k = 0; k < hook_n_rules; k++) {
        double rtol = hook_rules[k].wire == TALLY_F16 ? RTOL_F16 : RTOL_BF16;

        CHECK_OK(group, tally_ddp_set_hook(ddp, hook_rules[k].text));
        CHECK_OK(group,
                 gives(group, ddp, 0.25, hook_rules[k].form == HOOK_STEPWISE ? rtol : RTOL_F32));
    }
    return 0;
}

/* Refused, and what was there stays. */
static int refused(tally_group *group, tally_ddp *ddp)
{
    tally_hook_table table = {.size = sizeof table, .name = "own"};
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_hook *hook = NULL;

    CHECK_OK(group, tally_ddp_set_hook(ddp, "bf16"));
    CHECK_STATUS(group, tally_ddp_attach_hook(ddp, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, NULL), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, ""), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_set_hook(ddp, "no such hook"), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_register_hook(ddp, (tally_hook_name)10), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_create(&table, NULL, &hook), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "reduce");
    table.reduce = chain;
    table.name = NULL;
    CHECK_STATUS(group, tally_hook_create(&table, NULL, &hook), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "name");
    table.name = "own";
    table.size--;
    CHECK_STATUS(group, tally_hook_create(&table, NULL, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_create(NULL, NULL, &hook), TALLY_ARG);
    CHECK(group, hook == NULL);
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, strcmp(stats.hook, "bf16") == 0);
    CHECK_OK(group, gives(group, ddp, 0.25, RTOL_F32));
    return 0;
}

static int small_body(tally_group *group, void *user)
{
    (void)user;
    for (int copies = 0; copies < 2; copies++) {
        struct ddp_model model;
        tally_ddp_stats stats = {.size = sizeof stats};
        tally_ddp *ddp;

        CHECK(group, ddp_model_make(&model, &small, 1, copies) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        CHECK(group, strcmp(stats.hook, "allreduce") == 0);
        CHECK_OK(group, gives(group, ddp, 0.25, RTOL_F32));
        CHECK_OK(group, own_hooks(group, ddp));
        CHECK_OK(group, by_name(group, ddp));
        CHECK_OK(group, by_text(group, ddp));
        CHECK_OK(group, power_by_text(group, ddp));
        CHECK_OK(group, refused(group, ddp));
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 1; w < RANKS_N_WORLDS; w++) {
        n_failures += hook_run("40 x 20", matrix_body, NULL, ranks_worlds[w]);
        n_failures += hook_run("last bucket", last_body, NULL, ranks_worlds[w]);
        n_failures += hook_run("2 x 2", small_body, NULL, ranks_worlds[w]);
    }
    return n_failures != 0;
}
