/* SPDX-License-Identifier: Apache-2.0 */
/* Saved averagers that were changed, or made up; see blob_fuzz.h. One thread. */
#include <stdbool.h>

#include "fuzz/blob_fuzz.h"
#include "fuzz/fuzz.h"
#include "tally.h"

/* lossy: averages travel as bytes, and SGD follows; otherwise as they are, and Adam does. */
static int create(struct blob_model *model, bool lossy)
{
    static const tally_averager_level every_step = {1, 0};
    tally_averager_config config;
    tally_averager *averager = NULL;
    int rc;

    tally_averager_config_init(&config, sizeof config);
    config.levels = &every_step;
    config.n_levels = 1;
    config.hook = lossy ? "int8:exempt=none,block=64" : NULL;
    config.outer = lossy ? "sgd:lr=0.7,momentum=0.9" : "adam";
    rc = tally_averager_create(model->ddp, &config, &averager);
    model->object = averager;
    return rc;
}

static int free_object(struct blob_model *model)
{
    return tally_averager_free(model->object);
}

static int step(struct blob_model *model, unsigned seed)
{
    for (int i = 0; i < model->subject->n_params; i++) {
        for (size_t e = 0; e < blob_elements(model, i); e++) {
            model->data[i][e] += blob_random(&seed);
        }
    }
    return tally_averager_step(model->object, NULL);
}

static int save(struct blob_model *model, void *blob, size_t *bytes)
{
    return tally_averager_save(model->object, blob, bytes);
}

static int load(struct blob_model *model, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_averager_load(model->object, blobs, bytes, n);
}

/* A hook that encodes reports values that are not finite. */
static int go_on(struct blob_model *model, bool lossy)
{
    int rc = step(model, 9);

    return lossy && rc == TALLY_NUMERIC ? TALLY_OK : rc;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const struct blob_subject subject = {
        .n_params = 2,
        .shapes = {{3, 3}, {7}},
        .create = create,
        .free = free_object,
        .step = step,
        .save = save,
        .load = load,
        .go_on = go_on,
    };

    return blob_fuzz(&subject, data, n);
}
