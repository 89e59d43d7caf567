/* SPDX-License-Identifier: Apache-2.0 */
/* The scene of averager_scene.h. Keeps no state: every rank has its own scene. */
#include "support/averager_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ddp_spec specs[SCENE_N_PARAMS] = {{"w1", TALLY_F32, 0, 2, {13, 50}},
                                                      {"bias", TALLY_F32, 0, 1, {31}},
                                                      {"w2", TALLY_F32, 0, 2, {7, 9}}};

int scene_start(tally_group *group, struct scene *scene, const struct scene_setup *setup)
{
    static const tally_averager_level levels[] = {{2, 2}, {4, 0}};
    tally_averager_config config;

    tally_averager_config_init(&config, sizeof config);
    config.levels = setup->levels ? levels : &levels[1];
    config.n_levels = setup->levels ? 2 : 1;
    config.warmup = 3;
    config.hook = setup->hook;
    config.outer = setup->outer;
    *scene = (struct scene){0};
    CHECK(group, ddp_model_make(&scene->model, specs, SCENE_N_PARAMS, false) == 0);
    for (size_t i = 0; i < SCENE_N_PARAMS; i++) {
        ddp_fill_data(&scene->model, i, 1, 0);
    }
    CHECK_OK(group,
             tally_ddp_create(group, scene->model.params, SCENE_N_PARAMS, NULL, &scene->ddp));
    CHECK_OK(group, tally_ddp_set_hook(scene->ddp, "postlocal:start=3"));
    CHECK_OK(group, tally_averager_create(scene->ddp, &config, &scene->averager));
    return 0;
}

int scene_end(tally_group *group, struct scene *scene)
{
    CHECK_OK(group, tally_optimizer_free(scene->optimizer));
    CHECK_OK(group, tally_averager_free(scene->averager));
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    ddp_model_free(&scene->model);
    return 0;
}

uint64_t scene_hash(const struct scene *scene)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < SCENE_N_PARAMS; i++) {
        hash = ranks_hash(hash, scene->model.params[i].data, scene->model.count[i] * sizeof(float));
    }
    return hash;
}

void scene_copy_params(const struct scene *from, const struct scene *to)
{
    for (size_t i = 0; i < SCENE_N_PARAMS; i++) {
        memcpy(to->model.params[i].data, from->model.params[i].data,
               from->model.count[i] * sizeof(float));
    }
}

int scene_blobs_take(tally_group *group, scene_save *save, void *object, struct scene_blobs *blobs)
{
    size_t rank = (size_t)tally_group_rank(group);
    size_t room;
    tally_future *future;

    *blobs = (struct scene_blobs){.n = (size_t)tally_group_size(group)};
    CHECK_OK(group, save(object, NULL, &blobs->bytes[rank]));
    for (size_t r = 0; r < blobs->n; r++) {
        CHECK_OK(group,
                 tally_broadcast(group, &blobs->bytes[r], sizeof blobs->bytes[r], (int)r, &future));
        CHECK_OK(group, ranks_finish(future));
        blobs->blob[r] = malloc(blobs->bytes[r]);
        CHECK(group, blobs->blob[r]);
    }
    room = blobs->bytes[rank] - 1;
    CHECK_STATUS(group, save(object, blobs->blob[rank], &room), TALLY_ARG);
    CHECK_OK(group, save(object, blobs->blob[rank], &blobs->bytes[rank]));
    for (size_t r = 0; r < blobs->n; r++) {
        CHECK_OK(group, tally_broadcast(group, blobs->blob[r], blobs->bytes[r], (int)r, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    return 0;
}

void scene_blobs_free(struct scene_blobs *blobs)
{
    for (size_t r = 0; r < blobs->n; r++) {
        free(blobs->blob[r]);
    }
}
