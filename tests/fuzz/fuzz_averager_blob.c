/* SPDX-License-Identifier: Apache-2.0 */
/* Saved averagers that were changed, or made up; see blob_fuzz.h. One thread. */
#include <stdbool.h>
#include <string.h>

#include "fuzz/blob_fuzz.h"
#include "fuzz/fuzz.h"
#include "tally.h"

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

/* lossy: averages travel as bytes, and SGD follows; else as they are, and Adam does. */
static void start(void *started, bool lossy)
{
    struct model *model = started;
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

static void end(void *ended)
{
    struct model *model = ended;

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

static void save(void *model, void *blob, size_t *bytes)
{
    FUZZ_CHECK(tally_averager_save(((struct model *)model)->averager, blob, bytes) == TALLY_OK);
}

static int load(void *model, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_averager_load(((struct model *)model)->averager, blobs, bytes, n);
}

static void run(void *model)
{
    for (unsigned s = 0; s < 3; s++) {
        FUZZ_CHECK(step(model, s) == TALLY_OK);
    }
}

static void go_on(void *model, bool variant)
{
    int rc = step(model, 9);

    /* A hook that encodes reports values that are not finite. */
    FUZZ_CHECK(rc == TALLY_OK || (variant && rc == TALLY_NUMERIC));
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static struct model models[2];
    static const struct blob_subject subject = {
        .models = {&models[0], &models[1]},
        .start = start,
        .run = run,
        .save = save,
        .load = load,
        .go_on = go_on,
        .end = end,
    };

    return blob_fuzz(&subject, data, n);
}
