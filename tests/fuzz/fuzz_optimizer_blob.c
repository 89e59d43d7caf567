/* SPDX-License-Identifier: Apache-2.0 */
/* Saved optimizers that were changed, or made up; see blob_fuzz.h. One thread. */
#include <stdbool.h>

#include "fuzz/blob_fuzz.h"
#include "fuzz/fuzz.h"
#include "tally.h"

/* The variant has two groups, and a parameter in none; otherwise there is one group of all. */
static int create(struct blob_model *model, bool has_groups)
{
    static const int first[] = {0};
    static const int last[] = {2};
    const tally_optimizer_group groups[] = {
        {.size = sizeof groups[0], .text = "sgd:momentum=0.9", .params = first, .n_params = 1},
        {.size = sizeof groups[0], .text = "adam:amsgrad=1", .params = last, .n_params = 1}};
    tally_optimizer_config config;
    tally_optimizer *optimizer = NULL;
    int rc;

    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.groups = has_groups ? groups : NULL;
    config.n_groups = has_groups ? 2 : 0;
    rc = tally_optimizer_create(model->ddp, has_groups ? NULL : "adamw", &config, &optimizer);
    model->object = optimizer;
    return rc;
}

static int free_object(struct blob_model *model)
{
    return tally_optimizer_free(model->object);
}

static int save(struct blob_model *model, void *blob, size_t *bytes)
{
    return tally_optimizer_save(model->object, blob, bytes);
}

static int load(struct blob_model *model, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_optimizer_load(model->object, blobs, bytes, n);
}

static int go_on(struct blob_model *model, bool variant)
{
    (void)variant;
    return blob_step(model, 9);
}

int fuzz_one(const uint8_t *data, size_t n)
{
    static const struct blob_subject subject = {
        .n_params = 3,
        .shapes = {{3, 3}, {7}, {2, 5}},
        .create = create,
        .free = free_object,
        .step = blob_step,
        .save = save,
        .load = load,
        .go_on = go_on,
    };

    return blob_fuzz(&subject, data, n);
}
