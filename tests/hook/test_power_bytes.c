/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of PowerSGD: two exchanges per bucket, all P and the parameters that are not
 * compressed, then all Q; on every rank of every world the bytes of the formula, half of them with
 * 16 bits. And a model of wide matrices, of which rank 1 sends less than a two-hundredth.
 */
#include <stdio.h>

#include "support/hook_rules.h"
#include "support/oracle.h"
#include "support/power_reference.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

struct form {
    const char *text;
    size_t rank;
    double min_rate;
    size_t element_bytes; /* on the wire */
    bool batched;
};

/*
 * Bytes that a rank sends for n elements: all to every rank, if they are few; otherwise every shard
 * except its own to its owner, and its own, summed, to every rank.
 */
static unsigned long long exchange_bytes(size_t n, size_t element_bytes, int world, int rank)
{
    size_t offset;
    size_t own = 0;

    if (world == 1) {
        return 0;
    }
    if (n * element_bytes <= ranks_one_phase_bytes()) {
        return (unsigned long long)(world - 1) * n * element_bytes;
    }
    tally_shard(n, world, rank, &offset, &own);
    return (n + (unsigned long long)(world - 2) * own) * element_bytes;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A bucket, as far as its messages depend on it. */
struct contents {
    const struct ddp_model *model;
    int params[DDP_MAX_PARAMS];
    size_t n_params;
    size_t n; /* elements */
    int dtype;
};

/* Whether the ddp has bucket b. */
static bool look(const struct ddp_model *model, tally_ddp *ddp, size_t b, struct contents *bucket)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    if (tally_ddp_get_stats(ddp, &stats) != TALLY_OK || b >= stats.n_buckets) {
        return false;
    }
    *bucket = (struct contents){.model = model};
    bucket->n_params = tally_ddp_bucket_params(ddp, b, bucket->params, DDP_MAX_PARAMS);
    bucket->dtype = model->params[bucket->params[0]].dtype;
    for (size_t k = 0; k < bucket->n_params; k++) {
        bucket->n += model->count[bucket->params[k]];
    }
    return true;
}

/* The elements of a bucket's two messages. */
static void messages(const struct form *form, const struct contents *bucket, size_t *first,
                     size_t *second)
{
    size_t side = 0;

    *first = 0;
    *second = 0;
    for (size_t k = 0; k < bucket->n_params && !form->batched; k++) {
        const tally_param *param = &bucket->model->params[bucket->params[k]];
        size_t count = bucket->model->count[bucket->params[k]];
        size_t n = param->n_dims > 0 ? param->shape[0] : 1;
        size_t m = n > 0 ? count / n : 0;
        size_t r = least(form->rank, least(n, m));
        bool worth = (double)((n + m) * r) * form->min_rate < (double)(n * m);

        *first += worth ? n * r : count;
        *second += worth ? m * r : 0;
    }
    while (form->batched && side * side < bucket->n) {
        side++;
    }
    *first += side * least(form->rank, side);
    *second += side * least(form->rank, side);
}

static unsigned long long step_bytes(const struct form *form, const struct ddp_model *model,
                                     tally_ddp *ddp)
{
    int world = tally_group_size(tally_ddp_group(ddp));
    int rank = tally_group_rank(tally_ddp_group(ddp));
    unsigned long long sum = 0;
    struct contents bucket;

    for (size_t b = 0; look(model, ddp, b, &bucket); b++) {
        size_t first;
        size_t second;

        if (bucket.dtype != TALLY_F32) {
            sum += exchange_bytes(bucket.n, tally_dtype_bytes(bucket.dtype), world, rank);
            continue;
        }
        messages(form, &bucket, &first, &second);
        sum += exchange_bytes(first, form->element_bytes, world, rank) +
               exchange_bytes(second, form->element_bytes, world, rank);
    }
    return sum;
}

/* The statistics: elements of fp32, and as how many they travel. */
static bool counts_are_right(const struct form *form, const struct ddp_model *model, tally_ddp *ddp,
                             const tally_ddp_stats *stats)
{
    unsigned long long from = 0;
    unsigned long long to = 0;
    struct contents bucket;

    for (size_t b = 0; look(model, ddp, b, &bucket); b++) {
        size_t first;
        size_t second;

        if (bucket.dtype == TALLY_F32) {
            messages(form, &bucket, &first, &second);
            from += bucket.n;
            to += first + second;
        }
    }
    return stats->compressed_from == from && stats->compressed_to == to;
}

