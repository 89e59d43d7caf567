/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an averager: after saving and loading it continues to the bit, with anchors, an
 * outer optimizer and residuals of a hook; also with another number of ranks; and errors.
 */
#include <string.h>

#include "support/averager_scene.h"
#include "support/oracle.h"

/* Steps that change parameters on each rank separately; then a hash of the parameters. */
static int change(tally_group *group, struct scene *scene, unsigned first, unsigned n,
                  uint64_t *hash)
{
    for (unsigned step = first; step < first + n; step++) {
        int rank = step < 3 ? 0 : tally_group_rank(group);

        for (size_t i = 0; i < SCENE_N_PARAMS; i++) {
            float *data = scene->model.params[i].data;

            for (size_t e = 0; e < scene->model.count[i]; e++) {
                data[e] += 0.01f * (float)ddp_value(TALLY_F32, step + 50, rank, i, e);
            }
        }
        CHECK_OK(group, tally_averager_step(scene->averager, NULL));
        *hash = ranks_hash(*hash, &(uint64_t){scene_hash(scene)}, sizeof(uint64_t));
    }
    return 0;
}

static int save_averager(void *object, void *blob, size_t *bytes)
{
    return tally_averager_save(object, blob, bytes);
}

static int load_blobs(tally_averager *averager, const struct scene_blobs *blobs)
{
    return tally_averager_load(averager, (const void *const *)blobs->blob, blobs->bytes, blobs->n);
}

/* ---- to the bit ---- */

static const struct scene_setup setups[] = {
    {NULL, NULL, false},
    {"int8:exempt=none,block=64", NULL, false},
    {"int8:exempt=none,block=64", NULL, true},
    {"powersgd:rank=2,start=1", NULL, true},
    {NULL, "sgd:lr=0.7,momentum=0.9,nesterov=1", true},
    {"bf16(int8:block=64)", "adam:lr=0.01", true},
};

/* Saved after any number of steps, in the warm-up and between averages. */
static int resume(tally_group *group, const struct scene_setup *setup, unsigned n_before)
{
    uint64_t whole = 0;
    uint64_t again = 0;
    struct scene_blobs blobs;
    struct scene first;
    struct scene second;

    CHECK_OK(group, scene_start(group, &first, setup));
    CHECK_OK(group, change(group, &first, 0, n_before, &whole));
    CHECK_OK(group, scene_blobs_take(group, save_averager, first.averager, &blobs));
    CHECK_OK(group, scene_start(group, &second, setup));
    scene_copy_params(&first, &second);
    CHECK_OK(group, load_blobs(second.averager, &blobs));
    CHECK(group, tally_averager_steps(second.averager) == n_before);
    whole = 0;
    CHECK_OK(group, change(group, &first, n_before, 9, &whole));
    CHECK_OK(group, change(group, &second, n_before, 9, &again));
    CHECK(group, whole == again);
    /* Once more, into an averager that has gone on. */
    CHECK_OK(group, load_blobs(second.averager, &blobs));
    CHECK(group, tally_averager_steps(second.averager) == n_before);
    scene_blobs_free(&blobs);
    CHECK_OK(group, scene_end(group, &first));
    CHECK_OK(group, scene_end(group, &second));
    return 0;
}

static int resume_body(tally_group *group, void *user)
{
    (void)user;
    for (size_t k = 0; k < sizeof setups / sizeof setups[0]; k++) {
        if (setups[k].levels && tally_group_size(group) % 2 != 0) {
            continue;
        }
        CHECK_OK(group, resume(group, &setups[k], 2));
        CHECK_OK(group, resume(group, &setups[k], 10));
    }
    return 0;
}

/* Two ranks take up what four have saved, right behind an averaging: what all had is the same, and
 * so is the anchor. */
