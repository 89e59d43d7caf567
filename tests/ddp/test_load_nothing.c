/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading happens on all ranks, or nothing has changed on any: for a ddp, an averager, and an
 * optimizer that calls the averager. Each allocation of a load of other blobs fails once on the
 * last rank. Then all ranks get NOMEM and would save the same bytes as before the load.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/averager_scene.h"
#include "support/counting_memory.h"
#include "support/oracle.h"

#define MANY 10000

static int start(tally_group *group, struct scene *scene)
{
    static const struct ddp_spec specs[] = {{"w1", TALLY_F32, 0, 2, {13, 50}},
                                            {"bias", TALLY_F32, 0, 1, {31}},
                                            {"w2", TALLY_F32, 0, 2, {17, 19}}};
    static const tally_averager_level level = {2, 0};
    tally_averager_config averager;
    tally_optimizer_config optimizer;

    tally_averager_config_init(&averager, sizeof averager);
    averager.levels = &level;
    averager.n_levels = 1;
    averager.hook = "powersgd:rank=2,start=1";
    averager.outer = "sgd:lr=0.7,momentum=0.9,nesterov=1";
    *scene = (struct scene){0};
    CHECK(group, ddp_model_make(&scene->model, specs, 3, false) == 0);
    CHECK_OK(group, tally_ddp_create(group, scene->model.params, 3, NULL, &scene->ddp));
    CHECK_OK(group, tally_ddp_set_hook(scene->ddp, "powersgd:rank=1,start=1"));
    CHECK_OK(group, tally_averager_create(scene->ddp, &averager, &scene->averager));
    tally_optimizer_config_init(&optimizer, sizeof optimizer);
    optimizer.averager = scene->averager;
    optimizer.overlap = 1;
    CHECK_OK(group,
             tally_optimizer_create(scene->ddp, "adam:lr=0.01", &optimizer, &scene->optimizer));
    return 0;
}

/* Each step changes the state of all three objects. */
static int steps(tally_group *group, struct scene *scene, unsigned first, unsigned n)
{
    for (unsigned s = first; s < first + n; s++) {
        CHECK_OK(group, ddp_step(group, scene->ddp, &scene->model, s));
    }
    return 0;
}

/* ---- the objects ---- */

static int save_ddp(void *object, void *blob, size_t *bytes)
{
    return tally_ddp_save(object, blob, bytes);
}

static int save_averager(void *object, void *blob, size_t *bytes)
{
    return tally_averager_save(object, blob, bytes);
}

static int save_optimizer(void *object, void *blob, size_t *bytes)
{
    return tally_optimizer_save(object, blob, bytes);
}

static int load_ddp(void *object, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_ddp_load(object, blobs, bytes, n);
}

static int load_averager(void *object, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_averager_load(object, blobs, bytes, n);
}

static int load_optimizer(void *object, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_optimizer_load(object, blobs, bytes, n);
}

struct kind {
    const char *name;
    scene_save *save;
    int (*load)(void *object, const void *const *blobs, const size_t *bytes, size_t n);
};

static const struct kind kinds[] = {{"ddp", save_ddp, load_ddp},
                                    {"averager", save_averager, load_averager},
                                    {"optimizer", save_optimizer, load_optimizer}};

static void *object_of(const struct scene *scene, size_t k)
{
    void *const objects[] = {scene->ddp, scene->averager, scene->optimizer};

    return objects[k];
}

/* Whether this rank saves the bytes that it saved in blobs. */
static bool has_state(const struct kind *kind, void *object, const struct scene_blobs *blobs,
                      size_t rank)
{
    size_t bytes = blobs->bytes[rank];
    void *now = malloc(bytes);
    bool same = now && kind->save(object, now, &bytes) == TALLY_OK && bytes == blobs->bytes[rank] &&
                memcmp(now, blobs->blob[rank], bytes) == 0;

    free(now);
    return same;
}

/* ---- the test ---- */

static int exhaust(tally_group *group, const struct kind *kind, void *object,
                   const struct scene_blobs *early, const struct scene_blobs *late)
{
    size_t rank = (size_t)tally_group_rank(group);
    size_t n = 0;
    int rc = TALLY_NOMEM;

    while (rc == TALLY_NOMEM && n < MANY) {
        n++;
        counting_memory_fail_nth(rank == early->n - 1 ? n : 0);
        rc = kind->load(object, (const void *const *)early->blob, early->bytes, early->n);
        counting_memory_fail_nth(0);
        if (rc == TALLY_NOMEM) {
            CHECK_TEXT(group, tally_last_error(), "cannot allocate");
            CHECK(group, has_state(kind, object, late, rank));
        }
    }
    CHECK_OK(group, rc);
    CHECK(group, n > 10 && n < MANY);
    CHECK(group, has_state(kind, object, early, rank));
    return 0;
}

static int body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct scene_blobs early;
        struct scene_blobs late;
        struct scene scene;
        void *object;

        CHECK_OK(group, start(group, &scene));
        object = object_of(&scene, k);
        CHECK_OK(group, steps(group, &scene, 0, 4));
        CHECK_OK(group, scene_blobs_take(group, kinds[k].save, object, &early));
        CHECK_OK(group, steps(group, &scene, 4, 3));
        CHECK_OK(group, scene_blobs_take(group, kinds[k].save, object, &late));
        CHECK(group, !has_state(&kinds[k], object, &early, (size_t)tally_group_rank(group)));
        if (exhaust(group, &kinds[k], object, &early, &late) != 0) {
            (void)fprintf(stderr, "with a load of the %s\n", kinds[k].name);
            return RANKS_FAILED;
        }
        scene_blobs_free(&early);
        scene_blobs_free(&late);
        CHECK_OK(group, scene_end(group, &scene));
    }
    return 0;
}

int main(void)
{
    /* As processes: a failure meant for one rank must not reach another. */
    const struct ranks three = {.kind = RANKS_PROCESSES, .world = 3, .lanes = 1};

    oracle_start();
    return ranks_run(&three, body, NULL) != 0;
}
