/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reducer leaves the bits of a ddp: with the same buckets for every hook, and for hooks whose
 * bits do not depend on buckets also when every step has other buckets at other addresses; across
 * a save and a load into another reducer, and from a ddp into a reducer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/framework_model.h"
#include "support/hook_states.h"
#include "support/oracle.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])
#define N_STEPS 7
#define LOADED_AFTER 3

static const struct ddp_spec specs[] = {
    {"wte", TALLY_F32, 0, 2, {21, 40}},  {"bias", TALLY_F32, 0, 1, {70}},
    {"fc", TALLY_F32, 0, 2, {33, 17}},   {"scale", TALLY_F32, 0, 0, {0}},
    {"proj", TALLY_F32, 0, 2, {17, 33}}, {"conv", TALLY_F32, 0, 3, {5, 7, 11}},
    {"norm", TALLY_F64, 0, 1, {33}},     {"head", TALLY_F32, 0, 2, {40, 9}},
};
#define N_PARAMS N_OF(specs)

/* By step: the order and the groups of a framework that arranges its buckets again and again. */
static framework_layout layouts[] = {
    {7, 5, 4, 3, -1, 6, -1, 2, 1, 0, -1, -2},
    {0, -1, 1, 2, 3, -1, 6, -1, 5, 7, 4, -1, -2},
    {0, -1, 1, 2, 3, -1, 6, -1, 5, 7, 4, -1, -2},
    {6, -1, 4, 5, 0, 2, 1, 7, 3, -1, -2},
    {7, -1, 6, -1, 5, -1, 4, -1, 3, -1, 2, -1, 1, -1, 0, -1, -2},
};

struct course {
    const char *hook;
    bool bound; /* its bits depend on the buckets */
};

static const struct course courses[] = {
    {"allreduce", false},
    {"noop", false},
    {"fp16", false},
    {"bf16:accumulate=wire", false},
    {"int8", false},
    {"int8:block=64,exempt=none", false},
    {"bf16(int8)", false},
    {"quantize_per_tensor", false},
    {"quantize_per_tensor:exchange=gather", false},
    {"quantize_per_channel", false},
    {"quantize_per_tensor:scope=bucket", true},
    {"powersgd:start=0", false},
    {"powersgd:rank=3,start=2", false},
    {"fp16(powersgd:rank=2,start=0)", false},
    {"batched_powersgd:start=0", true},
    {"batched_powersgd:rank=2,start=2", true},
    {"hosts:size=2(int8)", false},
    {"postlocal:start=2,group=1(bf16)", false},
};

/* The buckets of a ddp as a layout. */
static void layout_of(tally_ddp *ddp, int *layout)
{
    for (size_t b = 0;; b++) {
        size_t n = tally_ddp_bucket_params(ddp, b, layout, N_PARAMS);

        if (n == 0) {
            break;
        }
        layout += n;
        *layout++ = -1;
    }
    *layout = -2;
}

