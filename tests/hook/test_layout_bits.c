/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits do not depend on the layout of buckets: every hook with error feedback, for any order of
 * announcements, caps of buckets, views or copies, with and without rearranged buckets after the
 * first step; with hooks that are replaced and states that are loaded on the way; with a sharded
 * optimizer, from the start or later. Hooks that treat a bucket as one matrix or one tensor depend
 * on the caps of buckets, and on nothing else of these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/hook_rules.h"
#include "support/hook_states.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])
#define N_STEPS 11

/* Matrices of several blocks of 64 elements, vectors, a scalar: shards end within parameters. */
static const struct ddp_spec specs[] = {
    {"wte", TALLY_F32, 0, 2, {21, 40}},  {"bias", TALLY_F32, 0, 1, {70}},
    {"fc", TALLY_F32, 0, 2, {33, 17}},   {"scale", TALLY_F32, 0, 0, {0}},
    {"proj", TALLY_F32, 0, 2, {17, 33}}, {"conv", TALLY_F32, 0, 3, {5, 7, 11}},
    {"norm", TALLY_F32, 0, 1, {33}},     {"head", TALLY_F32, 0, 2, {40, 9}},
};
#define N_PARAMS N_OF(specs)

enum order { FORWARD, BACKWARD, SHUFFLED, N_ORDERS };

struct layout {
    enum order order;
    size_t cap_bytes;
    bool copies;
};

/* The first is what the others are compared with. */
static const struct layout layouts[] = {
    {BACKWARD, 4000, false}, {FORWARD, 4000, false},    {BACKWARD, 4000, true},
    {FORWARD, 4000, true},   {SHUFFLED, 4000, true},    {FORWARD, 500, true},
    {SHUFFLED, 1500, true},  {BACKWARD, 1 << 20, true}, {FORWARD, 1 << 20, false},
};

/* The events of a run, and the steps after which they happen. */
struct course {
    const char *hook;
    const char *next; /* the hook that replaces it after step 5; NULL: none does */
    bool loads;       /* the state is saved after step 3 and taken up by another ddp */
    bool shards;      /* with a sharded optimizer; compared with one that is not */
    bool shards_late; /* the same, but the optimizer is created after step 2 */
    int n_ranks_by;   /* only for worlds that this divides */
};

static size_t nth(enum order order, size_t k)
{
    static const size_t shuffled[N_PARAMS] = {4, 0, 7, 2, 6, 1, 5, 3};

    return order == FORWARD ? k : order == BACKWARD ? N_PARAMS - 1 - k : shuffled[k];
}

struct run {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
};

/* Sharded in all layouts but the first. */
static int start_optimizer(tally_group *group, const struct layout *layout, struct run *run)
{
    tally_optimizer_config rule;

    tally_optimizer_config_init(&rule, sizeof rule);
    rule.overlap = 1;
    rule.shard = layout != layouts;
    CHECK_OK(group,
             tally_optimizer_create(run->ddp, "sgd:lr=0.1,momentum=0.9", &rule, &run->optimizer));
    return 0;
}

static int start(tally_group *group, const struct course *course, const struct layout *layout,
                 const char *hook, struct run *run)
{
    tally_ddp_config config;

    *run = (struct run){0};
    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.bucket_cap_bytes = layout->cap_bytes;
    config.first_bucket_bytes = layout->cap_bytes;
    CHECK(group, ddp_model_make(&run->model, specs, N_PARAMS, layout->copies) == 0);
    for (size_t i = 0; i < N_PARAMS; i++) {
        ddp_fill_data(&run->model, i, 77, 0);
    }
    CHECK_OK(group, tally_ddp_create(group, run->model.params, N_PARAMS, &config, &run->ddp));
    return course->shards ? start_optimizer(group, layout, run) : 0;
}

static int end(tally_group *group, struct run *run)
{
    CHECK_OK(group, tally_optimizer_free(run->optimizer));
    CHECK_OK(group, tally_ddp_free(run->ddp));
    ddp_model_free(&run->model);
    return 0;
}

static int step(tally_group *group, struct run *run, const struct layout *layout, unsigned s,
                uint64_t *hash)
{
    for (size_t k = 0; k < N_PARAMS; k++) {
        size_t i = nth(layout->order, k);

        ddp_fill_grad(&run->model, run->ddp, i, s, tally_group_rank(group));
        CHECK_OK(group, tally_ddp_grad_ready(run->ddp, (int)i));
    }
    CHECK_OK(group, tally_ddp_wait(run->ddp));
    for (size_t i = 0; i < N_PARAMS; i++) {
        const void *result =
            run->optimizer ? run->model.params[i].data : tally_ddp_grad(run->ddp, (int)i);

        *hash = ranks_hash(*hash, result, run->model.count[i] * sizeof(float));
    }
    return 0;
}

