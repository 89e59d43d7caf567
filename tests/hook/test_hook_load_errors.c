/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States that must be refused: damaged, incomplete, of something else, on one rank or on all. Every
 * rank gets the same text, and nothing has changed anywhere. And application hooks that cannot save
 * or load.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/blob.h"
#include "support/hook_states.h"

#define N_BEFORE 3

/* A run, its state, its state some steps later, and a run that saves nothing. */
struct scene {
    struct state_run run;
    struct state_run twin;
    struct hook_states states;
    struct hook_states later;
    bool odd; /* this rank is the last one */
};

static int start(tally_group *group, struct scene *scene)
{
    const struct state_setup setup = {"int8", false, 0};
    uint64_t hash;

    scene->odd = tally_group_rank(group) == tally_group_size(group) - 1;
    CHECK_OK(group, state_run_start(group, &setup, &scene->run));
    CHECK_OK(group, state_run_start(group, &setup, &scene->twin));
    CHECK_OK(group, state_steps(group, &scene->twin, 0, N_BEFORE + 1, &hash));
    CHECK_OK(group, hook_states_take(group, scene->twin.ddp, &scene->later));
    CHECK_OK(group, state_steps(group, &scene->run, 0, N_BEFORE, &hash));
    CHECK_OK(group, hook_states_take(group, scene->run.ddp, &scene->states));
    CHECK_OK(group, hook_states_load(scene->twin.ddp, &scene->states));
    return 0;
}

/* It goes on like the twin, which was left alone. */
static int end(tally_group *group, struct scene *scene)
{
    uint64_t hash;
    uint64_t undisturbed;

    CHECK_OK(group, state_steps(group, &scene->run, N_BEFORE, 3, &hash));
    CHECK_OK(group, state_steps(group, &scene->twin, N_BEFORE, 3, &undisturbed));
    CHECK(group, hash == undisturbed);
    CHECK_OK(group, state_run_end(group, &scene->run));
    CHECK_OK(group, state_run_end(group, &scene->twin));
    hook_states_free(&scene->states);
    hook_states_free(&scene->later);
    return 0;
}

/* All ranks are refused with this status and, somewhere, this text. */
static int refused(tally_group *group, const struct scene *scene, const struct hook_states *states,
                   int status, const char *text)
{
    CHECK_STATUS(group, hook_states_load(scene->run.ddp, states), status);
    CHECK_TEXT(group, tally_last_error(), text);
    CHECK(group, !strpbrk(tally_last_error(), "\n\r\t"));
    CHECK(group, hook_states_unchanged(group, scene->run.ddp, &scene->states));
    return 0;
}

/* The same, with a change to the last blob only, on the last rank only. The copy has its size, so
 * that a sanitizer sees reads behind its end. */
static int refused_copy(tally_group *group, const struct scene *scene, size_t bytes, size_t flip,
                        const char *text)
{
    size_t last = scene->states.n - 1;
    struct hook_states changed = scene->states;
    unsigned char *copy = malloc(bytes + (bytes == 0));
    int rc;

    CHECK(group, copy);
    memcpy(copy, changed.blob[last], bytes < changed.bytes[last] ? bytes : changed.bytes[last]);
    if (flip < bytes) {
        copy[flip] ^= (unsigned char)(1u << flip % 8);
    }
    if (scene->odd) {
        changed.blob[last] = copy;
        changed.bytes[last] = bytes;
    }
    rc = refused(group, scene, &changed, TALLY_ARG, text);
    free(copy);
    return rc;
}

