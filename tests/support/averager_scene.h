/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by the tests of averagers that save and load: a ddp whose ranks train apart after
 * three steps, with an averager and maybe an optimizer; and the blobs of all ranks.
 */
#ifndef TALLY_TESTS_AVERAGER_SCENE_H
#define TALLY_TESTS_AVERAGER_SCENE_H

#include "support/ddp_model.h"

#define SCENE_MAX_WORLD 4
#define SCENE_N_PARAMS 3

struct scene_setup {
    const char *hook;
    const char *outer;
    bool levels; /* pairs every second step, and all every fourth; else the latter alone */
};

struct scene {
    struct ddp_model model;
    tally_ddp *ddp;
    tally_averager *averager;
    tally_optimizer *optimizer;
};

int scene_start(tally_group *group, struct scene *scene, const struct scene_setup *setup);
int scene_end(tally_group *group, struct scene *scene);
uint64_t scene_hash(const struct scene *scene);
void scene_copy_params(const struct scene *from, const struct scene *to);

struct scene_blobs {
    size_t n;
    void *blob[SCENE_MAX_WORLD];
    size_t bytes[SCENE_MAX_WORLD];
};

/* tally_averager_save or tally_optimizer_save, of an object of theirs. */
typedef int scene_save(void *object, void *blob, size_t *bytes);

/* Every rank saves, and gets all ranks' blobs. Collective. */
int scene_blobs_take(tally_group *group, scene_save *save, void *object, struct scene_blobs *blobs);
void scene_blobs_free(struct scene_blobs *blobs);

#endif