static int fewer_body(tally_group *group, void *user)
{
    const struct scene_setup setup = {"int8:exempt=none", "sgd:lr=0.7,momentum=0.9,nesterov=1",
                                      false};
    int rank = tally_group_rank(group);
    uint64_t hash = 0;
    struct scene_blobs blobs;
    struct scene four;
    struct scene two;
    tally_group *pair;

    (void)user;
    CHECK_OK(group, scene_start(group, &four, &setup));
    CHECK_OK(group, change(group, &four, 0, 12, &hash));
    CHECK_OK(group, scene_blobs_take(group, save_averager, four.averager, &blobs));
    CHECK_OK(group, tally_group_split(group, rank < 2 ? 0 : -1, rank, &pair));
    if (pair) {
        CHECK_OK(group, scene_start(pair, &two, &setup));
        scene_copy_params(&four, &two);
        CHECK_OK(group, load_blobs(two.averager, &blobs));
        hash = 0;
        CHECK_OK(group, change(pair, &two, 12, 4, &hash));
        CHECK(group, tally_averager_steps(two.averager) == 16);
        CHECK_OK(group, scene_end(pair, &two));
    }
    CHECK_OK(group, tally_group_close(pair));
    scene_blobs_free(&blobs);
    CHECK_OK(group, scene_end(group, &four));
    return 0;
}

/* ---- what is refused, and changes nothing ---- */

static int refuse(tally_group *group, struct scene *scene, const struct scene_blobs *blobs,
                  const char *words)
{
    unsigned long long steps = tally_averager_steps(scene->averager);

    CHECK_STATUS(group, load_blobs(scene->averager, blobs), TALLY_ARG);
    CHECK_TEXT(group, tally_last_error(), words);
    CHECK(group, tally_averager_steps(scene->averager) == steps);
    return 0;
}

static int refused_body(tally_group *group, void *user)
{
    const struct scene_setup setup = {"int8", "sgd:lr=0.5,momentum=0.5", false};
    const struct scene_setup other_hook = {"bf16", "sgd:lr=0.5,momentum=0.5", false};
    const struct scene_setup other_outer = {"int8", "sgd:lr=0.5,momentum=0.25", false};
    uint64_t hash = 0;
    struct scene_blobs blobs;
    struct scene scene;
    struct scene other;
    unsigned char *last;

    (void)user;
    CHECK_OK(group, scene_start(group, &scene, &setup));
    CHECK_OK(group, change(group, &scene, 0, 9, &hash));
    CHECK_OK(group, scene_blobs_take(group, save_averager, scene.averager, &blobs));
    last = (unsigned char *)blobs.blob[blobs.n - 1] + blobs.bytes[blobs.n - 1] - 9;
    CHECK_OK(group, change(group, &scene, 9, 1, &hash));
    *last ^= 4;
    CHECK_OK(group, refuse(group, &scene, &blobs, "is damaged"));
    *last ^= 4;
    blobs.n--;
    CHECK_OK(group, refuse(group, &scene, &blobs, "pass the blobs of all its ranks"));
    blobs.n++;
    blobs.bytes[0]--;
    CHECK_OK(group, refuse(group, &scene, &blobs, "but was saved with"));
    blobs.bytes[0]++;
    CHECK_STATUS(group, tally_averager_load(scene.averager, NULL, NULL, 0), TALLY_ARG);
    CHECK_STATUS(group, tally_averager_load(NULL, NULL, NULL, 0), TALLY_ARG);
    CHECK_STATUS(group, tally_averager_save(scene.averager, NULL, NULL), TALLY_ARG);
    CHECK_OK(group, scene_start(group, &other, &other_hook));
    CHECK_OK(group, refuse(group, &other, &blobs, "with hook 'int8', not 'bf16'"));
    CHECK_OK(group, scene_end(group, &other));
    CHECK_OK(group, scene_start(group, &other, &other_outer));
    CHECK_OK(group, refuse(group, &other, &blobs, "momentum=0.5', not '"));
    CHECK_OK(group, scene_end(group, &other));
    CHECK_OK(group, load_blobs(scene.averager, &blobs));
    CHECK(group, tally_averager_steps(scene.averager) == 9);
    scene_blobs_free(&blobs);
    CHECK_OK(group, scene_end(group, &scene));
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    n_failures += ddp_run_world("fewer", fewer_body, NULL, 1, 4);
    n_failures += ddp_run_world("resume", resume_body, NULL, 1, 4);
    for (int world = 2; world <= 3; world++) {
        n_failures += ddp_run_world("resume", resume_body, NULL, 1, world);
        n_failures += ddp_run_world("refused", refused_body, NULL, 1, world);
    }
    return n_failures != 0;
}
