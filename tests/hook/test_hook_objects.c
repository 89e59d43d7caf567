/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hook objects: one's own hook inside the wrappers, and what of its exchanges travels as halves;
 * what is freed when; and hooks that are attached to one ddp after the other, or to two at once.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/oracle.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- one's own hook, wrapped ---- */

#define N 3000

/* The exchanges of the hook, one after the other, and whether a wrapper makes them 16 bits. */
static const struct {
    int dtype;
    int op;
    bool scatters;
    bool halves;
} exchanges[] = {
    {TALLY_F32, TALLY_MEAN, false, true},  {TALLY_F32, TALLY_SUM, false, true},
    {TALLY_F32, TALLY_SUM, true, true},    {TALLY_F32, TALLY_MIN, false, false},
    {TALLY_F32, TALLY_MAX, false, false},  {TALLY_F64, TALLY_SUM, false, false},
    {TALLY_F16, TALLY_MEAN, false, false}, {TALLY_BF16, TALLY_SUM, false, false},
    {TALLY_I32, TALLY_SUM, false, false},  {TALLY_U8, TALLY_MAX, false, false},
};

struct own {
    union {
        double room[N];
        float f32[N];
    } data;
    uint64_t hash[COUNT(exchanges)]; /* of the result */
    float third;                     /* of the first mean, in fp32 */
    atomic_int *n_destroyed;
};

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct own *own = state;
    int rank = tally_group_rank(tally_lane_group(lane));

    for (size_t k = 0; k < COUNT(exchanges); k++) {
        int dtype = exchanges[k].dtype;
        int rc;

        if (dtype == TALLY_F32) {
            oracle_fill_finite(3, rank, N, own->data.f32);
        } else {
            oracle_fill(dtype, 3, rank, N, &own->data);
        }
        rc = (exchanges[k].scatters ? tally_lane_reduce_scatter : tally_lane_all_reduce)(
            lane, &own->data, N, dtype, exchanges[k].op);
        if (rc != TALLY_OK) {
            return rc;
        }
        own->hash[k] = oracle_hash(dtype, N, &own->data);
        if (k == 0) {
            own->third = own->data.f32[0] / 3;
        }
    }
    ((float *)bucket->data)[0] = own->third;
    return TALLY_OK;
}

static void destroy(void *state)
{
    struct own *own = state;

    atomic_fetch_add(own->n_destroyed, 1);
    free(own);
}

static int make_own(tally_group *group, atomic_int *n_destroyed, struct own **own,
                    tally_hook **hook)
{
    static const tally_hook_table table = {
        .size = sizeof table, .name = "own", .reduce = reduce, .destroy = destroy};

    *own = calloc(1, sizeof **own);
    CHECK(group, *own != NULL);
    (*own)->n_destroyed = n_destroyed;
    CHECK_OK(group, tally_hook_create(&table, *own, hook));
    return 0;
}

/* Bytes of all exchanges. */
static uint64_t expected_bytes(const tally_group *group, const struct hook_rule *rule)
{
    int world = tally_group_size(group);
    int rank = tally_group_rank(group);
    uint64_t bytes = 0;

    for (size_t k = 0; k < COUNT(exchanges); k++) {
        const struct hook_bucket bucket = {
            .dtype = exchanges[k].dtype, .n_params = 1, .count = {N}, .n_dims = {2}};
        const struct hook_rule *one = exchanges[k].halves ? rule : hook_rule_of("allreduce");
        size_t element = one->wire == TALLY_F32 ? 4 : 2;
        size_t start;
        size_t n;

        tally_shard(N, world, rank, &start, &n);
        bytes +=
            exchanges[k].scatters ? (N - n) * element : hook_sent_bytes(one, &bucket, world, rank);
    }
    return bytes;
}

/* The first exchange's result is compared with the oracle, to the bit; the others' with their
 * results without a wrapper. */
