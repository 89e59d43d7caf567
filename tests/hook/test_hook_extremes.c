/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extreme values: known values of casts and codes; values too large for fp16, saturated or not; and
 * values that are not finite, refused with the same text on all ranks or passed on, in their own
 * block or tensor and nowhere else.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

/* ---- one short parameter ---- */

#define SHORT 1024

struct known {
    const char *hook;
    size_t n;
    const float *rank0;
    const float *others; /* NULL: the same as rank 0's */
    const float *means;
    double tolerance;
    unsigned long long n_held; /* values that saturation held on each rank */
};

static int check_known(tally_group *group, const struct known *known)
{
    const struct ddp_spec spec = {"p", TALLY_F32, 0, 2, {1, known->n}};
    const float *own = tally_group_rank(group) > 0 && known->others ? known->others : known->rank0;
    tally_ddp_stats stats = {.size = sizeof stats};
    struct ddp_model model;
    tally_ddp *ddp;
    float *grad;

    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, tally_ddp_set_hook(ddp, known->hook));
    grad = tally_ddp_grad(ddp, 0);
    memcpy(grad, own, known->n * sizeof *grad);
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, tally_ddp_wait(ddp));
    for (size_t e = 0; e < known->n; e++) {
        double got = (double)grad[e];
        double mean = (double)known->means[e];

        if (isnan(mean) ? !isnan(got) : !(got == mean || fabs(got - mean) <= known->tolerance)) {
            (void)fprintf(stderr, "%s: element %zu of %zu is %.9g, not %.9g\n", known->hook, e,
                          known->n, got, mean);
            return ranks_fail(group, __FILE__, __LINE__, "not the known value");
        }
    }
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.saturated == known->n_held && stats.total_saturated == known->n_held);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Two ranks, the other has zeros: cast, divided by two, cast. */
static const float zeros[SHORT];
static const float casts[] = {1e5f, 65504, 65519, 65520, 6e-8f, 3.14159265f, -0.1f};
static const float casts_f16[] = {INFINITY, 32752, 32752, INFINITY, 0, 1.5703125f, -0.0499878f};
static const float casts_bf16[] = {49920,         32768,      32768,      32768,
                                   3.0035153e-8f, 1.5703125f, -0.0500488f};

static const float around[] = {-1, 0, 0.5f, 1, 2};
static const float around_decoded[] = {-1, 0, 0.494117647f, 1, 2};
static const float above[] = {1, 2, 3};
static const float below[] = {-3, -2, -1};
static const float mixed[] = {0.1f, 0.2f, -0.3f, 0.7f};
static const float mixed_decoded[] = {0.098039225f, 0.200000018f, -0.298039228f, 0.698039234f};
static const float equal[] = {5, 5};
static const float tiny[] = {1e-9f, -1e-9f, 2e-8f};

#define TENSOR "quantize_per_tensor:exchange=gather,scope=bucket"
#define CHANNEL "quantize_per_channel:exchange=gather,scope=bucket"

static const struct known golden[] = {
    {"fp16:accumulate=wire", COUNT(casts), casts, zeros, casts_f16, 1e-7, 0},
    {"bf16:accumulate=wire", COUNT(casts), casts, zeros, casts_bf16, 1e-7, 0},
    {TENSOR, COUNT(around), around, NULL, around_decoded, 0, 0},
    {TENSOR, COUNT(above), above, NULL, above, 0, 0},
    {TENSOR, COUNT(below), below, NULL, below, 0, 0},
    {TENSOR, COUNT(mixed), mixed, NULL, mixed_decoded, 0, 0},
    {TENSOR, COUNT(equal), equal, NULL, equal, 0, 0},
    {TENSOR, 10, zeros, NULL, zeros, 0, 0},
    {TENSOR, COUNT(tiny), tiny, NULL, zeros, 0, 0},
    {CHANNEL, COUNT(around), around, NULL, around_decoded, 0, 0},
};

