/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients in one flat array of the application: hooks work on the array itself, with the bits of
 * separate arrays; also where a rank lacks a gradient, where only some ranks have such an array,
 * and where the order of announcement arranges buckets anew. noop writes to no gradient.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/ddp_model.h"
#include "support/oracle.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])
#define N_STEPS 4

static const struct ddp_spec specs[] = {
    {"wte", TALLY_F32, 0, 2, {90, 80}}, {"bias", TALLY_F32, 0, 1, {70}},
    {"none", TALLY_F32, 0, 1, {0}},     {"fc", TALLY_F32, 0, 2, {33, 17}},
    {"conv", TALLY_F32, 0, 2, {57, 7}}, {"head", TALLY_F32, 0, 2, {40, 9}},
};
#define N_PARAMS N_OF(specs)
#define FLAT_BYTES ((size_t)1 << 18)

static const char *const hooks[] = {
    "allreduce", "bf16",      "int8", "quantize_per_tensor", "powersgd:rank=2,start=1",
    "noop",      "bf16(int8)"};

/* A rank's array, of zeros. */
static unsigned char *fresh_array(void)
{
    static _Thread_local _Alignas(64) unsigned char array[FLAT_BYTES];

    memset(array, 0, sizeof array);
    return array;
}

/* Points the gradients of a model of copies into one array; returns the old pointers to free. */
static void flatten(struct ddp_model *model, unsigned char *flat, void **kept)
{
    for (size_t i = 0; i < model->n; i++) {
        kept[i] = model->params[i].grad;
        model->params[i].grad = flat;
        flat += model->count[i] * sizeof(float);
    }
}

static void unflatten(struct ddp_model *model, void **kept)
{
    for (size_t i = 0; i < model->n; i++) {
        model->params[i].grad = kept[i];
    }
}

static int step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed)
{
    int rank = tally_group_rank(group);

    for (size_t k = 0; k < N_PARAMS; k++) {
        size_t i = seed % 2 ? N_PARAMS - 1 - k : (k + 3) % N_PARAMS;

        ddp_fill_grad(model, ddp, i, seed, rank);
        /* In step 2 the last rank has no gradient for one parameter, and no rank for another. */
        if (seed == 2 && (i == 1 || (i == 3 && rank == tally_group_size(group) - 1))) {
            CHECK_OK(group, tally_ddp_grad_absent(ddp, (int)i));
        } else {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, (int)i));
        }
    }
    CHECK_OK(group, tally_ddp_wait(ddp));
    return 0;
}

/* Whether this rank's gradients are one array: on all ranks, on the even ones, or on none. */
enum who { ALL, EVEN, NONE };

static int run(tally_group *group, const char *hook, enum who who, size_t cap, uint64_t *hashes)
{
    bool flat = who == ALL || (who == EVEN && tally_group_rank(group) % 2 == 0);
    unsigned char *array = fresh_array();
    tally_ddp_config config;
    struct ddp_model model;
    void *kept[N_PARAMS] = {NULL};
    tally_ddp *ddp;

    tally_ddp_config_init(&config, sizeof config);
    config.hook = hook;
    config.bucket_cap_bytes = cap;
    CHECK(group, ddp_model_make(&model, specs, N_PARAMS, true) == 0);
    if (flat) {
        flatten(&model, array, kept);
    }
    CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, &config, &ddp));
    for (unsigned s = 0; s < N_STEPS; s++) {
        CHECK_OK(group, step(group, ddp, &model, s));
        hashes[s] = ddp_hash_grads(&model, ddp);
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    if (flat) {
        unflatten(&model, kept);
    }
    ddp_model_free(&model);
    return 0;
}

static int compare(tally_group *group, void *user)
{
    static const size_t caps[] = {1, 4000, 1 << 20};

    (void)user;
    for (size_t h = 0; h < N_OF(hooks); h++) {
        uint64_t expected[N_STEPS];

        CHECK_OK(group, run(group, hooks[h], NONE, caps[0], expected));
        for (size_t c = 0; c < N_OF(caps); c++) {
            for (int who = ALL; who <= EVEN; who++) {
                uint64_t found[N_STEPS];

                CHECK_OK(group, run(group, hooks[h], (enum who)who, caps[c], found));
                if (memcmp(found, expected, sizeof found) != 0) {
                    (void)fprintf(stderr, "hook %s, cap %zu, %d\n", hooks[h], caps[c], who);
                }
                CHECK(group, memcmp(found, expected, sizeof found) == 0);
            }
        }
    }
    return 0;
}

