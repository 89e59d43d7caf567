/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An averager that an optimizer calls, overlapped or not: the same as by hand, for 20 steps; saved
 * and loaded with the optimizer, in one blob for all ranks too; a state without it is refused.
 * Steps that clipping refuses, which count. And a sharded optimizer, which goes with no averager.
 */
#include <math.h>
#include <string.h>

#include "support/averager_scene.h"
#include "support/oracle.h"

static int save_optimizer(void *object, void *blob, size_t *bytes)
{
    return tally_optimizer_save(object, blob, bytes);
}

/* ---- called by an optimizer ---- */

static const struct scene_setup plain = {NULL, NULL, false};
static const char optimizer_text[] = "sgd:lr=0.05,momentum=0.9";

static int add_optimizer(tally_group *group, struct scene *scene, bool with_averager, bool overlap)
{
    tally_optimizer_config config;

    tally_optimizer_config_init(&config, sizeof config);
    config.averager = with_averager ? scene->averager : NULL;
    config.overlap = overlap;
    CHECK_OK(group, tally_optimizer_create(scene->ddp, optimizer_text, &config, &scene->optimizer));
    return 0;
}

/* A step with an optimizer, on call or overlapped; by hand the averager follows. */
static int train(tally_group *group, struct scene *scene, unsigned step, bool overlap, bool by_hand)
{
    CHECK_OK(group, ddp_step(group, scene->ddp, &scene->model, step));
    CHECK_OK(group, overlap ? TALLY_OK : tally_optimizer_step(scene->optimizer));
    CHECK_OK(group, by_hand ? tally_averager_step(scene->averager, NULL) : TALLY_OK);
    return 0;
}

/* Loading what was saved after 20 steps brings the optimizer and its averager back; a state without
 * an averager is refused. */
static int reload(tally_group *group, struct scene *scene, bool overlap)
{
    struct scene_blobs blobs;
    struct scene fresh;

    CHECK_OK(group, scene_blobs_take(group, save_optimizer, scene->optimizer, &blobs));
    CHECK_OK(group, scene_start(group, &fresh, &plain));
    CHECK_OK(group, add_optimizer(group, &fresh, true, overlap));
    scene_copy_params(scene, &fresh);
    CHECK_OK(group, tally_optimizer_load(fresh.optimizer, (const void *const *)blobs.blob,
                                         blobs.bytes, blobs.n));
    CHECK(group, tally_averager_steps(fresh.averager) == 20);
    /* The hook's steps are the ddp's own to save. */
    CHECK_OK(group, tally_ddp_set_hook(fresh.ddp, "noop"));
    CHECK_OK(group, tally_ddp_set_hook(scene->ddp, "noop"));
    for (unsigned step = 20; step < 26; step++) {
        CHECK_OK(group, train(group, scene, step, overlap, false));
        CHECK_OK(group, train(group, &fresh, step, overlap, false));
        CHECK(group, scene_hash(scene) == scene_hash(&fresh));
    }
    CHECK_OK(group, tally_optimizer_free(fresh.optimizer));
    CHECK_OK(group, add_optimizer(group, &fresh, false, overlap));
    CHECK_STATUS(group,
                 tally_optimizer_load(fresh.optimizer, (const void *const *)blobs.blob, blobs.bytes,
                                      blobs.n),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "saved with an averager, but this optimizer has none");
    scene_blobs_free(&blobs);
    CHECK_OK(group, scene_blobs_take(group, save_optimizer, fresh.optimizer, &blobs));
    CHECK_STATUS(group,
                 tally_optimizer_load(scene->optimizer, (const void *const *)blobs.blob,
                                      blobs.bytes, blobs.n),
                 TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), "saved without an averager, but this optimizer has one");
    CHECK(group, tally_averager_steps(scene->averager) == 26);
    scene_blobs_free(&blobs);
    CHECK_OK(group, scene_end(group, &fresh));
    return 0;
}