/* ---- many models ---- */

static const struct form forms[] = {
    {"powersgd:start=0", 1, 2, 4, false},
    {"powersgd:rank=2,start=0,feedback=0", 2, 2, 4, false},
    {"powersgd:rank=4,start=0,warm_start=0", 4, 2, 4, false},
    {"powersgd:rank=8,start=0,min_rate=0", 8, 0, 4, false},
    {"powersgd:start=0,min_rate=1e6", 1, 1e6, 4, false},
    {"bf16(powersgd:rank=4,start=0)", 4, 2, 2, false},
    {"fp16:saturate=1(powersgd:start=0)", 1, 2, 2, false},
    {"batched_powersgd:start=0", 1, 0, 4, true},
    {"bf16(batched_powersgd:rank=2,start=0)", 2, 0, 2, true},
};

static int check_form(tally_group *group, const struct form *form, bool copies, size_t cap)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    struct ddp_model model;
    tally_ddp *ddp;

    CHECK(group, ddp_model_make(&model, hook_specs, HOOK_N_PARAMS, copies) == 0);
    CHECK_OK(group, power_create(group, &model, cap, form->text, &ddp));
    for (unsigned s = 0; s < 3; s++) {
        /* Of the buckets that this step travels in. */
        unsigned long long expected = step_bytes(form, &model, ddp);

        CHECK_OK(group, power_run_step(group, ddp, &model, power_value, s));
        CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
        if (stats.wire_bytes != expected) {
            (void)fprintf(stderr, "%s, buckets of %zu bytes: %llu bytes, not %llu\n", form->text,
                          cap, stats.wire_bytes, expected);
            return ranks_fail(group, __FILE__, __LINE__, "bytes on the wire");
        }
    }
    CHECK(group, counts_are_right(form, &model, ddp, &stats));
    CHECK(group, stats.total_compressed_from == 3 * stats.compressed_from);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int formula_body(tally_group *group, void *user)
{
    static const size_t caps[] = {1, 9000, 1 << 20};

    (void)user;
    for (size_t k = 0; k < N_OF(forms) * N_OF(caps); k++) {
        CHECK_OK(group,
                 check_form(group, &forms[k / N_OF(caps)], k % 2 == 1, caps[k % N_OF(caps)]));
    }
    return 0;
}

/* ---- wide matrices ---- */

/* Twenty-five of these are 100 MB; every one of them sends the same. */
static const struct ddp_spec layers[] = {{"w1", TALLY_F32, 0, 2, {1024, 1024}},
                                         {"b1", TALLY_F32, 0, 1, {1024}},
                                         {"w2", TALLY_F32, 0, 2, {1024, 1024}},
                                         {"b2", TALLY_F32, 0, 1, {1024}}};

static double cheap(unsigned step, int rank, size_t i, size_t e)
{
    return (double)((e * 7 + i + step + (size_t)rank) % 13) - 6;
}

static int wide_body(tally_group *group, void *user)
{
    tally_ddp_stats stats = {.size = sizeof stats};
    unsigned long long plain;
    struct ddp_model model;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, layers, N_OF(layers), false) == 0);
    CHECK_OK(group, power_create(group, &model, 0, "allreduce", &ddp));
    CHECK_OK(group, power_run_step(group, ddp, &model, cheap, 0));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    plain = stats.wire_bytes;
    CHECK_OK(group, tally_ddp_set_hook(ddp, "powersgd:start=0"));
    CHECK_OK(group, power_run_step(group, ddp, &model, cheap, 1));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.wire_bytes > 0 && stats.wire_bytes < plain / 200);
    CHECK_OK(group, tally_ddp_set_hook(ddp, "batched_powersgd:start=0"));
    CHECK_OK(group, power_run_step(group, ddp, &model, cheap, 2));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.wire_bytes > 0 && stats.wire_bytes < plain / 200);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    const struct ranks two = {.kind = RANKS_THREADS, .world = 2, .lanes = 1};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS - 1; w++) {
        n_failures += hook_run("formula", formula_body, NULL, ranks_worlds[w]);
    }
    n_failures += ranks_run(&two, wide_body, NULL);
    return n_failures != 0;
}
