/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on optimizers and averagers, and on blobs of state: a checkpoint takes the blobs of
 * all ranks to all ranks, as a program does; what is loaded may be damaged or of something else.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/api_rank.h"

enum kind { OF_DDP, OF_AVERAGER, OF_OPTIMIZER };

/* ---- optimizers ---- */

static int own_step(void *user, const tally_step_param *param)
{
    const struct api_rank *rank = user;

    (void)rank;
    if (param->step == 5) {
        return tally_job_fail(NULL, TALLY_NUMERIC, "the fuzzer's optimizer fails");
    }
    for (size_t k = 0; k < param->n; k++) {
        param->state[0][k] += param->gradient[k];
        param->data[k] -= (float)param->lr * param->state[0][k];
    }
    return TALLY_OK;
}

static void make_optimizer(struct api_rank *rank)
{
    static const char *const texts[] = {"sgd:lr=0.1",    "sgd:lr=0.1,momentum=0.9",
                                        "adamw:lr=1e-3", "adam",
                                        "adagrad",       "rmsprop",
                                        "adadelta",      "adamax",
                                        "rprop",         "nothing",
                                        "sgd:lr=x"};
    struct api_model *model = api_any_model(rank);
    const tally_optimizer_table table = {.size = sizeof table,
                                         .name = "own",
                                         .elementwise = api_chance(rank, 2),
                                         .n_states = 1,
                                         .step_param = own_step};
    const int first[] = {0};
    tally_optimizer_group groups[2] = {
        {sizeof groups[0], NULL, &table, rank, 0.1, first, 1},
        {sizeof groups[1], API_PICK_OF(rank, texts), NULL, NULL, 0, NULL, 0}};
    tally_optimizer_config config;
    tally_optimizer *optimizer = NULL;

    ASK(rank, tally_optimizer_config_init(&config, sizeof config));
    config.overlap = api_chance(rank, 2);
    config.shard = config.overlap && api_chance(rank, 2);
    config.release_gradients = api_chance(rank, 4);
    config.max_norm = api_chance(rank, 3) ? 0.5 : 0;
    config.loss_scale = api_chance(rank, 4) ? 1024 : 0;
    config.loss_scale_interval = 2;
    config.averager = api_chance(rank, 2) ? model->averager : NULL;
    if (api_chance(rank, 3)) {
        config.groups = groups;
        config.n_groups = 1 + api_pick(rank, 2);
    }
    if (model->optimizer && !api_chance(rank, 4)) {
        return;
    }
    if (CALL(rank, tally_optimizer_create(model->ddp, API_PICK_OF(rank, texts), &config,
                                          &optimizer)) == TALLY_OK) {
        model->optimizer = optimizer;
        model->overlaps = config.overlap;
        model->shards = config.shard;
        model->is_driven = config.averager != NULL;
    }
}

static void use_optimizer(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    tally_optimizer_stats stats = {.size = sizeof stats};
    int group = (int)api_pick(rank, 4) - 1;

    switch (api_pick(rank, 6)) {
    case 0:
        if (CALL(rank, tally_optimizer_free(model->optimizer)) == TALLY_OK) {
            model->optimizer = NULL;
            model->is_driven = false;
        }
        break;
    case 1:
        (void)api_judge(model, CALL(rank, tally_optimizer_step(model->optimizer)));
        break;
    case 2:
        (void)CALL(rank, tally_optimizer_set_lr(model->optimizer, group, api_pick(rank, 4) - 1.0));
        break;
    default:
        (void)ASK(rank, tally_optimizer_lr(model->optimizer, group));
        (void)ASK(rank, tally_optimizer_loss_scale(model->optimizer));
        (void)CALL(rank, tally_optimizer_get_stats(model->optimizer, &stats));
    }
}

/* ---- averagers ---- */

static void make_averager(struct api_rank *rank)
{
    static const char *const outers[] = {NULL, NULL, "sgd:lr=0.7,momentum=0.9,nesterov=1", "adam",
                                         "what"};
    struct api_model *model = api_any_model(rank);
    tally_averager_level levels[2] = {{1 + (int)api_pick(rank, 2), 0}, {4, 0}};
    tally_averager_config config;
    tally_averager *averager = NULL;

    ASK(rank, tally_averager_config_init(&config, sizeof config));
    config.levels = levels;
    config.n_levels = api_chance(rank, 3) ? 2 : 1;
    levels[0].group = config.n_levels == 2 ? 1 + (int)api_pick(rank, 2) : 0;
    config.warmup = (int)api_pick(rank, 5) - 1;
    config.hook = api_chance(rank, 2) ? NULL : api_hook_text(rank);
    config.outer = API_PICK_OF(rank, outers);
    if (model->averager && !api_chance(rank, 4)) {
        return;
    }
    if (CALL(rank, tally_averager_create(model->ddp, &config, &averager)) == TALLY_OK) {
        model->averager = averager;
        model->divides = true;
    }
}

static void use_averager(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    tally_averager_stats stats = {.size = sizeof stats};
    int n_averaged;

    switch (api_pick(rank, 5)) {
    case 0:
        if (CALL(rank, tally_averager_free(model->averager)) == TALLY_OK) {
            model->averager = NULL;
        }
        break;
    case 1:
        (void)api_judge(model, CALL(rank, tally_averager_average(model->averager)));
        break;
    case 2:
        (void)api_judge(model, CALL(rank, tally_averager_step(model->averager, &n_averaged)));
        break;
    default:
        (void)ASK(rank, tally_averager_steps(model->averager));
        (void)CALL(rank, tally_averager_get_stats(model->averager, &stats));
    }
}

