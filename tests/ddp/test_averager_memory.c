/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of averagers: after the first averages none is allocated where all are
 * among the same ranks (else what the owner of a shard keeps moves); and every allocation that
 * making one, its first steps, saving and loading it make may fail on one rank: all ranks hear of
 * it, nothing leaks, nothing has changed, and the next try works.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/averager_scene.h"
#include "support/counting_ranks.h"
#include "support/oracle.h"

#define MANY 10000

static const tally_averager_level levels[] = {{1, 2}, {2, 0}};

static int make(tally_group *group, struct scene *scene)
{
    const size_t shape[] = {30, 40};
    const tally_param param = {.size = sizeof param,
                               .name = "p",
                               .n_dims = 2,
                               .shape = shape,
                               .dtype = TALLY_F32,
                               .data = calloc(1200, sizeof(float))};

    *scene = (struct scene){0};
    scene->model.params[0] = param;
    CHECK(group, param.data);
    CHECK_OK(group, tally_ddp_create(group, &param, 1, NULL, &scene->ddp));
    return 0;
}

static int end(tally_group *group, struct scene *scene)
{
    CHECK_OK(group, tally_averager_free(scene->averager));
    CHECK_OK(group, tally_ddp_free(scene->ddp));
    free(scene->model.params[0].data);
    return 0;
}

/* With both levels, or that of all ranks alone. */
static int create(struct scene *scene, bool both)
{
    tally_averager_config config;

    tally_averager_config_init(&config, sizeof config);
    config.levels = both ? levels : &levels[1];
    config.n_levels = both ? 2 : 1;
    config.hook = "int8";
    config.outer = "sgd:lr=0.7,momentum=0.9,nesterov=1";
    return tally_averager_create(scene->ddp, &config, &scene->averager);
}

static int step(tally_group *group, const struct scene *scene, unsigned seed)
{
    float *data = scene->model.params[0].data;

    for (size_t e = 0; e < 1200; e++) {
        data[e] += 0.1f * (float)ddp_value(TALLY_F32, seed, tally_group_rank(group), 0, e);
    }
    return tally_averager_step(scene->averager, NULL);
}

/* ---- none per step ---- */

static int count_body(tally_group *group, void *user)
{
    struct scene scene;
    size_t before;

    (void)user;
    CHECK_OK(group, make(group, &scene));
    CHECK_OK(group, create(&scene, false));
    for (unsigned s = 0; s < 5; s++) {
        CHECK_OK(group, step(group, &scene, s));
    }
    CHECK_OK(group, counting_ranks_begin(group, &before));
    for (unsigned s = 5; s < 11; s++) {
        CHECK_OK(group, step(group, &scene, s));
    }
    CHECK_OK(group, counting_ranks_none(group, before));
    CHECK_OK(group, end(group, &scene));
    return 0;
}

/* ---- the N-th fails on one rank ---- */

/* All ranks' blobs are needed: here every rank has the same room. */
static int save_and_load(tally_group *group, struct scene *scene)
{
    static unsigned char room[2][1 << 16];
    size_t bytes[2] = {sizeof room[0], sizeof room[1]};
    const void *const blobs[] = {room[0], room[1]};
    int rank = tally_group_rank(group);
    int rc = tally_averager_save(scene->averager, room[rank], &bytes[rank]);

    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_OK(group, tally_averager_save(scene->averager, room[rank], &bytes[rank]));
    }
    for (int r = 0; r < 2; r++) {
        tally_future *future;

        CHECK_OK(group, tally_broadcast(group, &bytes[r], sizeof bytes[r], r, &future));
        CHECK_OK(group, ranks_finish(future));
        CHECK_OK(group, tally_broadcast(group, room[r], bytes[r], r, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    rc = tally_averager_load(scene->averager, blobs, bytes, 2);
    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_OK(group, tally_averager_load(scene->averager, blobs, bytes, 2));
    }
    ranks_note(group, 0, (uint64_t)rc);
    return 0;
}

/* The n-th allocation of the last rank fails. *met says, on all ranks, whether there was one. */
static int with_failure(tally_group *group, size_t n, bool *met)
{
    bool fails = tally_group_rank(group) == tally_group_size(group) - 1;
    tally_future *future;
    struct scene scene;
    size_t before;
    int rc;

    CHECK_OK(group, make(group, &scene));
    before = counting_memory_calls();
    counting_memory_fail_nth(fails ? n : 0);
    rc = create(&scene, true);
    if (rc != TALLY_OK) {
        CHECK_STATUS(group, rc, TALLY_NOMEM);
        CHECK_TEXT(group, tally_last_error(), "cannot allocate");
        CHECK_OK(group, create(&scene, true));
    }
    ranks_note(group, 0, (uint64_t)rc);
    for (unsigned s = 0; s < 4; s++) {
        rc = step(group, &scene, s);
        if (rc != TALLY_OK) {
            CHECK_STATUS(group, rc, TALLY_NOMEM);
            CHECK(group, tally_averager_steps(scene.averager) == s);
            CHECK_OK(group, tally_averager_step(scene.averager, NULL));
        }
        ranks_note(group, 0, (uint64_t)rc);
    }
    CHECK_OK(group, save_and_load(group, &scene));
    counting_memory_fail_nth(0);
    CHECK_OK(group, step(group, &scene, 4));
    ranks_note(group, 0, ranks_hash(0, scene.model.params[0].data, 1200 * sizeof(float)));
    if (fails) {
        atomic_store(&ranks_words()[1], counting_memory_calls() - before >= n);
    }
    CHECK_OK(group, end(group, &scene));
    /* Freeing does not wait for other ranks. */
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    *met = atomic_load(&ranks_words()[1]) != 0;
    return 0;
}

static int fail_body(tally_group *group, void *user)
{
    bool met = true;
    size_t n = 0;

    (void)user;
    while (met && n < MANY) {
        if (with_failure(group, ++n, &met) != 0) {
            (void)fprintf(stderr, "with allocation %zu\n", n);
            return RANKS_FAILED;
        }
    }
    CHECK(group, n > 20 && n < MANY);
    return 0;
}

int main(void)
{
    /* As processes: a failure meant for one rank must not reach another. */
    const struct ranks pair = {.kind = RANKS_PROCESSES, .world = 2, .lanes = 1};
    int n_failures = 0;

    oracle_start();
    n_failures += ddp_run_world("none per step", count_body, NULL, 1, 4);
    n_failures += ranks_run(&pair, fail_body, NULL);
    return n_failures != 0;
}
