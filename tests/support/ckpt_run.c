/* SPDX-License-Identifier: Apache-2.0 */
/* The training run of ckpt_run.h. Keeps no state: every rank has its own run. */
#include "support/ckpt_run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The last but one is the same on all ranks although ranks are free to change it. */
static const struct {
    const char *name;
    int dtype;
    unsigned flags;
    int n_dims;
    size_t shape[2];
    size_t strides[2];
} specs[CKPT_N_PARAMS] = {
    {"wte", TALLY_F32, 0, 2, {24, 16}, {16, 1}},
    {"h.0 \"q\"\n", TALLY_F32, 0, 2, {7, 5}, {1, 7}},
    {"bias", TALLY_F32, 0, 1, {16}, {1}},
    {"scale", TALLY_F32, 0, 0, {0}, {0}},
    {"empty", TALLY_F32, 0, 2, {0, 4}, {4, 1}},
    {"frozen", TALLY_F32, TALLY_PARAM_FROZEN, 1, {6}, {1}},
    {"table.f16", TALLY_F16, TALLY_PARAM_IGNORED, 1, {5}, {1}},
    {"table.bf16", TALLY_BF16, TALLY_PARAM_IGNORED, 2, {3, 3}, {3, 1}},
    {"table.f64", TALLY_F64, TALLY_PARAM_IGNORED, 1, {2}, {1}},
    {"own", TALLY_F32, TALLY_PARAM_IGNORED, 1, {4}, {1}},
};
#define OWN 9

static size_t count_of(size_t i)
{
    size_t n = 1;

    for (int d = 0; d < specs[i].n_dims; d++) {
        n *= specs[i].shape[d];
    }
    return n;
}

static size_t bytes_of(size_t i)
{
    return count_of(i) * tally_dtype_bytes(specs[i].dtype);
}

/* Any bits will do for halves, as long as they are numbers. */
static void fill(struct ckpt_run *run, size_t i)
{
    for (size_t e = 0; e < count_of(i); e++) {
        double value = 0.25 * (double)((e * 7 + i * 5) % 23) - 2 +
                       (i == OWN ? tally_group_rank(run->group) : 0);

        if (specs[i].dtype == TALLY_F32) {
            ((float *)run->params[i].data)[e] = (float)value;
        } else if (specs[i].dtype == TALLY_F64) {
            ((double *)run->params[i].data)[e] = value;
        } else {
            ((uint16_t *)run->params[i].data)[e] = (uint16_t)(0x3c00 + 37 * e);
        }
    }
}

static int make_trainers(struct ckpt_run *run)
{
    static const tally_averager_level level = {3, 0};
    tally_averager_config averager;
    tally_optimizer_config optimizer;

    if (run->setup.averages) {
        tally_averager_config_init(&averager, sizeof averager);
        averager.levels = &level;
        averager.n_levels = 1;
        averager.warmup = 1;
        averager.hook = run->setup.averager;
        CHECK_OK(run->group, tally_averager_create(run->ddp, &averager, &run->averager));
    }
    if (run->setup.optimizer) {
        tally_optimizer_config_init(&optimizer, sizeof optimizer);
        optimizer.overlap = 1;
        optimizer.shard = run->setup.shard;
        optimizer.averager = run->averager;
        optimizer.loss_scale = run->setup.loss_scale;
        optimizer.loss_scale_interval = 2;
        CHECK_OK(run->group, tally_optimizer_create(run->ddp, run->setup.optimizer, &optimizer,
                                                    &run->optimizer));
    }
    return 0;
}