static int take_up(tally_group *group, const struct course *course, const struct layout *layout,
                   struct run *run)
{
    struct hook_states states;

    CHECK_OK(group, hook_states_take(group, run->ddp, &states));
    CHECK_OK(group, end(group, run));
    CHECK_OK(group, start(group, course, layout, course->next ? course->next : course->hook, run));
    CHECK_OK(group, hook_states_load(run->ddp, &states));
    hook_states_free(&states);
    return 0;
}

/* The hash of every step. */
static int go(tally_group *group, const struct course *course, const struct layout *layout,
              uint64_t *hash)
{
    struct run run;

    CHECK_OK(group, start(group, course, layout, course->hook, &run));
    for (unsigned s = 0; s < N_STEPS; s++) {
        hash[s] = 0;
        CHECK_OK(group, step(group, &run, layout, s, &hash[s]));
        if (s == 2 && course->shards_late) {
            CHECK_OK(group, start_optimizer(group, layout, &run));
        }
        if (s == 3 && course->loads) {
            CHECK_OK(group, take_up(group, course, layout, &run));
        }
        if (s == 5 && course->next && !course->loads) {
            CHECK_OK(group, tally_ddp_set_hook(run.ddp, course->next));
        }
    }
    CHECK_OK(group, end(group, &run));
    return 0;
}

static const struct course courses[] = {
    {.hook = "int8:block=64"},
    {.hook = "int8:block=64,exempt=none"},
    {.hook = "bf16(int8:block=64)"},
    {.hook = "powersgd:rank=2,start=1"},
    {.hook = "bf16(powersgd:rank=1,start=0)"},
    {.hook = "hosts:size=2(int8:block=64)"},
    {.hook = "postlocal:start=4,group=2(int8:block=64)", .n_ranks_by = 2},
    {.hook = "postlocal:start=4(int8:block=64)"},
    {.hook = "postlocal:start=4(powersgd:start=1)"},
    {.hook = "postlocal:start=2(powersgd:start=1)", .next = "allreduce"},
    {.hook = "postlocal:start=2(powersgd:start=1)", .loads = true},
    {.hook = "quantize_per_channel:block=64"},
    {.hook = "quantize_per_tensor"},
    {.hook = "quantize_per_tensor:exchange=gather"},
    /* A hook that follows another. */
    {.hook = "int8:block=64", .next = "allreduce"},
    {.hook = "int8:block=64", .next = "int8:block=128"},
    {.hook = "int8:block=64,exempt=none", .next = "powersgd:start=0"},
    {.hook = "powersgd:start=0", .next = "int8:block=64"},
    {.hook = "int8:block=64", .next = "hosts:size=2(int8:block=64)"},
    {.hook = "hosts:size=2(int8:block=64)", .next = "bf16"},
    {.hook = "hosts:size=2(powersgd:rank=2,start=1)", .next = "powersgd:rank=2,start=1"},
    {.hook = "postlocal:start=2,group=2(int8:block=64)", .next = "int8:block=64", .n_ranks_by = 2},
    /* A state that is taken up, by the same hook and by another. */
    {.hook = "int8:block=64", .loads = true},
    {.hook = "hosts:size=2(int8:block=64)", .loads = true},
    {.hook = "postlocal:start=2,group=2(int8:block=64)", .loads = true, .n_ranks_by = 2},
    {.hook = "int8:block=64", .next = "bf16", .loads = true},
    {.hook = "int8:block=64", .next = "powersgd:start=0", .loads = true},
    {.hook = "hosts:size=2(powersgd:start=1)", .next = "powersgd:start=1", .loads = true},
    {.hook = "allreduce", .next = "bf16", .loads = true},
    /* Sharded. */
    {.hook = "int8:block=64", .shards = true},
    {.hook = "powersgd:rank=2,start=1", .shards = true},
    {.hook = "int8:block=64", .shards_late = true},
};

static int compare(tally_group *group, const struct course *course, const struct layout *layout,
                   const uint64_t *expected)
{
    uint64_t hash[N_STEPS];

    CHECK_OK(group, go(group, course, layout, hash));
    for (unsigned s = 0; s < N_STEPS; s++) {
        if (hash[s] != expected[s]) {
            (void)fprintf(stderr, "%s%s%s%s%s: order %d, cap %zu, %s differs in step %u\n",
                          course->hook, course->next ? ", then " : "",
                          course->next ? course->next : "", course->loads ? ", loaded" : "",
                          course->shards || course->shards_late ? ", sharded" : "",
                          (int)layout->order, layout->cap_bytes,
                          layout->copies ? "copies" : "views", s);
        }
        CHECK(group, hash[s] == expected[s]);
    }
    return 0;
}

/* Few layouts where runs are slow. */
static size_t stride(const tally_group *group)
{
    return tally_group_size(group) > 4 || ranks_are_mpi() ? 3 : RANKS_REPEATS(1, 3);
}