/* x_i = i / 100: the largest error of a channel of 512, which does not depend on those after it. */
static int check_channels(tally_group *group)
{
    static const struct {
        size_t n;
        double error;
    } lengths[] = {{5, 0}, {512, 0.0100391}, {513, 0.0100391}, {1024, 0.0200391}};

    for (size_t k = 0; k < COUNT(lengths); k++) {
        const struct ddp_spec spec = {"p", TALLY_F32, 0, 1, {lengths[k].n}};
        double error = 0;
        struct ddp_model model;
        tally_ddp *ddp;
        float *grad;

        CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
        CHECK_OK(group, tally_ddp_set_hook(ddp, CHANNEL));
        grad = tally_ddp_grad(ddp, 0);
        for (size_t e = 0; e < lengths[k].n; e++) {
            grad[e] = (float)(e + 1) / 100;
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
        CHECK_OK(group, tally_ddp_wait(ddp));
        for (size_t e = 0; e < lengths[k].n; e++) {
            error = fmax(error, fabs((double)grad[e] - (double)((float)(e + 1) / 100)));
        }
        CHECK(group, fabs(error - lengths[k].error) < 2e-7);
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

static const float large[] = {1e5f,    -1e5f,    65504,     65519, 65520, -65536,
                              3.4e38f, INFINITY, -INFINITY, NAN,   1};
static const float large_held[] = {65504, -65504,   65504,     65504, 65504, -65504,
                                   65504, INFINITY, -INFINITY, NAN,   1};
static const float large_lost[] = {INFINITY, -INFINITY, 65504,     65504, INFINITY, -INFINITY,
                                   INFINITY, INFINITY,  -INFINITY, NAN,   1};

static const struct known saturation[] = {
    {"fp16:saturate=1", COUNT(large), large, NULL, large_held, 0, 5},
    {"bf16(fp16:saturate=1)", COUNT(large), large, NULL, large_held, 0, 5},
    {"fp16", COUNT(large), large, NULL, large_lost, 0, 0},
    {"allreduce", 4, large, NULL, large, 0, 0},
};

static int known_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < COUNT(saturation); k++) {
        CHECK_OK(group, check_known(group, &saturation[k]));
    }
    /* With two ranks the mean of equal values is exact. */
    for (size_t k = 0; k < COUNT(golden) && tally_group_size(group) == 2; k++) {
        CHECK_OK(group, check_known(group, &golden[k]));
    }
    return tally_group_size(group) == 2 ? check_channels(group) : 0;
}

/* ---- values that are not finite ---- */

#define BIG 5
#define PLACE 9001

static const float no_numbers[] = {NAN, INFINITY, -INFINITY};

/* A step in which some ranks have something in a parameter. */
struct spoilt {
    unsigned ranks;
    float value;
    size_t param;
    size_t element;
};

static int spoilt_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                       const struct spoilt *spoilt)
{
    int rank = tally_group_rank(group);

    for (size_t i = model->n; i-- > 0;) {
        float *grad = tally_ddp_grad(ddp, (int)i);

        if (model->spec[i].dtype != TALLY_F32) {
            ddp_fill_grad(model, ddp, i, 1, rank);
        }
        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            grad[e] = hook_value(1, rank, i, e);
        }
        if (i == spoilt->param && spoilt->ranks >> rank & 1) {
            grad[spoilt->element] = spoilt->value;
        }
        CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
    }
    return tally_ddp_wait(ddp);
}

static int make(tally_group *group, struct ddp_model *model, bool small, tally_ddp **ddp)
{
    tally_ddp_config config;

    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = small ? 1 : 1 << 20;
    CHECK(group, ddp_model_make(model, hook_specs, HOOK_N_PARAMS, small) == 0);
    CHECK_OK(group, tally_ddp_create(group, model->params, model->n, &config, ddp));
    return 0;
}

/* Refused on all ranks with the same words, and the next step works. */
static int refuses(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                   const struct spoilt *spoilt)
{
    int rank = 0;
    char who[32];
    char what[64];

    while (!(spoilt->ranks >> rank & 1)) {
        rank++;
    }
    (void)snprintf(who, sizeof who, "rank %d: ", rank);
    (void)snprintf(what, sizeof what, "'%s'", hook_specs[spoilt->param].name);
    CHECK_STATUS(group, spoilt_step(group, ddp, model, spoilt), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), what);
    /* Of several ranks any may be named, but it is the same for all. */
    if ((spoilt->ranks & (spoilt->ranks - 1)) == 0) {
        CHECK_TEXT(group, tally_last_error(), who);
    }
    ranks_note(group, 0, ranks_hash(0, tally_last_error(), strlen(tally_last_error())));
    CHECK_OK(group, hook_step(group, ddp, model, 2));
    for (size_t i = 0; i < model->n; i++) {
        const float *grad = tally_ddp_grad(ddp, (int)i);

        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            CHECK(group, isfinite(grad[e]));
        }
    }
    ranks_note(group, 0, ddp_hash_grads(model, ddp));
    return 0;
}

