/* SPDX-License-Identifier: Apache-2.0 */
/* Saved states of a ddp and its hook that were changed, or made up; see blob_fuzz.h. One thread. */
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
};

/* ---- a run ---- */

/* power: the hook is PowerSGD, which has its own state; otherwise int8. */
static void start(void *started, bool power)
{
    struct model *model = started;
    static const size_t shapes[N_PARAMS][2] = {{6, 9}, {7}, {8, 5}};
    static const char *const names[N_PARAMS] = {"first", "second", "third"};
    tally_param params[N_PARAMS];
    tally_group_config group_config;
    tally_ddp_config config;

    memset(model, 0, sizeof *model);
    for (int i = 0; i < N_PARAMS; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = i == 1 ? 1 : 2,
                                  .shape = shapes[i],
                                  .dtype = TALLY_F32,
                                  .data = model->data[i]};
    }
    tally_group_config_init(&group_config, sizeof group_config);
    group_config.lanes = 0;
    tally_ddp_config_init(&config, sizeof config);
    config.hook = power ? "powersgd:rank=1,start=0" : "int8:block=64";
    FUZZ_CHECK(tally_group_open_threads(&group_config, 1, &model->group) == TALLY_OK);
    FUZZ_CHECK(tally_ddp_create(model->group, params, N_PARAMS, &config, &model->ddp) == TALLY_OK);
}

static void end(void *ended)
{
    struct model *model = ended;

    FUZZ_CHECK(tally_ddp_free(model->ddp) == TALLY_OK);
    FUZZ_CHECK(tally_group_close(model->group) == TALLY_OK);
}

static int step(struct model *model, unsigned seed)
{
    static const size_t counts[N_PARAMS] = {54, 7, 40};

    for (int i = 0; i < N_PARAMS; i++) {
        float *grad = tally_ddp_grad(model->ddp, i);

        for (size_t e = 0; e < counts[i]; e++) {
            seed = seed * 1664525u + 1013904223u;
            grad[e] = (float)(seed >> 8) * 0x1p-24f;
        }
        FUZZ_CHECK(tally_ddp_grad_ready(model->ddp, i) == TALLY_OK);
    }
    return tally_ddp_wait(model->ddp);
}

static void save(void *model, void *blob, size_t *bytes)
{
    FUZZ_CHECK(tally_ddp_save(((struct model *)model)->ddp, blob, bytes) == TALLY_OK);
}

static int load(void *model, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_ddp_load(((struct model *)model)->ddp, blobs, bytes, n);
}

static void run(void *model)
{
    FUZZ_CHECK(step(model, 1) == TALLY_OK && step(model, 2) == TALLY_OK);
}

static void go_on(void *model, bool variant)
{
    int rc = step(model, 9);

    (void)variant;
    FUZZ_CHECK(rc == TALLY_OK || rc == TALLY_NUMERIC);
    FUZZ_CHECK(tally_ddp_set_hook(((struct model *)model)->ddp, "allreduce") == TALLY_OK);
    FUZZ_CHECK(step(model, 10) == TALLY_OK);
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