/* ---- in place ---- */

/* A hook that is not elementwise, and looks where its bucket lies. */
struct watch {
    const unsigned char *from;
    const unsigned char *to;
    int n_inside;
    int n_outside;
};

static int watch_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct watch *watch = state;
    const unsigned char *data = bucket->data;
    bool is_inside = data >= watch->from && data < watch->to;

    for (int k = 0; k < bucket->n_params; k++) {
        is_inside = is_inside && (const unsigned char *)bucket->params[k].gradient ==
                                     data + bucket->params[k].offset * sizeof(float);
    }
    *(is_inside ? &watch->n_inside : &watch->n_outside) += 1;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int watch_place(tally_group *group, void *user)
{
    unsigned char *array = fresh_array();
    struct watch watch = {.from = array, .to = array + FLAT_BYTES};
    const tally_hook_table table = {.size = sizeof table, .name = "watch", .reduce = watch_reduce};
    tally_ddp_config config;
    struct ddp_model model;
    void *kept[N_PARAMS] = {NULL};
    tally_hook *hook;
    tally_ddp *ddp;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = 4000;
    CHECK(group, ddp_model_make(&model, specs, N_PARAMS, true) == 0);
    flatten(&model, array, kept);
    CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, &config, &ddp));
    CHECK_OK(group, tally_hook_create(&table, &watch, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(ddp, hook));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 1));
    CHECK_OK(group, ddp_right_step(group, ddp, &model, 3));
    CHECK(group, watch.n_inside >= 4 && watch.n_outside == 0);
    CHECK_OK(group, tally_ddp_free(ddp));
    tally_hook_free(hook);
    unflatten(&model, kept);
    ddp_model_free(&model);
    return 0;
}

/* ---- noop ---- */

/* Gradients in separate arrays that must not be written to. */
static int keep_still(tally_group *group, void *user)
{
    size_t room = FLAT_BYTES;
    tally_ddp_config config;
    struct ddp_model model;
    void *kept[N_PARAMS] = {NULL};
    tally_ddp *ddp;

    (void)user;
    tally_ddp_config_init(&config, sizeof config);
    config.hook = "noop";
    CHECK(group, ddp_model_make(&model, specs, N_PARAMS, true) == 0);
    for (size_t i = 0; i < N_PARAMS; i++) {
        kept[i] = model.params[i].grad;
        model.params[i].grad =
            mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(group, model.params[i].grad != MAP_FAILED);
    }
    CHECK_OK(group, tally_ddp_create(group, model.params, N_PARAMS, &config, &ddp));
    ddp_fill_grads(&model, ddp, 5, tally_group_rank(group));
    for (size_t i = 0; i < N_PARAMS; i++) {
        CHECK(group, mprotect(model.params[i].grad, room, PROT_READ) == 0);
    }
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < (int)N_PARAMS; i++) {
            CHECK_OK(group, tally_ddp_grad_ready(ddp, i));
        }
        CHECK_OK(group, tally_ddp_wait(ddp));
    }
    CHECK_OK(group, tally_ddp_free(ddp));
    for (size_t i = 0; i < N_PARAMS; i++) {
        CHECK(group, ddp_not_of(&model, i, model.params[i].grad, 5, tally_group_rank(group)) == 0);
        (void)munmap(model.params[i].grad, room);
        model.params[i].grad = kept[i];
    }
    ddp_model_free(&model);
    return 0;
}

int main(void)
{
    static const int worlds[] = {1, 2, 3, 7};
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < N_OF(worlds); w++) {
        n_failures += ddp_run_world("test_ddp_flat: bits", compare, NULL, 2, worlds[w]);
        n_failures += ddp_run_world("test_ddp_flat: place", watch_place, NULL, 1, worlds[w]);
        n_failures += ddp_run_world("test_ddp_flat: noop", keep_still, NULL, 2, worlds[w]);
    }
    return n_failures != 0;
}