static int refuse_body(tally_group *group, void *user)
{
    unsigned last = 1u << (tally_group_size(group) - 1);

    (void)user;
    for (int small = 0; small < 2; small++) {
        struct ddp_model model;
        tally_ddp *ddp;

        CHECK_OK(group, make(group, &model, small, &ddp));
        for (size_t k = 0; k < hook_n_rules; k++) {
            const struct hook_rule *rule = &hook_rules[k];
            const struct spoilt spoilt[] = {
                {1, no_numbers[k % 3], BIG, PLACE},
                {last, no_numbers[(k + 1) % 3], BIG, 0},
                {last | 1, no_numbers[(k + 2) % 3], BIG, PLACE},
                {last, no_numbers[k % 3], HOOK_N_PARAMS - 1, 4095},
                {1, NAN, 8, 0},
            };

            if (rule->form < HOOK_TENSOR || rule->form == HOOK_NOTHING ||
                strstr(rule->text, "pass")) {
                continue;
            }
            CHECK_OK(group, tally_ddp_set_hook(ddp, rule->text));
            for (size_t s = 0; s < COUNT(spoilt); s++) {
                CHECK_OK(group, refuses(group, ddp, &model, &spoilt[s]));
            }
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* Passed on: NaN from first to end-1 of BIG, or in everything, and elsewhere the means that hook
 * leaves without it. */
struct passing {
    const char *text;
    const char *rule;
    size_t first;
    size_t end;
    bool all;
};

static const struct passing passing[] = {
    {"quantize_per_tensor:nonfinite=pass", "quantize_per_tensor", 0, 12900, false},
    {"quantize_per_tensor:nonfinite=pass,exchange=gather", "quantize_per_tensor:exchange=gather", 0,
     12900, false},
    {"quantize_per_tensor:nonfinite=pass,scope=bucket", "quantize_per_tensor:scope=bucket", 0,
     12900, true},
    {"quantize_per_channel:nonfinite=pass", "quantize_per_channel", 17 * 512, 18 * 512, false},
    {"quantize_per_channel:nonfinite=pass,exchange=gather", "quantize_per_channel:exchange=gather",
     17 * 512, 18 * 512, false},
    {"quantize_per_channel:nonfinite=pass,block=100", "quantize_per_channel:block=100", 9000, 9100,
     false},
    {"int8:nonfinite=pass,feedback=0", "int8:feedback=0", 17 * 512, 18 * 512, false},
    {"int8:nonfinite=pass", "int8:feedback=0", 17 * 512, 18 * 512, false},
};

static float expected[COUNT(passing)][HOOK_N_PARAMS * HOOK_MOST];

static int check_passed(tally_group *group, const struct ddp_model *model, const tally_ddp *ddp,
                        size_t k)
{
    for (size_t i = 0; i < model->n; i++) {
        const float *grad = tally_ddp_grad(ddp, (int)i);
        const float *means = &expected[k][i * HOOK_MOST];

        for (size_t e = 0; e < model->count[i] && model->spec[i].dtype == TALLY_F32; e++) {
            bool spoilt =
                passing[k].all || (i == BIG && e >= passing[k].first && e < passing[k].end);

            CHECK(group, spoilt ? isnan(grad[e]) : grad[e] == means[e]);
        }
    }
    return 0;
}

static int pass_body(tally_group *group, void *user)
{
    unsigned last = 1u << (tally_group_size(group) - 1);
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK_OK(group, make(group, &model, false, &ddp));
    for (size_t k = 0; k < COUNT(passing); k++) {
        const struct spoilt spoilt = {k % 2 ? 1 : last, no_numbers[k % 3], BIG, PLACE};

        CHECK_OK(group, tally_ddp_set_hook(ddp, passing[k].text));
        CHECK_OK(group, spoilt_step(group, ddp, &model, &spoilt));
        CHECK_OK(group, check_passed(group, &model, ddp, k));
        /* Nothing of it is left in the next step. */
        CHECK_OK(group, hook_step(group, ddp, &model, 2));
        for (size_t e = 0; e < model.count[BIG]; e++) {
            CHECK(group, isfinite(((const float *)tally_ddp_grad(ddp, BIG))[e]));
        }
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    static const int worlds[] = {2, 3, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_REPEATS(COUNT(worlds), 2); w++) {
        for (size_t k = 0; k < COUNT(passing); k++) {
            hook_expect_all(hook_rule_of(passing[k].rule), 1, worlds[w], expected[k]);
        }
        n_failures += hook_run("known values", known_body, NULL, worlds[w]);
        n_failures += hook_run("refusing", refuse_body, NULL, worlds[w]);
        n_failures += hook_run("passing on", pass_body, NULL, worlds[w]);
    }
    return n_failures != 0;
}
