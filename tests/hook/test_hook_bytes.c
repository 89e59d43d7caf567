/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that every hook sends: on every rank of every world those of the formula N + (W - 2)
 * n_r of its elements, with shards that end at blocks; and summed over the ranks the same fraction
 * of fp32 for every W: a half for 16 bits, a quarter and the scales for 8 bits.
 */
#include <stdio.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

/* ---- against the formula ---- */

/*
 * Gradients travel each alone, those of a dtype together, or together except for large ones.
 */
enum parts { EACH, TOGETHER, LARGE_ALONE };

/* Gradients from this size on are large. */
#define LARGE_BYTES 16384

static bool is_alone(const struct ddp_model *model, size_t i, enum parts parts)
{
    size_t bytes = model->count[i] * tally_dtype_bytes(model->spec[i].dtype);

    return parts == EACH || (parts == LARGE_ALONE && bytes >= LARGE_BYTES);
}

/* Bytes that a rank sends for the parameters of a dtype, the last one first. */
static uint64_t expected_of(const struct hook_rule *rule, const struct ddp_model *model, int dtype,
                            enum parts parts, const tally_group *group)
{
    struct hook_bucket bucket = {.dtype = dtype};
    uint64_t bytes = 0;

    for (size_t i = model->n; i-- > 0;) {
        if (model->spec[i].dtype != dtype) {
            continue;
        }
        if (bucket.n_params > 0 && is_alone(model, i, parts)) {
            bytes +=
                hook_sent_bytes(rule, &bucket, tally_group_size(group), tally_group_rank(group));
            bucket.n_params = 0;
        }
        bucket.count[bucket.n_params] = model->count[i];
        bucket.n_dims[bucket.n_params++] = model->spec[i].n_dims;
        if (is_alone(model, i, parts)) {
            bytes +=
                hook_sent_bytes(rule, &bucket, tally_group_size(group), tally_group_rank(group));
            bucket.n_params = 0;
        }
    }
    return bucket.n_params == 0 ? bytes
                                : bytes + hook_sent_bytes(rule, &bucket, tally_group_size(group),
                                                          tally_group_rank(group));
}

/* Copies travel in parts where each element is taken for itself. */
static enum parts parts_of(const struct hook_rule *rule, bool small, bool copies)
{
    bool elementwise = rule->form == HOOK_PLAIN || rule->form == HOOK_HALF ||
                       rule->form == HOOK_SATURATED || rule->form == HOOK_STEPWISE;

    return small ? EACH : copies && elementwise ? LARGE_ALONE : TOGETHER;
}

static int check_rule(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                      const struct hook_rule *rule, bool small)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    uint64_t expected = 0;
    uint64_t total;

    for (int dtype = TALLY_F32; dtype <= TALLY_F16; dtype++) {
        bool copies = model->params[0].grad != NULL;

        expected += expected_of(rule, model, dtype, parts_of(rule, small, copies), group);
    }
    CHECK_OK(group, tally_ddp_set_hook(ddp, rule->text));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    total = stats.total_wire_bytes;
    for (unsigned s = 1; s <= 2; s++) {
        CHECK_OK(group, hook_step(group, ddp, model, s));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        if (stats.wire_bytes != expected || stats.total_wire_bytes != total + s * expected) {
            (void)fprintf(stderr, "%s, %s: %llu bytes, not %llu\n", rule->text,
                          small ? "small buckets" : "large buckets", stats.wire_bytes,
                          (unsigned long long)expected);
            return ranks_fail(group, __FILE__, __LINE__, "bytes on the wire");
        }
    }
    return 0;
}

static int formula_body(tally_group *group, void *user)
{
    /* Copies travel as views do: a few worlds are enough. */
    int n_variants = tally_group_size(group) <= 3 ? 4 : 2;

    (void)user;
    for (int variant = 0; variant < n_variants; variant++) {
        bool small = variant & 1;
        struct ddp_model model;
        tally_ddp_config config;
        tally_ddp *ddp;

        tally_ddp_config_init(&config, sizeof config);
        config.bucket_cap_bytes = small ? 1 : 1 << 20;
        CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, variant >> 1) == 0);
        CHECK_OK(group, tally_ddp_create(group, model.params, model.n, &config, &ddp));
        for (size_t k = 0; k < hook_n_rules; k++) {
            CHECK_OK(group, check_rule(group, ddp, &model, &hook_rules[k], small));
        }
        CHECK_OK(group, tally_ddp_free(ddp));
        ddp_model_free(&model);
    }
    return 0;
}

/* ---- against fp32 ---- */

/* One matrix whose shards are as large as each other for some worlds and hooks, and not for
 * others. */
static const struct ddp_spec matrix = {"matrix", TALLY_F32, 0, 2, {512, 168}};
#define N ((unsigned long long)512 * 168)

/* Bytes of the whole, once. */
static const struct {
    const char *text;
    unsigned long long bytes;
    bool grows; /* with the number of ranks */
} fractions[] = {
    {"allreduce", 4 * N, false},
    {"fp16", 2 * N, false},
    {"bf16", 2 * N, false},
    {"bf16:accumulate=wire", 2 * N, false},
    {"int8", N + 4 * (N / 512), false},
    {"quantize_per_channel", N + 8 * (N / 512), false},
    {"quantize_per_tensor", N + 8 * (N / 4096), false},
    {"quantize_per_channel:exchange=gather", N + 8 * (N / 512), true},
    {"quantize_per_tensor:exchange=gather", N + 8 * (N / 4096), true},
};

_Static_assert(N % 4096 == 0, "whole blocks");

static int sum_job(tally_lane *lane, void *user)
{
    return tally_lane_all_reduce(lane, user, 1, TALLY_I64, TALLY_SUM);
}

static int fraction_body(tally_group *group, void *user)
{
    unsigned long long world = (unsigned long long)tally_group_size(group);
    struct ddp_model model;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, &matrix, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    for (size_t k = 0; k < sizeof fractions / sizeof fractions[0]; k++) {
        int64_t sum;

        CHECK_OK(group, tally_ddp_set_hook(ddp, fractions[k].text));
        CHECK_OK(group, hook_step(group, ddp, &model, 1));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        sum = (int64_t)stats.wire_bytes;
        CHECK_OK(group, ranks_job(group, 0, sum_job, &sum));
        /* Everybody gets everything from everybody, or twice what one rank has. */
        CHECK(group, (unsigned long long)sum ==
                         (fractions[k].grows ? world : 2) * (world - 1) * fractions[k].bytes);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        n_failures += hook_run("bytes", formula_body, NULL, ranks_worlds[w]);
        n_failures += hook_run("fractions", fraction_body, NULL, ranks_worlds[w]);
    }
    return n_failures != 0;
}