static int check_results(tally_group *group, const struct own *own, const struct own *plain,
                         const struct hook_rule *rule)
{
    int world = tally_group_size(group);
    static _Thread_local float in[8][N];
    static _Thread_local float out[N];
    const float *all[8];

    for (int r = 0; r < world; r++) {
        oracle_fill_finite(3, r, N, in[r]);
        all[r] = in[r];
    }
    hook_expect(rule, 2, N, world, all, out);
    CHECK(group, own->hash[0] == oracle_hash(TALLY_F32, N, out));
    /* The hook has the whole fp32 after that. */
    CHECK(group, own->third == out[0] / 3);
    for (size_t k = 1; k < COUNT(exchanges); k++) {
        bool halves = rule->wire != TALLY_F32 && exchanges[k].halves;

        CHECK(group, (own->hash[k] == plain->hash[k]) != halves);
    }
    return 0;
}

static int try_wrapped(tally_group *group, tally_ddp *ddp, tally_hook *hook,
                       const struct hook_rule *rule)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    CHECK_OK(group, tally_ddp_grad_ready(ddp, 0));
    CHECK_OK(group, tally_ddp_wait(ddp));
    CHECK_OK(group, tally_ddp_get_stats(ddp, &stats));
    CHECK(group, stats.wire_bytes == expected_bytes(group, rule));
    return 0;
}

/* Two wrappers, the outer one first. */
static int wrap(tally_group *group, const char *outer, const char *inner, tally_hook *own,
                tally_hook **hook)
{
    tally_hook *middle;

    CHECK_OK(group, tally_hook_wrap(inner, own, &middle));
    *hook = middle;
    if (outer) {
        CHECK_OK(group, tally_hook_wrap(outer, middle, hook));
        tally_hook_free(middle);
    }
    return 0;
}