static int damage_body(tally_group *group, void *user)
{
    struct scene scene;
    size_t bytes;
    char text[64];

    (void)user;
    CHECK_OK(group, start(group, &scene));
    bytes = scene.states.bytes[scene.states.n - 1];
    (void)snprintf(text, sizeof text, "rank %zu: blob %zu", scene.states.n - 1, scene.states.n - 1);
    for (size_t n = 0; n < bytes; n += n < 128 ? 3 : 1 + n / 9) {
        CHECK_OK(group, refused_copy(group, &scene, n, n, text));
    }
    CHECK_OK(group, refused_copy(group, &scene, bytes - 1, bytes, text));
    CHECK_OK(group, refused_copy(group, &scene, bytes + 8, bytes + 8, text));
    for (size_t flip = 0; flip < bytes; flip += flip < 256 ? 1 : 1 + bytes / 61) {
        CHECK_OK(group, refused_copy(group, &scene, bytes, flip, text));
    }
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- whole, but wrong ---- */

/* Blob 0 with one number of its head changed, sealed again. */
static int refused_head(tally_group *group, const struct scene *scene, size_t offset,
                        uint32_t number, const char *text)
{
    struct hook_states changed = scene->states;
    unsigned char *copy = malloc(changed.bytes[0]);
    int rc;

    CHECK(group, copy);
    memcpy(copy, changed.blob[0], changed.bytes[0]);
    memcpy(copy + offset, &number, sizeof number);
    hook_states_seal(copy, changed.bytes[0]);
    changed.blob[0] = copy;
    rc = refused(group, scene, &changed, TALLY_ARG, text);
    free(copy);
    return rc;
}

static int wrong_heads(tally_group *group, const struct scene *scene)
{
    CHECK_OK(group, refused_head(group, scene, offsetof(struct tally__blob_head, magic), 7,
                                 "not written by tally_ddp_save"));
    CHECK_OK(group, refused_head(group, scene, offsetof(struct tally__blob_head, version), 99,
                                 "blob 0 has version 99"));
    CHECK_OK(group, refused_head(group, scene, offsetof(struct tally__blob_head, world), 40,
                                 "was saved by rank 0 of 40"));
    CHECK_OK(group, refused_head(group, scene, offsetof(struct tally__blob_head, rank), 5,
                                 "was saved by rank 5 of"));
    CHECK_OK(group, refused_head(group, scene, offsetof(struct tally__blob_head, n_params), 9,
                                 "blob 0 has 9 parameters, this model has 8"));
    return 0;
}

/* One rank's, which owns what means of both lacked, as if that rank had been alone. */
static int alone(tally_group *group, const struct scene *scene)
{
    struct scene one = *scene;

    one.states.n = 1;
    return refused_head(group, &one, offsetof(struct tally__blob_head, world), 1,
                        "blob 0 is damaged");
}

/* Mistakes that need several ranks. */
static int wrong_sets(tally_group *group, const struct scene *scene)
{
    size_t last = scene->states.n - 1;
    struct hook_states changed = scene->states;

    CHECK_OK(group, scene->states.n == 2 ? alone(group, scene) : TALLY_OK);
    changed.n--;
    CHECK_OK(group, refused(group, scene, &changed, TALLY_ARG, "pass the blobs of all its ranks"));
    changed = scene->states;
    changed.blob[0] = scene->states.blob[last];
    changed.bytes[0] = scene->states.bytes[last];
    CHECK_OK(group, refused(group, scene, &changed, TALLY_ARG, "in rank order"));
    changed = scene->states;
    changed.blob[last] = scene->later.blob[last];
    changed.bytes[last] = scene->later.bytes[last];
    CHECK_OK(group, refused(group, scene, &changed, TALLY_ARG, "after 4 steps, blob 0 after 3"));
    CHECK_OK(group, refused(group, scene, scene->odd ? &scene->later : &scene->states,
                            TALLY_MISMATCH, "other blobs"));
    return 0;
}

static int nothing(tally_group *group, const struct scene *scene)
{
    tally_ddp *ddp = scene->run.ddp;
    const void *const *blobs = (const void *const *)scene->states.blob;
    const size_t *bytes = scene->states.bytes;
    struct hook_states changed = scene->states;

    /* On the last rank only. */
    CHECK_STATUS(group, tally_ddp_load(ddp, scene->odd ? NULL : blobs, bytes, scene->states.n),
                 TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_load(ddp, blobs, scene->odd ? NULL : bytes, scene->states.n),
                 TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_load(ddp, blobs, bytes, scene->odd ? 0 : scene->states.n),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "there are no blobs");
    CHECK_STATUS(group,
                 tally_ddp_load(ddp, blobs, bytes, scene->odd ? (size_t)-1 : scene->states.n),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "blobs, but no run has more than");
    changed.blob[0] = scene->odd ? NULL : changed.blob[0];
    CHECK_OK(group, refused(group, scene, &changed, TALLY_ARG, "blob 0 has 0 bytes"));
    CHECK_STATUS(group, tally_ddp_load(NULL, blobs, bytes, scene->states.n), TALLY_ARG);
    return 0;
}

static int wrong_body(tally_group *group, void *user)
{
    struct scene scene;

    (void)user;
    CHECK_OK(group, start(group, &scene));
    CHECK_OK(group, wrong_heads(group, &scene));
    if (scene.states.n > 1) {
        CHECK_OK(group, wrong_sets(group, &scene));
    }
    CHECK_OK(group, nothing(group, &scene));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- other models ---- */

struct other {
    size_t i;
    struct ddp_spec spec;
    const char *text;
};

static const struct other others[] = {
    {2, {"fc.height", TALLY_F32, 0, 2, {33, 47}}, "'fc.weight' where this model has 'fc.height'"},
    {2, {"fc.weight", TALLY_F32, 0, 2, {47, 33}}, "'fc.weight' with another shape"},
    {2, {"fc.weight", TALLY_F32, 0, 1, {33 * 47}}, "'fc.weight' with another shape"},
    {2, {"fc.weight", TALLY_F32, 0, 2, {33, 48}}, "'fc.weight' with another shape"},
    {2, {"fc.weight", TALLY_F16, 0, 2, {33, 47}}, "'fc.weight' with another dtype"},
    {7, {"frozen", TALLY_F32, TALLY_PARAM_FROZEN, 1, {6}}, "'frozen' with another shape"},
};

static int refused_model(tally_group *group, const struct hook_states *states,
                         const struct other *other, size_t n)
{
    static const size_t columns[] = {1, 33};
    struct ddp_spec specs[STATE_N_PARAMS];
    tally_ddp_config config;
    struct ddp_model model;
    tally_ddp *ddp;

    memcpy(specs, state_specs, sizeof specs);
    specs[other->i] = other->spec;
    tally_ddp_config_init(&config, sizeof config);
    config.hook = "int8";
    CHECK(group, ddp_model_make(&model, specs, n, false) == 0);
    /* The same in all but the strides. */
    if (strcmp(other->text, "'fc.weight' with other strides") == 0) {
        model.params[other->i].strides = columns;
    }
    CHECK_OK(group, tally_ddp_create(group, model.params, n, &config, &ddp));
    CHECK_STATUS(group, hook_states_load(ddp, states), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), other->text);
    CHECK_OK(group, ddp_step(group, ddp, &model, 1));
    CHECK_OK(group, tally_ddp_free(ddp));
    ddp_model_free(&model);
    return 0;
}

static int models_body(tally_group *group, void *user)
{
    const struct other strides = {2, state_specs[2], "'fc.weight' with other strides"};
    const struct other fewer = {2, state_specs[2], "has 8 parameters, this model has 7"};
    struct scene scene;

    (void)user;
    CHECK_OK(group, start(group, &scene));
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        CHECK_OK(group, refused_model(group, &scene.states, &others[k], STATE_N_PARAMS));
    }
    CHECK_OK(group, refused_model(group, &scene.states, &strides, STATE_N_PARAMS));
    CHECK_OK(group, refused_model(group, &scene.states, &fewer, STATE_N_PARAMS - 1));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* Two hooks in one set of blobs: of two runs. */
static int mixed_body(tally_group *group, void *user)
{
    const struct state_setup other_hook = {"bf16(int8)", false, 0};
    struct hook_states strange;
    struct hook_states mixed;
    struct state_run run;
    struct scene scene;
    uint64_t hash;

    (void)user;
    CHECK_OK(group, start(group, &scene));
    CHECK_OK(group, state_run_start(group, &other_hook, &run));
    CHECK_OK(group, state_steps(group, &run, 0, N_BEFORE, &hash));
    CHECK_OK(group, hook_states_take(group, run.ddp, &strange));
    mixed = scene.states;
    mixed.blob[0] = strange.blob[0];
    mixed.bytes[0] = strange.bytes[0];
    CHECK_OK(group, refused(group, &scene, &mixed, TALLY_ARG,
                            "blob 1 is of hook 'int8', blob 0 of hook 'bf16(int8)'"));
    hook_states_free(&strange);
    CHECK_OK(group, state_run_end(group, &run));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- at the wrong time, without room ---- */

static int calls_body(tally_group *group, void *user)
{
    struct scene scene;
    unsigned char *blob;
    size_t bytes = 0;
    size_t room;

    (void)user;
    CHECK_OK(group, start(group, &scene));
    CHECK_STATUS(group, tally_ddp_save(NULL, NULL, &bytes), TALLY_ARG);
    CHECK_STATUS(group, tally_ddp_save(scene.run.ddp, NULL, NULL), TALLY_ARG);
    CHECK_OK(group, tally_ddp_save(scene.run.ddp, NULL, &bytes));
    blob = malloc(bytes + 1);
    CHECK(group, blob);
    memset(blob, 0x5a, bytes + 1);
    for (size_t less = bytes; less > 0; less /= 2) {
        room = bytes - less;
        CHECK_STATUS(group, tally_ddp_save(scene.run.ddp, blob, &room), TALLY_ARG);
        CHECK_TEXT(group, tally_last_error(), "but the state takes");
        CHECK(group, room == bytes - less && blob[0] == 0x5a);
    }
    room = bytes + 1;
    CHECK_OK(group, tally_ddp_save(scene.run.ddp, blob, &room));
    CHECK(group, room == bytes && blob[0] != 0x5a && blob[bytes] == 0x5a);
    free(blob);

    /* Inside a step. */
    ddp_fill_grads(&scene.run.model, scene.run.ddp, N_BEFORE, tally_group_rank(group));
    CHECK_OK(group, tally_ddp_grad_ready(scene.run.ddp, 1));
    CHECK_STATUS(group, hook_states_load(scene.run.ddp, &scene.states), TALLY_STATE);
    CHECK_STATUS(group, tally_ddp_save(scene.run.ddp, NULL, &bytes), TALLY_STATE);
    for (int i = 0; i < STATE_N_PARAMS - 1; i++) {
        CHECK_OK(group, i == 1 ? TALLY_OK : tally_ddp_grad_ready(scene.run.ddp, i));
    }
    CHECK_OK(group, tally_ddp_wait(scene.run.ddp));
    CHECK_OK(group, state_step(group, &scene.twin, N_BEFORE));
    CHECK(group, ddp_hash_grads(&scene.run.model, scene.run.ddp) ==
                     ddp_hash_grads(&scene.twin.model, scene.twin.ddp));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- application hooks ---- */

struct fragile {
    int number;      /* the state */
    int save_status; /* the status that save returns */
    int load_status;
    bool silent; /* without a text */
    size_t more; /* bytes that save takes beyond those it asked for */
};

static int fail(const struct fragile *fragile, int status)
{
    return fragile->silent || status == TALLY_OK
               ? status
               : tally_job_fail(NULL, status, "the hook's own words");
}

static int fragile_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    (void)state;
    return tally_lane_all_reduce(lane, bucket->data, bucket->n, bucket->dtype, TALLY_MEAN);
}

static int fragile_save(void *state, void *blob, size_t *bytes)
{
    const struct fragile *fragile = state;

    if (blob) {
        memcpy(blob, &fragile->number, sizeof fragile->number);
    }
    *bytes = sizeof fragile->number + (blob ? fragile->more : 0);
    return fail(fragile, fragile->save_status);
}

static int fragile_load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    struct fragile *fragile = state;

    (void)n_blobs;
    if (fragile->load_status == TALLY_OK) {
        memcpy(&fragile->number, blobs[0].data, sizeof fragile->number);
    }
    return fail(fragile, fragile->load_status);
}

/* The last rank's hook fails; all are told so, and have the state they had. */
static int refused_by_hook(tally_group *group, tally_ddp *ddp, const struct hook_states *states,
                           struct fragile *fragile, const char *text)
{
    char whole[128];
    int before = fragile->number;

    (void)snprintf(whole, sizeof whole, "rank %zu: %s", states->n - 1, text);
    /* The earlier mistake has no effect. */
    CHECK_STATUS(group, tally_ddp_save(NULL, NULL, NULL), TALLY_ARG);
    CHECK_STATUS(group, hook_states_load(ddp, states), TALLY_NUMERIC);
    CHECK(group, strcmp(tally_last_error(), whole) == 0);
    CHECK(group, fragile->number == before);
    return 0;
}

static int fragile_body(tally_group *group, void *user)
{
    tally_hook_table table = {.size = sizeof table,
                              .name = "fragile",
                              .reduce = fragile_reduce,
                              .save = fragile_save,
                              .load = fragile_load};
    const struct state_setup setup = {"allreduce", false, 0};
    bool odd = tally_group_rank(group) == tally_group_size(group) - 1;
    int bad = odd ? TALLY_NUMERIC : TALLY_OK;
    struct fragile fragile = {.number = 5};
    struct hook_states states;
    struct state_run run;
    tally_hook *hook;
    size_t bytes;

    (void)user;
    CHECK_OK(group, state_run_start(group, &setup, &run));
    CHECK_OK(group, tally_hook_create(&table, &fragile, &hook));
    CHECK_OK(group, tally_ddp_attach_hook(run.ddp, hook));
    tally_hook_free(hook);
    CHECK_OK(group, hook_states_take(group, run.ddp, &states));
    fragile.number = 6 + tally_group_rank(group);

    fragile.load_status = bad;
    CHECK_OK(group, refused_by_hook(group, run.ddp, &states, &fragile, "the hook's own words"));
    fragile.silent = true;
    CHECK_OK(group, refused_by_hook(group, run.ddp, &states, &fragile,
                                    "hook 'fragile': load failed: a value is infinite or not a "
                                    "number"));
    fragile.load_status = TALLY_OK;
    fragile.save_status = bad;
    CHECK_OK(group, refused_by_hook(group, run.ddp, &states, &fragile,
                                    "hook 'fragile': save failed: a value is infinite or not a "
                                    "number"));
    CHECK_STATUS(group, tally_ddp_save(run.ddp, NULL, &bytes), bad);
    fragile.save_status = TALLY_OK;
    fragile.more = 1;
    CHECK_STATUS(group, tally_ddp_save(run.ddp, NULL, &bytes), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "save asked for 4 bytes and took 5");
    fragile.more = 0;
    CHECK_OK(group, hook_states_load(run.ddp, &states));
    CHECK(group, fragile.number == 5);
    /* A success has left the text there was. */
    CHECK_TEXT(group, tally_last_error(), "save asked for 4 bytes and took 5");

    table.load = NULL;
    CHECK_STATUS(group, tally_hook_create(&table, &fragile, &hook), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "'fragile' has save, but no load");
    CHECK_OK(group, ddp_right_step(group, run.ddp, &run.model, 1));
    CHECK_OK(group, state_run_end(group, &run));
    hook_states_free(&states);
    return 0;
}

int main(void)
{
    int n_failures = ddp_run_seven("damage", damage_body, NULL, 1);

    n_failures += ddp_run_seven("whole, but wrong", wrong_body, NULL, 1);
    n_failures += ddp_run("other models", models_body, NULL, 1);
    n_failures += ddp_run_world("two hooks", mixed_body, NULL, 1, 2);
    n_failures += ddp_run("calls", calls_body, NULL, 1);
    n_failures += ddp_run_seven("hooks that fail", fragile_body, NULL, 1);
    return n_failures != 0;
}
