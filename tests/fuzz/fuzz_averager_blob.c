/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved averagers that were changed, or made up: what is refused is answered with one line and
 * changes nothing; what is accepted can be saved, loaded again to the same bytes, and gone on from.
 * Nothing leaks. One thread. An input is what to do to a state that a small run has saved
 * (blob_changes.h).
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "fuzz/blob_changes.h"
#include "fuzz/fuzz.h"
#include "support/counting_memory.h"
#include "tally.h"

/* Averages travel as bytes, and SGD follows; else as they are, and Adam does. */
#define LOSSY BLOB_VARIANT

#define N_PARAMS 2

struct model {
    float data[N_PARAMS][16];
    tally_group *group;
    tally_ddp *ddp;
    tally_averager *averager;
};

/* ---- a run ---- */

static int create(struct model *model, bool lossy)
{
    static const tally_averager_level every_step = {1, 0};
    tally_averager_config config;

    tally_averager_config_init(&config, sizeof config);
    config.levels = &every_step;
    config.n_levels = 1;
    config.hook = lossy ? "int8:exempt=none,block=64" : NULL;
    config.outer = lossy ? "sgd:lr=0.7,momentum=0.9" : "adam";
    return tally_averager_create(model->ddp, &config, &model->averager);
}

static void start(struct model *model, bool lossy)
{
    static const size_t shapes[N_PARAMS][2] = {{3, 3}, {7}};
    static const char *const names[N_PARAMS] = {"first", "second"};
    tally_param params[N_PARAMS];
    tally_group_config config;

    memset(model, 0, sizeof *model);
    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = i == 1 ? 1 : 2,
                                  .shape = shapes[i],
                                  .dtype = TALLY_F32,
                                  .data = model->data[i]};
    }
    tally_group_config_init(&config, sizeof config);
    config.lanes = 0;
    FUZZ_CHECK(tally_group_open_threads(&config, 1, &model->group) == TALLY_OK);
    FUZZ_CHECK(tally_ddp_create(model->group, params, N_PARAMS, NULL, &model->ddp) == TALLY_OK);
    FUZZ_CHECK(create(model, lossy) == TALLY_OK);
}

static void end(struct model *model)
{
    FUZZ_CHECK(tally_averager_free(model->averager) == TALLY_OK);
    FUZZ_CHECK(tally_ddp_free(model->ddp) == TALLY_OK);
    FUZZ_CHECK(tally_group_close(model->group) == TALLY_OK);
}

static int step(struct model *model, unsigned seed)
{
    for (int i = 0; i < N_PARAMS; i++) {
        for (size_t e = 0; e < 9; e++) {
            seed = seed * 1664525u + 1013904223u;
            model->data[i][e] += (float)(seed >> 8) * 0x1p-24f;
        }
    }
    return tally_averager_step(model->averager, NULL);
}

static void save(struct model *model, struct blob_tried *blob)
{
    blob->bytes = sizeof blob->room;
    FUZZ_CHECK(tally_averager_save(model->averager, blob->room, &blob->bytes) == TALLY_OK);
}

/* ---- the checks ---- */

/* In blocks of their sizes, the second one unaligned, so that a sanitizer sees wrong reads. */
static int try(struct model *model, const struct blob_tried *other, const struct blob_tried *tried)
{
    unsigned char *first = malloc(other ? other->bytes : 1);
    unsigned char *second = malloc(tried->bytes + 1);
    const void *const blobs[] = {other ? first : second + 1, second + 1};
    const size_t bytes[] = {other ? other->bytes : tried->bytes, tried->bytes};
    int rc;

    FUZZ_CHECK(first && second);
    if (other) {
        memcpy(first, other->room, other->bytes);
    }
    memcpy(second + 1, tried->room, tried->bytes);
    rc = tally_averager_load(model->averager, blobs, bytes, other ? 2 : 1);
    free(first);
    free(second);
    return rc;
}

static void check_refused(struct model *model, const struct blob_tried *before, int rc)
{
    static struct blob_tried after;
    const char *text = tally_last_error();

    FUZZ_CHECK(rc == TALLY_ARG);
    FUZZ_CHECK(text[0] != '\0' && strlen(text) < TALLY__ERROR_BYTES - 1);
    for (; *text != '\0'; text++) {
        FUZZ_CHECK((unsigned char)*text >= ' ' && *text != '\x7f');
    }
    save(model, &after);
    FUZZ_CHECK(after.bytes == before->bytes && memcmp(after.room, before->room, after.bytes) == 0);
}

/* Its numbers may be none: a hook that codes says so. */
static void check_accepted(struct model *model, bool lossy)
{
    static struct blob_tried saved;
    static struct blob_tried again;
    struct model fresh;
    int rc;

    save(model, &saved);
    start(&fresh, lossy);
    FUZZ_CHECK(try(&fresh, NULL, &saved) == TALLY_OK);
    save(&fresh, &again);
    FUZZ_CHECK(again.bytes == saved.bytes && memcmp(again.room, saved.room, saved.bytes) == 0);
    end(&fresh);
    rc = step(model, 9);
    FUZZ_CHECK(rc == TALLY_OK || (lossy && rc == TALLY_NUMERIC));
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static struct blob_tried before;
    static struct blob_tried tried;
    static struct blob_tried other;
    unsigned flags = n > 0 ? data[0] : 0;
    size_t live = counting_memory_live();
    struct model model;
    int rc;

    start(&model, flags & LOSSY);
    for (unsigned s = 0; s < 3; s++) {
        FUZZ_CHECK(step(&model, s) == TALLY_OK);
    }
    save(&model, &before);
    tried = before;
    blob_make(&tried, n > 0 ? data + 1 : data, n > 0 ? n - 1 : 0, flags);
    other = before;
    blob_seal(&other, 0, 2);
    rc = try(&model, flags & BLOB_OTHERS ? &other : NULL, &tried);
    if (rc == TALLY_OK) {
        check_accepted(&model, flags & LOSSY);
    } else {
        check_refused(&model, &before, rc);
    }
    end(&model);
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}
