/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in one call: saved by W ranks, loaded by V, for every stateful hook, sharded or not,
 * in mixed precision, with an averager. With as many ranks as before, training continues with the
 * same bits; otherwise with what the blobs alone would give. Further: keep, names, asynchronous
 * saves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/ckpt_run.h"

#define MAX_WORLD 7

static const int worlds[] = {1, 2, 3, 4, 7};
#define N_WORLDS (sizeof worlds / sizeof worlds[0])

/* Passed from the run that saved to the run that loads; threads share it. */
struct scene {
    const char *folder;
    struct ckpt_setup setup;
    struct ckpt_setup other; /* of the run that loads */
    bool changed;            /* other is not setup */
    int saved_world;
    uint64_t at_save[MAX_WORLD];  /* hash of values on each rank at the save */
    uint64_t all_save[MAX_WORLD]; /* and of everything */
    uint64_t at_end[MAX_WORLD];   /* of everything four steps later */
    uint64_t values_end[MAX_WORLD];
    void *ddp[MAX_WORLD]; /* blobs at the save */
    size_t ddp_bytes[MAX_WORLD];
    void *optimizer[MAX_WORLD];
    size_t optimizer_bytes[MAX_WORLD];
};

static int keep_blobs(struct scene *scene, struct ckpt_run *run, int rank)
{
    CHECK_OK(run->group, tally_ddp_save(run->ddp, NULL, &scene->ddp_bytes[rank]));
    scene->ddp[rank] = malloc(scene->ddp_bytes[rank]);
    CHECK_OK(run->group, tally_ddp_save(run->ddp, scene->ddp[rank], &scene->ddp_bytes[rank]));
    if (run->optimizer) {
        CHECK_OK(run->group,
                 tally_optimizer_save(run->optimizer, NULL, &scene->optimizer_bytes[rank]));
        scene->optimizer[rank] = malloc(scene->optimizer_bytes[rank]);
        CHECK_OK(run->group, tally_optimizer_save(run->optimizer, scene->optimizer[rank],
                                                  &scene->optimizer_bytes[rank]));
    }
    return 0;
}