static int wrap_body(tally_group *group, void *user)
{
    static const struct ddp_spec spec = {"p", TALLY_F32, 0, 2, {1, 1}};
    static const struct {
        const char *outer;
        const char *inner;
        const char *rule;
    } wraps[] = {
        {NULL, "fp16", "fp16"},
        {NULL, "bf16", "bf16"},
        {"fp16", "bf16", "bf16"},
        {"bf16", "fp16:saturate=1", "fp16:saturate=1"},
        {NULL, "fp16:accumulate=wire", "fp16:accumulate=wire"},
    };
    atomic_int n_destroyed = 0;
    struct ddp_model model;
    struct own *plain;
    tally_hook *hook;
    tally_hook *bare;
    tally_ddp *ddp;

    (void)user;
    CHECK(group, ddp_model_make(&model, &spec, 1, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, 1, NULL, &ddp));
    CHECK_OK(group, make_own(group, &n_destroyed, &plain, &bare));
    CHECK_OK(group, try_wrapped(group, ddp, bare, hook_rule_of("allreduce")));
    CHECK_OK(group, check_results(group, plain, plain, hook_rule_of("allreduce")));
    for (size_t k = 0; k < COUNT(wraps); k++) {
        const struct hook_rule *rule = hook_rule_of(wraps[k].rule);
        struct own *own;
        tally_hook *inner;

        CHECK_OK(group, make_own(group, &n_destroyed, &own, &inner));
        CHECK_OK(group, wrap(group, wraps[k].outer, wraps[k].inner, inner, &hook));
        tally_hook_free(inner);
        CHECK_OK(group, try_wrapped(group, ddp, hook, rule));
        tally_hook_free(hook);
        CHECK_OK(group, check_results(group, own, plain, rule));
        CHECK(group, atomic_load(&n_destroyed) == (int)k);
        /* Nothing of the wrapper stays on the lane. */
        CHECK_OK(group, try_wrapped(group, ddp, bare, hook_rule_of("allreduce")));
        CHECK_OK(group, check_results(group, plain, plain, hook_rule_of("allreduce")));
        CHECK(group, atomic_load(&n_destroyed) == (int)k + 1);
    }
    CHECK_STATUS(group, tally_hook_wrap("int8", bare, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_wrap("fp16(bf16)", bare, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_wrap("fp17", bare, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_wrap(NULL, bare, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_wrap("fp16", NULL, &hook), TALLY_ARG);
    CHECK_STATUS(group, tally_hook_wrap("fp16", bare, NULL), TALLY_ARG);
    tally_hook_free(bare);
    CHECK(group, atomic_load(&n_destroyed) == (int)COUNT(wraps));
    CHECK_OK(group, tally_ddp_free(ddp));
    CHECK(group, atomic_load(&n_destroyed) == (int)COUNT(wraps) + 1);
    ddp_model_free(&model);
    return 0;
}

/* ---- one object, two ddps ---- */

#define SEED 5

static float expected[8][HOOK_N_PARAMS * HOOK_MOST];

static const char *const shared[] = {
    "quantize_per_tensor",   "quantize_per_tensor:exchange=gather",
    "quantize_per_channel",  "int8:feedback=0",
    "bf16(int8:feedback=0)",
};

/* A few parameters more than the first one. */
static int another_ddp(tally_group *group, struct ddp_model *model, size_t n, tally_ddp **ddp)
{
    CHECK(group, ddp_model_make(model, hook_specs, n, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model->params, n, NULL, ddp));
    return 0;
}

static int share_one(tally_group *group, size_t k)
{
    int world = tally_group_size(group);
    struct ddp_model small;
    struct ddp_model large;
    tally_ddp_stats stats = {.size = sizeof stats};
    tally_ddp *first;
    tally_ddp *second;
    tally_hook *hook;

    CHECK_OK(group, another_ddp(group, &small, 3, &first));
    CHECK_OK(group, another_ddp(group, &large, HOOK_N_PARAMS, &second));
    CHECK_OK(group, tally_hook_parse(shared[k], &hook));
    CHECK_OK(group, tally_ddp_attach_hook(first, hook));
    CHECK_OK(group, hook_step(group, first, &small, SEED));
    CHECK(group, hook_wrong(&small, first, SEED, world, expected[k]) == 0);
    /* It is taken; what the second one had, stays. */
    CHECK_STATUS(group, tally_ddp_attach_hook(second, hook), TALLY_STATE);
    CHECK_OK(group, tally_ddp_get_stats(second, &stats));
    CHECK(group, strcmp(stats.hook, "allreduce") == 0);
    CHECK_OK(group, tally_ddp_attach_hook(first, hook));
    CHECK_OK(group, tally_ddp_set_hook(first, "bf16"));
    CHECK_OK(group, tally_ddp_attach_hook(second, hook));
    CHECK_OK(group, hook_step(group, second, &large, SEED));
    CHECK(group, hook_wrong(&large, second, SEED, world, expected[k]) == 0);
    CHECK_OK(group, tally_ddp_free(second));
    CHECK_OK(group, tally_ddp_attach_hook(first, hook));
    CHECK_OK(group, hook_step(group, first, &small, SEED));
    CHECK(group, hook_wrong(&small, first, SEED, world, expected[k]) == 0);
    tally_hook_free(hook);
    CHECK_OK(group, tally_ddp_free(first));
    ddp_model_free(&small);
    ddp_model_free(&large);
    return 0;
}

static int share_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < COUNT(shared); k++) {
        CHECK_OK(group, share_one(group, k));
    }
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 8};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < COUNT(worlds); w++) {
        for (size_t k = 0; k < COUNT(shared); k++) {
            hook_expect_all(hook_rule_of(shared[k]), SEED, worlds[w], expected[k]);
        }
        n_failures += worlds[w] > 1 ? hook_run("wrapped", wrap_body, NULL, worlds[w]) : 0;
        n_failures += hook_run("shared", share_body, NULL, worlds[w]);
    }
    return n_failures != 0;
}