void api_after_wait(struct api_rank *rank, struct api_model *model)
{
    if (model->optimizer && !model->overlaps && !api_chance(rank, 12)) {
        (void)api_judge(model, CALL(rank, tally_optimizer_step(model->optimizer)));
    }
    if (model->averager && !model->is_driven && !api_chance(rank, 12)) {
        (void)api_judge(model, CALL(rank, tally_averager_step(model->averager, NULL)));
    }
}

/* ---- checkpoints ---- */

static int save(struct api_rank *rank, struct api_model *model, enum kind kind, void *blob,
                size_t *bytes)
{
    switch (kind) {
    case OF_DDP:
        return CALL(rank, tally_ddp_save(model->ddp, blob, bytes));
    case OF_AVERAGER:
        return CALL(rank, tally_averager_save(model->averager, blob, bytes));
    default:
        return CALL(rank, tally_optimizer_save(model->optimizer, blob, bytes));
    }
}

static int load(struct api_rank *rank, struct api_model *model, enum kind kind, size_t n)
{
    const void *const *blobs = (const void *const *)model->blobs[kind];
    const size_t *bytes = model->blob_bytes[kind];

    switch (kind) {
    case OF_DDP:
        return CALL(rank, tally_ddp_load(model->ddp, blobs, bytes, n));
    case OF_AVERAGER:
        return CALL(rank, tally_averager_load(model->averager, blobs, bytes, n));
    default:
        return CALL(rank, tally_optimizer_load(model->optimizer, blobs, bytes, n));
    }
}

/* Takes the blobs of all ranks to all ranks. */
static void gather(struct api_rank *rank, struct api_model *model, enum kind kind, void *blob,
                   size_t n)
{
    tally_group *group = rank->groups[model - rank->models];
    int world = tally_group_size(group);
    size_t sizes[API_MAX_WORLD];
    size_t total = 0;
    size_t lengths[API_MAX_WORLD];
    unsigned char *all;
    tally_future *future = NULL;

    for (int r = 0; r < world; r++) {
        sizes[r] = sizeof n;
    }
    if (CALL(rank, tally_all_gather(group, &n, sizes, lengths, &future)) != TALLY_OK ||
        api_finish(rank, future) != TALLY_OK) {
        return;
    }
    for (int r = 0; r < world; r++) {
        total += lengths[r];
    }
    all = malloc(total + 1);
    if (!all) {
        api_fail(rank, "no memory for the fuzzer itself");
    }
    if (CALL(rank, tally_all_gather(group, blob, lengths, all, &future)) == TALLY_OK &&
        api_finish(rank, future) == TALLY_OK) {
        size_t at = 0;

        for (int r = 0; r < world; at += lengths[r], r++) {
            free(model->blobs[kind][r]);
            model->blobs[kind][r] = memcpy(malloc(lengths[r] + 1), all + at, lengths[r]);
            model->blob_bytes[kind][r] = lengths[r];
        }
        model->n_blobs[kind] = world;
    }
    free(all);
}

static void make_checkpoint(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    enum kind kind = (enum kind)api_pick(rank, 3);
    size_t bytes = 0;
    void *blob;

    if (!model->ddp || save(rank, model, kind, NULL, &bytes) != TALLY_OK) {
        return;
    }
    if (bytes > 0 && api_chance(rank, 8)) {
        bytes--; /* too little room */
    }
    blob = malloc(bytes + 1);
    if (!blob) {
        api_fail(rank, "no memory for the fuzzer itself");
    }
    if (save(rank, model, kind, blob, &bytes) == TALLY_OK) {
        gather(rank, model, kind, blob, bytes);
    }
    free(blob);
}

static void load_checkpoint(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    enum kind kind = (enum kind)api_pick(rank, 3);
    size_t n = (size_t)model->n_blobs[kind];
    uint64_t draw = api_draw(&rank->random);

    if (n > 1 && api_chance(rank, 8)) {
        n--;
    }
    if (n > 0 && model->blob_bytes[kind][0] > 0 && api_chance(rank, 6)) {
        unsigned char *blob = model->blobs[kind][0];

        blob[draw % model->blob_bytes[kind][0]] ^= 4;
    }
    (void)api_judge(model, load(rank, model, kind, n));
}

static void consolidate(struct api_rank *rank)
{
    struct api_model *model = api_any_model(rank);
    int root = (int)api_pick(rank, 3) - api_chance(rank, 5);
    size_t bytes = 1 << 20;
    void *blob = malloc(bytes);

    if (!blob) {
        api_fail(rank, "no memory for the fuzzer itself");
    }
    (void)api_judge(model,
                    CALL(rank, tally_optimizer_consolidate(model->optimizer, root, blob, &bytes)));
    free(blob);
}

const struct api_row api_state_rows[] = {
    {"make an optimizer", make_optimizer, 5, false},
    {"use an optimizer", use_optimizer, 4, false},
    {"make an averager", make_averager, 3, false},
    {"use an averager", use_averager, 3, false},
    {"save", make_checkpoint, 5, false},
    {"load", load_checkpoint, 5, false},
    {"consolidate", consolidate, 2, false},
    {NULL, NULL, 0, false},
};