/* Every rank saves and loads into a new reducer, which goes on. */
static int change_reducer(tally_group *group, const char *hook, struct framework *framework)
{
    struct hook_states states = {.n = (size_t)tally_group_size(group)};
    size_t rank = (size_t)tally_group_rank(group);
    tally_future *future;

    CHECK_OK(group, tally_reducer_save(framework->reducer, NULL, &states.bytes[rank]));
    for (size_t r = 0; r < states.n; r++) {
        CHECK_OK(group,
                 tally_broadcast(group, &states.bytes[r], sizeof states.bytes[r], (int)r, &future));
        CHECK_OK(group, ranks_finish(future));
        states.blob[r] = malloc(states.bytes[r]);
        CHECK(group, states.blob[r]);
        if (r == rank) {
            CHECK_OK(group,
                     tally_reducer_save(framework->reducer, states.blob[r], &states.bytes[rank]));
        }
        CHECK_OK(group, tally_broadcast(group, states.blob[r], states.bytes[r], (int)r, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    CHECK_OK(group, tally_reducer_free(framework->reducer));
    CHECK_OK(group, tally_reducer_create(group, framework->model.params, N_PARAMS, hook,
                                         &framework->reducer));
    CHECK_OK(group, tally_reducer_load(framework->reducer, (const void *const *)states.blob,
                                       states.bytes, states.n));
    hook_states_free(&states);
    return 0;
}

/* The same steps with a ddp and with a reducer. */
static int compare(tally_group *group, const struct course *course, struct framework *framework)
{
    tally_ddp_config config;
    struct ddp_model model;
    tally_ddp *ddp;
    int of_ddp[2 * DDP_MAX_PARAMS];

    tally_ddp_config_init(&config, sizeof config);
    config.hook = course->hook;
    config.bucket_cap_bytes = 3000;
    CHECK(group, ddp_model_make(&model, specs, N_PARAMS, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, &config, &ddp));
    CHECK_OK(group, framework_make(group, specs, N_PARAMS, course->hook, framework));
    layout_of(ddp, of_ddp);
    for (unsigned step = 0; step < N_STEPS; step++) {
        const int *layout = course->bound ? of_ddp : layouts[step % N_OF(layouts)];
        tally_ddp_stats stats = {.size = sizeof stats};

        CHECK_OK(group, ddp_step(group, ddp, &model, step));
        CHECK_OK(group, framework_step(group, framework, layout, step, step * 3));
        CHECK(group, framework_hash(framework) == ddp_hash_grads(&model, ddp));
        CHECK_OK(group, tally_reducer_get_stats(framework->reducer, &stats));
        CHECK(group, stats.step == (step <= LOADED_AFTER ? step + 1 : step - LOADED_AFTER));
        CHECK(group, strcmp(stats.hook, course->hook) == 0);
        if (step == LOADED_AFTER) {
            CHECK_OK(group, change_reducer(group, course->hook, framework));
        }
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return framework_end(group, framework);
}

/* A reducer takes up the state of a ddp. */
static int from_ddp(tally_group *group, const char *hook, struct framework *framework)
{
    struct hook_states states;
    tally_ddp_config config;
    struct ddp_model model;
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.bucket_cap_bytes = 2000;
    CHECK(group, ddp_model_make(&model, specs, N_PARAMS, true) == 0);
    CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, &config, &ddp));
    CHECK_OK(group, framework_make(group, specs, N_PARAMS, hook, framework));
    for (unsigned step = 0; step < 3; step++) {
        CHECK_OK(group, ddp_step(group, ddp, &model, step));
    }
    CHECK_OK(group, hook_states_take(group, ddp, &states));
    CHECK_OK(group, tally_reducer_load(framework->reducer, (const void *const *)states.blob,
                                       states.bytes, states.n));
    hook_states_free(&states);
    for (unsigned step = 3; step < 6; step++) {
        CHECK_OK(group, ddp_step(group, ddp, &model, step));
        CHECK_OK(group, framework_step(group, framework, layouts[step % N_OF(layouts)], step, 0));
        CHECK(group, framework_hash(framework) == ddp_hash_grads(&model, ddp));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return framework_end(group, framework);
}

static int body(tally_group *group, void *user)
{
    struct framework *framework = malloc(sizeof *framework);
    int rc = framework ? 0 : RANKS_FAILED;

    (void)user;
    for (size_t c = 0; c < N_OF(courses) && rc == 0; c++) {
        rc = compare(group, &courses[c], framework);
        if (rc != 0) {
            (void)fprintf(stderr, "hook %s\n", courses[c].hook);
        }
    }
    rc = rc == 0 ? from_ddp(group, "int8", framework) : rc;
    rc = rc == 0 ? from_ddp(group, "powersgd:rank=2,start=1", framework) : rc;
    free(framework);
    return rc;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 4, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < N_OF(worlds); w++) {
        n_failures += ddp_run_world("test_reducer_bits", body, NULL, 1 + (int)w % 2, worlds[w]);
    }
    return n_failures != 0;
}