static int wrapper_body(tally_group *group, void *user)
{
    bool overlap = *(const int *)user != 0;
    struct scene wrapped;
    struct scene by_hand;

    CHECK_OK(group, scene_start(group, &wrapped, &plain));
    CHECK_OK(group, scene_start(group, &by_hand, &plain));
    CHECK_OK(group, add_optimizer(group, &wrapped, true, overlap));
    CHECK_OK(group, add_optimizer(group, &by_hand, false, overlap));
    for (unsigned step = 0; step < 20; step++) {
        CHECK_OK(group, train(group, &wrapped, step, overlap, false));
        CHECK_OK(group, train(group, &by_hand, step, overlap, true));
        CHECK(group, scene_hash(&wrapped) == scene_hash(&by_hand));
        CHECK(group,
              tally_averager_steps(wrapped.averager) == tally_averager_steps(by_hand.averager));
        /* Ranks differ, except in the warm-up and after steps 3, 7, 11. */
        if (step < 3 || (step - 3) % 4 == 0) {
            ranks_note(group, 0, scene_hash(&wrapped));
        }
    }
    CHECK(group, tally_averager_steps(wrapped.averager) == 20);
    CHECK_STATUS(group, tally_averager_step(wrapped.averager, NULL), TALLY_STATE);
    CHECK_STATUS(group, tally_averager_free(wrapped.averager), TALLY_STATE);
    CHECK_OK(group, reload(group, &wrapped, overlap));
    CHECK_OK(group, scene_end(group, &wrapped));
    CHECK_OK(group, scene_end(group, &by_hand));
    return 0;
}