static int body(tally_group *group, void *user)
{
    (void)user;
    for (size_t c = 0; c < N_OF(courses); c++) {
        const struct course *course = &courses[c];
        uint64_t expected[N_STEPS];

        if (course->n_ranks_by && tally_group_size(group) % course->n_ranks_by != 0) {
            continue;
        }
        CHECK_OK(group, go(group, course, &layouts[0], expected));
        for (size_t k = 1; k < N_OF(layouts); k += stride(group)) {
            CHECK_OK(group, compare(group, course, &layouts[k], expected));
        }
    }
    return 0;
}

/* ---- by bucket ---- */

#define BATCHED "batched_powersgd:rank=2,start=1"
#define OF_BUCKET "quantize_per_tensor:scope=bucket"

static const struct course bucket_courses[] = {
    {.hook = BATCHED},
    {.hook = OF_BUCKET},
    {.hook = "hosts:size=2(" BATCHED ")"},
    {.hook = "quantize_per_channel:scope=bucket,block=64", .next = "bf16(" BATCHED ")"},
    {.hook = "int8:block=64", .next = BATCHED},
    {.hook = "allreduce", .next = OF_BUCKET},
    {.hook = BATCHED, .next = "int8:block=64"},
    {.hook = BATCHED, .loads = true},
    {.hook = "int8:block=64", .next = BATCHED, .loads = true},
    {.hook = BATCHED, .shards = true},
    {.hook = OF_BUCKET, .shards = true},
    {.hook = "hosts:size=2(" BATCHED ")", .shards = true},
    {.hook = BATCHED, .shards_late = true},
    {.hook = "int8:block=64", .next = BATCHED, .shards_late = true},
};

/* Hooks whose bits depend on the layout: that of the plan, whatever the order of announcement. */
static int bucket_body(tally_group *group, void *user)
{
    static const struct layout of_equal_caps[] = {{BACKWARD, 4000, false},
                                                  {SHUFFLED, 4000, false},
                                                  {BACKWARD, 4000, true},
                                                  {FORWARD, 4000, true},
                                                  {SHUFFLED, 4000, true}};

    (void)user;
    for (size_t c = 0; c < N_OF(bucket_courses); c++) {
        uint64_t expected[N_STEPS];

        CHECK_OK(group, go(group, &bucket_courses[c], &layouts[0], expected));
        for (size_t k = 0; k < N_OF(of_equal_caps); k += stride(group)) {
            CHECK_OK(group, compare(group, &bucket_courses[c], &of_equal_caps[k], expected));
        }
    }
    return 0;
}

/* ---- more than goes around at once ---- */

#define N_LARGE 6

static int large_run(tally_group *group, bool forward, uint64_t *hash)
{
    struct ddp_spec large[N_LARGE];
    static const char *const names[N_LARGE] = {"a", "b", "c", "d", "e", "f"};
    tally_ddp_config config;
    struct ddp_model model;
    tally_ddp *ddp;

    for (size_t i = 0; i < N_LARGE; i++) {
        large[i] = (struct ddp_spec){names[i], TALLY_F32, 0, 2, {500 + i, 600}};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.hook = "int8";
    config.bucket_cap_bytes = 2 << 20;
    CHECK(group, ddp_model_make(&model, large, N_LARGE, true) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N_LARGE, &config, &ddp));
    for (unsigned s = 0; s < 3; s++) {
        ddp_fill_grads(&model, ddp, s, tally_group_rank(group));
        for (int i = 0; i < N_LARGE; i++) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, forward ? i : N_LARGE - 1 - i));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
    }
    *hash = ddp_hash_grads(&model, ddp);
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int large_body(tally_group *group, void *user)
{
    uint64_t hash[2];

    (void)user;
    CHECK_OK(group, large_run(group, false, &hash[0]));
    CHECK_OK(group, large_run(group, true, &hash[1]));
    CHECK(group, hash[0] == hash[1]);
    return 0;
}

int main(void)
{
    static const struct ranks ways[] = {
        {.kind = RANKS_THREADS, .world = 1, .lanes = 1},
        {.kind = RANKS_THREADS, .world = 2, .lanes = 1},
        {.kind = RANKS_THREADS, .world = 3, .lanes = 3},
        {.kind = RANKS_THREADS, .world = 4, .lanes = 2},
        {.kind = RANKS_PROCESSES, .world = 3, .lanes = 1},
        {.kind = RANKS_THREADS, .world = 7, .lanes = 1},
    };
    int n_failures = 0;

    for (size_t w = 0; w < RANKS_REPEATS(N_OF(ways), 3); w++) {
        n_failures += ranks_run(&ways[w], body, NULL);
        n_failures += ranks_run(&ways[w], bucket_body, NULL);
    }
    n_failures += ranks_run(&ways[2], large_body, NULL);
    return n_failures != 0;
}