int ckpt_start(tally_group *group, const struct ckpt_setup *setup, struct ckpt_run *run)
{
    const tally_buffer buffers[CKPT_N_BUFFERS] = {
        {sizeof *buffers, "running mean", run->mean, sizeof run->mean, TALLY_F32},
        {sizeof *buffers, NULL, &run->counter, sizeof run->counter, TALLY_I64}};
    tally_ddp_config config;

    *run = (struct ckpt_run){.group = group, .setup = *setup};
    for (size_t i = 0; i < CKPT_N_PARAMS; i++) {
        run->params[i] = (tally_param){.size = sizeof run->params[i],
                                       .name = specs[i].name,
                                       .n_dims = specs[i].n_dims,
                                       .shape = specs[i].shape,
                                       .strides = specs[i].strides,
                                       .dtype = specs[i].dtype,
                                       .data = run->values[i],
                                       .flags = specs[i].flags};
        fill(run, i);
    }
    tally_ddp_config_init(&config, sizeof config);
    config.hook = setup->hook ? setup->hook : "allreduce";
    config.buffers = buffers;
    config.n_buffers = CKPT_N_BUFFERS;
    config.param_dtype = setup->mixed ? TALLY_BF16 : 0;
    config.buffer_dtype = setup->mixed ? TALLY_BF16 : 0;
    config.bucket_cap_bytes = setup->cap;
    CHECK_OK(group, tally_ddp_create(group, run->params, CKPT_N_PARAMS, &config, &run->ddp));
    return make_trainers(run);
}

int ckpt_end(struct ckpt_run *run)
{
    CHECK_OK(run->group, tally_optimizer_free(run->optimizer));
    CHECK_OK(run->group, tally_averager_free(run->averager));
    CHECK_OK(run->group, tally_ddp_free(run->ddp));
    return 0;
}

struct ckpt_run *ckpt_begin(tally_group *group, const struct ckpt_setup *setup)
{
    struct ckpt_run *run = malloc(sizeof *run);

    return run && ckpt_start(group, setup, run) == 0 && ckpt_steps(run, 1) == 0 ? run : NULL;
}

int ckpt_finish(struct ckpt_run *run)
{
    int rc = ckpt_end(run);

    free(run);
    return rc;
}

/* The gradient of an element, as the bits of an fp32 or a bf16. */
static void put_gradient(const struct ckpt_run *run, int i, size_t e, double scale)
{
    float value = ((const float *)run->params[i].data)[e];
    float gradient =
        (float)(scale * (0.5 * value +
                         0.1 * (double)((e + 3 * (size_t)i + (size_t)run->position * 5 +
                                         (size_t)tally_group_rank(run->group) * 11) %
                                        17) -
                         0.8));
    unsigned bits;

    if (!run->setup.mixed) {
        ((float *)tally_ddp_grad(run->ddp, i))[e] = gradient;
        return;
    }
    memcpy(&bits, &gradient, sizeof bits);
    ((uint16_t *)tally_ddp_grad(run->ddp, i))[e] = (uint16_t)(bits >> 16);
}

static void update(struct ckpt_run *run)
{
    for (int i = 0; i < 5; i++) {
        float *data = run->params[i].data;
        const float *mean = tally_ddp_mean(run->ddp, i);

        for (size_t e = 0; e < count_of((size_t)i); e++) {
            data[e] -= 0.05F * mean[e];
        }
    }
}

static int step(struct ckpt_run *run)
{
    double scale = run->optimizer ? tally_optimizer_loss_scale(run->optimizer) : 1;

    for (int i = 4; i >= 0; i--) {
        for (size_t e = 0; e < count_of((size_t)i); e++) {
            put_gradient(run, i, e, scale);
        }
        CHECK_OK(run->group, tally_ddp_grad_ready(run->ddp, i));
    }
    run->position++;
    run->counter += 3;
    if (run->setup.mixed) {
        ((uint16_t *)tally_ddp_low_buffer(run->ddp, 0))[2] = (uint16_t)(0x3f80 + run->position);
    } else {
        run->mean[2] += 0.5F;
    }
    for (size_t k = 0; k < sizeof run->random; k++) {
        run->random[k] =
            (unsigned char)(run->random[k] * 5 + k + 1 + (size_t)tally_group_rank(run->group));
    }
    ((float *)run->params[OWN].data)[1] += 0.125F;
    CHECK_OK(run->group, tally_ddp_wait(run->ddp));
    if (!run->optimizer) {
        update(run);
        CHECK_OK(run->group, tally_ddp_refresh_low(run->ddp));
    }
    if (run->averager && !run->optimizer) {
        CHECK_OK(run->group, tally_averager_step(run->averager, NULL));
    }
    return 0;
}

int ckpt_steps(struct ckpt_run *run, int n)
{
    for (int s = 0; s < n; s++) {
        CHECK(run->group, step(run) == 0);
    }
    return 0;
}