static int save_body(tally_group *group, void *user)
{
    struct scene *scene = user;
    struct ckpt_run *run = malloc(sizeof *run);
    int rank = tally_group_rank(group);

    CHECK(group, run);
    CHECK(group, ckpt_start(group, &scene->setup, run) == 0);
    CHECK(group, ckpt_steps(run, 5) == 0);
    CHECK_OK(group, ckpt_save(run, scene->folder));
    scene->at_save[rank] = ckpt_hash_values(run);
    CHECK(group, ckpt_hash(run, &scene->all_save[rank]) == 0);
    CHECK(group, keep_blobs(scene, run, rank) == 0);
    CHECK(group, ckpt_steps(run, 4) == 0);
    CHECK(group, ckpt_hash(run, &scene->at_end[rank]) == 0);
    scene->values_end[rank] = ckpt_hash_values(run);
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

/* Whether all ranks use their state: within hosts(...) only the leaders do, and all get rank 0's.
 */
static bool uses_state(const struct scene *scene, int rank)
{
    return rank == 0 || !scene->setup.hook || !strstr(scene->setup.hook, "hosts:size=2(powersgd");
}

/* The state of another run that got the blobs alone is the same. */
static int check_blobs(const struct scene *scene, struct ckpt_run *run)
{
    tally_group *group = run->group;
    struct ckpt_run *plain = malloc(sizeof *plain);
    size_t n = (size_t)scene->saved_world;
    uint64_t hashes[2];

    CHECK(group, plain);
    CHECK(group, ckpt_start(group, &scene->other, plain) == 0);
    CHECK_OK(group,
             tally_ddp_load(plain->ddp, (const void *const *)scene->ddp, scene->ddp_bytes, n));
    if (plain->optimizer) {
        CHECK_OK(group,
                 tally_optimizer_load(plain->optimizer, (const void *const *)scene->optimizer,
                                      scene->optimizer_bytes, n));
    }
    memcpy(plain->values, run->values, sizeof run->values);
    memcpy(plain->mean, run->mean, sizeof run->mean);
    plain->counter = run->counter;
    plain->position = run->position;
    memcpy(plain->random, run->random, sizeof run->random);
    CHECK_OK(group, tally_ddp_refresh_low(plain->ddp));
    if (!run->setup.averages) {
        CHECK(group, ckpt_hash(run, &hashes[0]) == 0);
        CHECK(group, ckpt_hash(plain, &hashes[1]) == 0);
        CHECK(group, hashes[0] == hashes[1]);
    }
    CHECK(group, ckpt_end(plain) == 0);
    free(plain);
    return 0;
}

static int load_body(tally_group *group, void *user)
{
    const struct scene *scene = user;
    struct ckpt_run *run = malloc(sizeof *run);
    tally_checkpoint_info info = {.size = sizeof info};
    int rank = tally_group_rank(group);
    bool same = tally_group_size(group) == scene->saved_world && !scene->changed;
    int from = tally_group_size(group) == scene->saved_world ? rank : 0;
    uint64_t hash;

    CHECK(group, run);
    CHECK(group, ckpt_start(group, &scene->other, run) == 0);
    CHECK_OK(group, ckpt_load(run, scene->folder, &info));
    CHECK(group, info.step == 5 && info.world == scene->saved_world && info.n_skipped == 0);
    CHECK(group, strcmp(info.name, "save-000001-step-5") == 0);
    CHECK(group, run->position == 5 && run->blobs[0].loaded_bytes == sizeof run->position);
    CHECK(group, ckpt_hash_values(run) == scene->at_save[from]);
    if (same && uses_state(scene, rank)) {
        CHECK(group, ckpt_hash(run, &hash) == 0);
        CHECK(group, hash == scene->all_save[rank]);
    }
    if (!scene->setup.averages) {
        CHECK(group, check_blobs(scene, run) == 0);
    }
    CHECK(group, ckpt_steps(run, 4) == 0);
    CHECK(group, ckpt_hash(run, &hash) == 0);
    CHECK(group, !same || !uses_state(scene, rank) || hash == scene->at_end[rank]);
    CHECK(group, !same || ckpt_hash_values(run) == scene->values_end[rank]);
    CHECK(group, run->averager || tally_ddp_check(run->ddp) == TALLY_OK);
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

static int run_threads(int world, ranks_body *body, void *user)
{
    const struct ranks ranks = {.kind = RANKS_THREADS, .world = world, .lanes = 1};

    return ranks_run(&ranks, body, user);
}

/* Saved by W ranks, loaded by each V. */
static int matrix(const struct ckpt_setup *setup, const struct ckpt_setup *other)
{
    int failures = 0;

    for (size_t w = 0; w < RANKS_REPEATS(N_WORLDS, 3); w++) {
        struct scene scene = {.folder = ckpt_folder_make(),
                              .setup = *setup,
                              .other = other ? *other : *setup,
                              .changed = other != NULL,
                              .saved_world = worlds[w]};
        int before = failures;

        failures += run_threads(worlds[w], save_body, &scene);
        for (size_t v = 0; failures == 0 && v < RANKS_REPEATS(N_WORLDS, 3); v++) {
            failures += run_threads(worlds[v], load_body, &scene);
            if (failures > before) {
                (void)fprintf(stderr, "FAILED: hook %s optimizer %s, saved by %d, loaded by %d\n",
                              setup->hook ? setup->hook : "-",
                              setup->optimizer ? setup->optimizer : "-", worlds[w], worlds[v]);
                before = failures;
            }
        }
        for (int r = 0; r < MAX_WORLD; r++) {
            free(scene.ddp[r]);
            free(scene.optimizer[r]);
        }
        ckpt_folder_remove(scene.folder);
    }
    return failures;
}

static int test_matrix(void)
{
    static const struct ckpt_setup setups[] = {
        {.hook = NULL, .optimizer = "adamw:lr=0.01"},
        {.hook = "int8", .optimizer = "adamw:lr=0.01", .shard = true},
        {.hook = "powersgd:rank=2,start=2,min_rate=1", .optimizer = "sgd:lr=0.05,momentum=0.9"},
        {.hook = "batched_powersgd:rank=1,start=2", .optimizer = NULL},
        {.hook = "quantize_per_tensor", .optimizer = "adamw:lr=0.01"},
        {.hook = "hosts(int8)", .optimizer = "adamw:lr=0.01"},
        {.hook = "bf16(powersgd:rank=1,start=2)", .optimizer = "adamw:lr=0.01", .mixed = true},
        {.hook = "int8", .optimizer = "adamw:lr=0.01", .mixed = true, .loss_scale = 64},
        {.hook = "quantize_per_channel",
         .optimizer = "adamw:lr=0.01",
         .shard = true,
         .mixed = true,
         .loss_scale = 64},
        {.hook = "fp16(batched_powersgd:rank=2,start=2)",
         .optimizer = "rmsprop:lr=0.01,momentum=0.9",
         .shard = true,
         .mixed = true},
        {.hook = "hosts:size=2(powersgd:rank=1,start=2,min_rate=1)",
         .optimizer = "adamw:lr=0.01",
         .shard = true},
        {.hook = "postlocal:start=1", .averages = true, .averager = "int8"},
        {.hook = "postlocal:start=1", .optimizer = "adamw:lr=0.01", .averages = true},
    };
    int failures = 0;

    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        failures += matrix(&setups[i], NULL);
    }
    return failures;
}

/* Another hook, another cap, sharded and not. */
static int test_changes(void)
{
    static const struct ckpt_setup from = {.hook = "int8", .optimizer = "adamw:lr=0.01"};
    static const struct ckpt_setup to[] = {
        {.hook = "powersgd:rank=2,start=2", .optimizer = "adamw:lr=0.01"},
        {.hook = "allreduce", .optimizer = "adamw:lr=0.02", .shard = true},
        {.hook = "int8", .optimizer = "adamw:lr=0.01", .shard = true, .cap = 300},
        {.hook = "int8", .optimizer = "adamw:lr=0.01", .cap = 128},
    };
    int failures = 0;

    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        failures += matrix(&from, &to[i]);
        failures += i == 2 ? matrix(&to[i], &from) : 0;
    }
    return failures;
}

