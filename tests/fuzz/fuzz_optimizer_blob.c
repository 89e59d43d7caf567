/* SPDX-License-Identifier: Apache-2.0 */
/* Saved optimizers that were changed, or made up; see blob_fuzz.h. One thread. */
#include <stdbool.h>
#include <string.h>

#include "fuzz/blob_fuzz.h"
#include "fuzz/fuzz.h"
#include "tally.h"

#define N_PARAMS 3

struct model {
    float data[N_PARAMS][64];
    tally_group *group;
    tally_ddp *ddp;
    tally_optimizer *optimizer;
};

/* ---- a run ---- */

static int create(struct model *model, bool has_groups)
{
    static const int first[] = {0};
    static const int last[] = {2};
    const tally_optimizer_group groups[] = {
        {.size = sizeof groups[0], .text = "sgd:momentum=0.9", .params = first, .n_params = 1},
        {.size = sizeof groups[0], .text = "adam:amsgrad=1", .params = last, .n_params = 1}};
    tally_optimizer_config config;

    tally_optimizer_config_init(&config, sizeof config);
    config.overlap = 1;
    config.groups = has_groups ? groups : NULL;
    config.n_groups = has_groups ? 2 : 0;
    return tally_optimizer_create(model->ddp, has_groups ? NULL : "adamw", &config,
                                  &model->optimizer);
}

/* has_groups: two, and a parameter in none; else one group of all. */
static void start(void *started, bool has_groups)
{
    struct model *model = started;
    static const size_t shapes[N_PARAMS][2] = {{3, 3}, {7}, {2, 5}};
    static const char *const names[N_PARAMS] = {"first", "second", "third"};
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
    FUZZ_CHECK(create(model, has_groups) == TALLY_OK);
}

static void end(void *ended)
{
    struct model *model = ended;

    FUZZ_CHECK(tally_optimizer_free(model->optimizer) == TALLY_OK);
    FUZZ_CHECK(tally_ddp_free(model->ddp) == TALLY_OK);
    FUZZ_CHECK(tally_group_close(model->group) == TALLY_OK);
}

static void step(struct model *model, unsigned seed)
{
    static const size_t counts[N_PARAMS] = {9, 7, 10};

    for (int i = 0; i < N_PARAMS; i++) {
        float *grad = tally_ddp_grad(model->ddp, i);

        for (size_t e = 0; e < counts[i]; e++) {
            seed = seed * 1664525u + 1013904223u;
            grad[e] = (float)(seed >> 8) * 0x1p-24f;
        }
        FUZZ_CHECK(tally_ddp_grad_ready(model->ddp, i) == TALLY_OK);
    }
    FUZZ_CHECK(tally_ddp_wait(model->ddp) == TALLY_OK);
}

static void save(void *model, void *blob, size_t *bytes)
{
    FUZZ_CHECK(tally_optimizer_save(((struct model *)model)->optimizer, blob, bytes) == TALLY_OK);
}

static int load(void *model, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_optimizer_load(((struct model *)model)->optimizer, blobs, bytes, n);
}

static void run(void *model)
{
    step(model, 1);
    step(model, 2);
}

static void go_on(void *model, bool variant)
{
    (void)variant;
    step(model, 9);
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