/* ---- hashes ---- */

uint64_t ckpt_hash_values(const struct ckpt_run *run)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < CKPT_N_PARAMS; i++) {
        if (i != OWN) {
            hash = ranks_hash(hash, run->params[i].data, bytes_of(i));
        }
    }
    hash = ranks_hash(hash, run->mean, sizeof run->mean);
    return ranks_hash(hash, &run->counter, sizeof run->counter);
}

typedef int save_fn(void *object, void *blob, size_t *bytes);

static int save_ddp(void *object, void *blob, size_t *bytes)
{
    return tally_ddp_save(object, blob, bytes);
}

static int save_optimizer(void *object, void *blob, size_t *bytes)
{
    return tally_optimizer_save(object, blob, bytes);
}

static int save_averager(void *object, void *blob, size_t *bytes)
{
    return tally_averager_save(object, blob, bytes);
}

static int hash_state(const struct ckpt_run *run, save_fn *save, void *object, uint64_t *hash)
{
    size_t bytes;
    void *blob;

    if (!object) {
        return 0;
    }
    CHECK_OK(run->group, save(object, NULL, &bytes));
    blob = malloc(bytes);
    CHECK(run->group, blob);
    CHECK_OK(run->group, save(object, blob, &bytes));
    *hash = ranks_hash(*hash, blob, bytes);
    free(blob);
    return 0;
}

int ckpt_hash(struct ckpt_run *run, uint64_t *hash)
{
    *hash = ckpt_hash_values(run);
    *hash = ranks_hash(*hash, run->params[OWN].data, bytes_of(OWN));
    *hash = ranks_hash(*hash, &run->position, sizeof run->position);
    *hash = ranks_hash(*hash, run->random, sizeof run->random);
    for (int i = 0; run->setup.mixed && i < 5; i++) {
        *hash = ranks_hash(*hash, tally_ddp_low(run->ddp, i), count_of((size_t)i) * 2);
    }
    CHECK(run->group, hash_state(run, save_ddp, run->ddp, hash) == 0);
    CHECK(run->group, hash_state(run, save_optimizer, run->optimizer, hash) == 0);
    return hash_state(run, save_averager, run->averager, hash);
}

/* ---- checkpoints ---- */

tally_checkpoint_config ckpt_config(struct ckpt_run *run)
{
    tally_checkpoint_config config;

    tally_checkpoint_config_init(&config, sizeof config);
    run->blobs[0] = (tally_checkpoint_blob){sizeof run->blobs[0], "position", &run->position,
                                            sizeof run->position, 0};
    run->blobs[1] = (tally_checkpoint_blob){sizeof run->blobs[1], "random state", run->random,
                                            sizeof run->random, 0};
    config.blobs = run->blobs;
    config.n_blobs = 2;
    return config;
}

int ckpt_save(struct ckpt_run *run, const char *directory)
{
    const tally_checkpoint_config config = ckpt_config(run);

    return tally_checkpoint_save(run->ddp, directory, &config);
}

int ckpt_load(struct ckpt_run *run, const char *directory, tally_checkpoint_info *info)
{
    const tally_checkpoint_config config = ckpt_config(run);

    return tally_checkpoint_load(run->ddp, directory, &config, info);
}

/* ---- folders ---- */

const char *ckpt_folder_make(void)
{
    static char folder[64];

    (void)snprintf(folder, sizeof folder, "/dev/shm/test-ckpt-XXXXXX");
    if (!mkdtemp(folder)) {
        (void)snprintf(folder, sizeof folder, "/tmp/tally-test-XXXXXX");
        return mkdtemp(folder);
    }
    return folder;
}

void ckpt_folder_remove(const char *folder)
{
    char command[4096];

    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) { // NOLINT: the name is ours
        (void)fprintf(stderr, "%s cannot be removed\n", folder);
    }
}

int ckpt_count(const char *folder, const char *beginning)
{
    DIR *of = opendir(folder);
    const struct dirent *entry;
    int n = 0;

    if (!of) {
        return -1;
    }
    while ((entry = readdir(of))) { // NOLINT: one thread per DIR
        n += strncmp(entry->d_name, beginning, strlen(beginning)) == 0 &&
             strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    (void)closedir(of);
    return n;
}