/* ---- several checkpoints ---- */

struct several {
    const char *folder;
    bool async;
};

static int several_body(tally_group *group, void *user)
{
    const struct several *several = user;
    struct ckpt_run *run = malloc(sizeof *run);
    tally_checkpoint_info info = {.size = sizeof info};
    tally_checkpoint_config config;
    char directory[100];
    uint64_t hashes[7];
    uint64_t hash;

    (void)snprintf(directory, sizeof directory, "%s/run", several->folder);
    CHECK(group, run);
    CHECK(group,
          ckpt_start(group, &(struct ckpt_setup){.hook = "int8", .optimizer = "adamw"}, run) == 0);
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, info.world == 0 && info.name[0] == '\0' && run->position == 0);
    for (int k = 1; k <= 6; k++) {
        CHECK(group, ckpt_steps(run, 1) == 0);
        config = ckpt_config(run);
        config.keep = 3;
        config.async = several->async;
        CHECK(group, ckpt_hash(run, &hashes[k]) == 0);
        CHECK_OK(group, tally_checkpoint_save(run->ddp, directory, &config));
    }
    CHECK(group, ckpt_steps(run, 1) == 0);
    CHECK_OK(group, tally_checkpoint_wait(run->ddp));
    CHECK(group, ckpt_count(directory, "save-") == 3 && ckpt_count(directory, ".") == 0);

    /* The newest, and an older one by its name; back to it, and the next save is the newest. */
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, strcmp(info.name, "save-000006-step-6") == 0);
    CHECK(group, ckpt_hash(run, &hash) == 0);
    CHECK(group, hash == hashes[6]);
    config = ckpt_config(run);
    config.name = "save-000004-step-4";
    CHECK_OK(group, tally_checkpoint_load(run->ddp, directory, &config, &info));
    CHECK(group, ckpt_hash(run, &hash) == 0);
    CHECK(group, hash == hashes[4]);
    CHECK_OK(group, ckpt_save(run, directory));
    CHECK_OK(group, ckpt_load(run, directory, &info));
    CHECK(group, strcmp(info.name, "save-000007-step-4") == 0 && info.step == 4);
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

static int test_several(void)
{
    int failures = 0;

    for (int async = 0; async < 2; async++) {
        for (int kind = 0; kind < (ranks_have_processes() ? 2 : 1); kind++) {
            for (int lanes = 0; lanes < 3; lanes += 2) {
                const struct several several = {ckpt_folder_make(), async != 0};
                const struct ranks ranks = {
                    .kind = kind ? RANKS_PROCESSES : RANKS_THREADS, .world = 3, .lanes = lanes};

                failures += ranks_run(&ranks, several_body, (void *)&several);
                ckpt_folder_remove(several.folder);
            }
        }
    }
    return failures;
}

/* ---- what is stored how often ---- */

struct parts {
    int n_params;
    int n_own_params;
    int n_optimizers; /* blobs of a rank */
    int n_slices;     /* of one blob for all ranks */
    int n_buffers;
    int n_blobs;
};