/* One blob for all ranks: with what all have, or not at all. */
static int consolidated_body(tally_group *group, void *user)
{
    const struct scene_setup lossy = {"int8", NULL, false};
    const struct scene_setup native = {"allreduce:engine=native", NULL, false};
    const struct scene_setup outer = {NULL, "sgd:lr=0.5,momentum=0.5", false};
    static unsigned char room[1 << 16];
    const void *blob = room;
    size_t bytes = sizeof room;
    struct scene scene;
    tally_future *future;

    (void)user;
    CHECK_OK(group, scene_start(group, &scene, &lossy));
    CHECK_OK(group, add_optimizer(group, &scene, true, false));
    CHECK_STATUS(group, tally_optimizer_consolidate(scene.optimizer, 0, room, &bytes),
                 TALLY_UNSUPPORTED);
    CHECK_TEXT(group, tally_last_error(), "residuals, which differ from rank to rank");
    CHECK_OK(group, scene_end(group, &scene));
    /* Exact with either engine. */
    CHECK_OK(group, scene_start(group, &scene, &native));
    CHECK_OK(group, add_optimizer(group, &scene, true, false));
    CHECK_OK(group, tally_optimizer_consolidate(scene.optimizer, 0, room, &bytes));
    CHECK_OK(group, scene_end(group, &scene));
    bytes = sizeof room;
    CHECK_OK(group, scene_start(group, &scene, &outer));
    CHECK_OK(group, add_optimizer(group, &scene, true, false));
    for (unsigned step = 0; step < 8; step++) {
        CHECK_OK(group, train(group, &scene, step, false, false));
    }
    CHECK_OK(group, tally_optimizer_consolidate(scene.optimizer, 0, room, &bytes));
    CHECK_OK(group, tally_broadcast(group, &bytes, sizeof bytes, 0, &future));
    CHECK_OK(group, ranks_finish(future));
    if (ranks_now()->kind == RANKS_PROCESSES) {
        CHECK_OK(group, tally_broadcast(group, room, bytes, 0, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    CHECK_OK(group, train(group, &scene, 8, false, false));
    CHECK_OK(group, tally_optimizer_load(scene.optimizer, &blob, &bytes, 1));
    CHECK(group, tally_averager_steps(scene.averager) == 8);
    CHECK_OK(group, scene_end(group, &scene));
    return 0;
}

/* ---- steps that clipping refuses ---- */

/* The last rank has no number, in a step that changes nothing on any rank but by averaging. */
static int refused_step(tally_group *group, struct scene *scene, unsigned step, bool overlap)
{
    int last = tally_group_size(group) - 1;
    uint64_t before = scene_hash(scene);
    int rc;

    ddp_fill_grads(&scene->model, scene->ddp, step, tally_group_rank(group));
    if (tally_group_rank(group) == last) {
        ((float *)tally_ddp_grad(scene->ddp, 1))[3] = NAN;
    }
    for (int i = SCENE_N_PARAMS; i-- > 0;) {
        CHECK_OK(group, tally_ddp_grad_ready(scene->ddp, i));
    }
    rc = tally_ddp_wait(scene->ddp);
    if (!overlap) {
        CHECK_OK(group, rc);
        rc = tally_optimizer_step(scene->optimizer);
    }
    CHECK_STATUS(group, rc, TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "the gradient of parameter 'bias'");
    CHECK(group, scene_hash(scene) == before || (step >= 3 && (step - 3) % 4 == 0));
    return 0;
}

/* In the warm-up, between averagings, and when one is due: hook and averager count alike. */
static int refused_body(tally_group *group, void *user)
{
    bool overlap = *(const int *)user != 0;
    struct scene scene;
    tally_optimizer_config config;

    tally_optimizer_config_init(&config, sizeof config);
    CHECK_OK(group, scene_start(group, &scene, &plain));
    config.averager = scene.averager;
    config.overlap = overlap;
    config.max_norm = 1;
    CHECK_OK(group, tally_optimizer_create(scene.ddp, optimizer_text, &config, &scene.optimizer));
    for (unsigned step = 0; step < 12; step++) {
        if (step == 1 || step == 5 || step == 7) {
            CHECK_OK(group, refused_step(group, &scene, step, overlap));
        } else {
            CHECK_OK(group, train(group, &scene, step, overlap, false));
        }
        CHECK(group, tally_averager_steps(scene.averager) == step + 1);
        if (step < 3 || (step - 3) % 4 == 0) {
            ranks_note(group, 0, scene_hash(&scene));
        }
    }
    CHECK_OK(group, scene_end(group, &scene));
    return 0;
}

/* ---- a sharded optimizer has the same parameters everywhere ---- */

static int sharded_body(tally_group *group, void *user)
{
    static const tally_averager_level level = {4, 0};
    tally_averager_config averager_config;
    tally_optimizer_config config;
    struct scene scene;

    (void)user;
    tally_optimizer_config_init(&config, sizeof config);
    config.shard = 1;
    CHECK_OK(group, scene_start(group, &scene, &plain));
    CHECK_STATUS(group,
                 tally_optimizer_create(scene.ddp, optimizer_text, &config, &scene.optimizer),
                 TALLY_UNSUPPORTED);
    CHECK_TEXT(group, tally_last_error(), "an averager");
    CHECK_OK(group, tally_averager_free(scene.averager));
    scene.averager = NULL;
    CHECK_STATUS(group,
                 tally_optimizer_create(scene.ddp, optimizer_text, &config, &scene.optimizer),
                 TALLY_UNSUPPORTED);
    CHECK_TEXT(group, tally_last_error(), "postlocal:start=3");
    CHECK_OK(group, tally_ddp_set_hook(scene.ddp, "allreduce"));
    CHECK_OK(group, tally_optimizer_create(scene.ddp, optimizer_text, &config, &scene.optimizer));
    CHECK_STATUS(group, tally_ddp_set_hook(scene.ddp, "postlocal"), TALLY_UNSUPPORTED);
    tally_averager_config_init(&averager_config, sizeof averager_config);
    averager_config.levels = &level;
    averager_config.n_levels = 1;
    CHECK_STATUS(group, tally_averager_create(scene.ddp, &averager_config, &scene.averager),
                 TALLY_UNSUPPORTED);
    scene.averager = NULL;
    CHECK_OK(group, scene_end(group, &scene));
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (int world = 2; world <= 4; world++) {
        for (int overlap = 0; overlap < 2; overlap++) {
            n_failures += ddp_run_world("wrapper", wrapper_body, &overlap, 1, world);
        }
    }
    for (int overlap = 0; overlap < 2; overlap++) {
        n_failures += ddp_run_world("refused", refused_body, &overlap, 1, 3);
    }
    n_failures += ddp_run_world("consolidated", consolidated_body, NULL, 1, 3);
    n_failures += ddp_run_world("sharded", sharded_body, NULL, 1, 2);
    return n_failures != 0;
}