static void count_part(void *user, const tally_checkpoint_part *part)
{
    struct parts *parts = user;

    parts->n_params += strcmp(part->kind, "parameter") == 0 && !part->is_own;
    parts->n_own_params += strcmp(part->kind, "parameter") == 0 && part->is_own;
    parts->n_optimizers += strcmp(part->kind, "optimizer") == 0 && part->is_own;
    parts->n_slices += strcmp(part->kind, "optimizer") == 0 && !part->is_own;
    parts->n_buffers += strcmp(part->kind, "buffer") == 0;
    parts->n_blobs += strcmp(part->kind, "blob") == 0;
}

/* Equal values once, others once for each rank. */
static int test_parts(void)
{
    int failures = 0;

    for (int shard = 0; shard < 2; shard++) {
        struct scene scene = {.folder = ckpt_folder_make(),
                              .setup = {.optimizer = "adamw", .shard = shard != 0},
                              .saved_world = 3};
        tally_checkpoint_info info = {.size = sizeof info};
        struct parts parts = {0};

        failures += run_threads(3, save_body, &scene);
        failures +=
            tally_checkpoint_inspect(scene.folder, NULL, &info, count_part, &parts) != TALLY_OK;
        failures += parts.n_params != CKPT_N_PARAMS - 1 || parts.n_own_params != 3 ||
                    parts.n_optimizers != (shard ? 3 : 0) || parts.n_slices != (shard ? 0 : 3) ||
                    parts.n_buffers != CKPT_N_BUFFERS || parts.n_blobs != 2 * 3 ||
                    info.world != 3 || info.step != 5;
        for (int r = 0; r < MAX_WORLD; r++) {
            free(scene.ddp[r]);
            free(scene.optimizer[r]);
        }
        ckpt_folder_remove(scene.folder);
    }
    if (failures > 0) {
        (void)fprintf(stderr, "FAILED: parts are not stored as often as expected\n");
    }
    return failures;
}

/* ---- parameters that tally provides; only parameters ---- */

static int plain_body(tally_group *group, void *user)
{
    static const size_t shape[] = {300};
    const tally_param params[2] = {
        {.size = sizeof *params, .name = "a", .n_dims = 1, .shape = shape, .dtype = TALLY_F32},
        {.size = sizeof *params, .name = "b", .n_dims = 1, .shape = shape, .dtype = TALLY_F32}};
    tally_checkpoint_config config;
    tally_checkpoint_info info = {.size = sizeof info};
    tally_ddp *ddp;

    CHECK_OK(group, tally_ddp_create(group, params, 2, NULL, &ddp));
    for (int i = 0; i < 300; i++) {
        ((float *)tally_ddp_data(ddp, 1))[i] = (float)i;
    }
    CHECK_OK(group, tally_checkpoint_save(ddp, user, NULL));
    memset(tally_ddp_data(ddp, 1), 0, 1200);
    tally_checkpoint_config_init(&config, sizeof config);
    config.params_only = 1;
    CHECK_OK(group, tally_checkpoint_load(ddp, user, &config, &info));
    for (int i = 0; i < 300; i++) {
        CHECK(group, ((const float *)tally_ddp_data(ddp, 1))[i] == (float)i);
    }
    CHECK(group, info.n_params == 2);
    CHECK_OK(group, tally_ddp_free(ddp));
    return 0;
}

/* Neither call is for the middle of a step. */
static int step_body(tally_group *group, void *user)
{
    struct ckpt_run *run = malloc(sizeof *run);

    CHECK(group, run && ckpt_start(group, &(struct ckpt_setup){.hook = NULL}, run) == 0);
    CHECK_OK(group, tally_ddp_grad_ready(run->ddp, 0));
    CHECK_STATUS(group, ckpt_save(run, user), TALLY_STATE);
    CHECK_STATUS(group, ckpt_load(run, user, NULL), TALLY_STATE);
    for (int i = 1; i < 5; i++) {
        CHECK_OK(group, tally_ddp_grad_ready(run->ddp, i));
    }
    CHECK_OK(group, tally_ddp_wait(run->ddp));
    CHECK(group, ckpt_end(run) == 0);
    free(run);
    return 0;
}

static int test_plain(void)
{
    int failures = 0;

    for (int world = 1; world < 4; world++) {
        const char *folder = ckpt_folder_make();

        failures += run_threads(world, plain_body, (void *)folder);
        failures += run_threads(world, step_body, (void *)folder);
        ckpt_folder_remove(folder);
    }
    return failures;
}

int main(void)
{
    int failures = test_plain();

    failures += test_several();
    failures += test_parts();
    failures += test_matrix();
    failures += test_changes();
    return failures != 0;
}
