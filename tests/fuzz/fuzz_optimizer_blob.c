/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved optimizers that were changed, or made up: what is refused is answered with one line and
 * changes nothing; what is accepted can be saved, loaded again to the same bytes, and trained on.
 * Nothing leaks. One thread. An input is what to do to a state that a small run has saved
 * (blob_changes.h).
 */
#include <stdbool.h>
#include <string.h>

#include "base/status.h"
#include "fuzz/blob_changes.h"
#include "fuzz/fuzz.h"
#include "support/counting_memory.h"
#include "tally.h"

/* Two groups, and a parameter in none; else one group of all. */
#define GROUPS BLOB_VARIANT

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

static void start(struct model *model, bool has_groups)
{
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

static void end(struct model *model)
{
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

static void save(struct model *model, struct blob_tried *blob)
{
    blob->bytes = sizeof blob->room;
    FUZZ_CHECK(tally_optimizer_save(model->optimizer, blob->room, &blob->bytes) == TALLY_OK);
}

static int load(struct model *model, const struct blob_tried *blob)
{
    const void *const blobs[] = {blob->room};

    return tally_optimizer_load(model->optimizer, blobs, &blob->bytes, 1);
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
    rc = tally_optimizer_load(model->optimizer, blobs, bytes, other ? 2 : 1);
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

/* Its numbers may be none. */
static void check_accepted(struct model *model, bool has_groups)
{
    static struct blob_tried saved;
    static struct blob_tried again;
    struct model fresh;

    save(model, &saved);
    start(&fresh, has_groups);
    FUZZ_CHECK(load(&fresh, &saved) == TALLY_OK);
    save(&fresh, &again);
    FUZZ_CHECK(again.bytes == saved.bytes && memcmp(again.room, saved.room, saved.bytes) == 0);
    end(&fresh);
    step(model, 9);
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

    start(&model, flags & GROUPS);
    step(&model, 1);
    step(&model, 2);
    save(&model, &before);
    tried = before;
    blob_make(&tried, n > 0 ? data + 1 : data, n > 0 ? n - 1 : 0, flags);
    other = before;
    blob_seal(&other, 0, 2);
    rc = try(&model, flags & BLOB_OTHERS ? &other : NULL, &tried);
    if (rc == TALLY_OK) {
        check_accepted(&model, flags & GROUPS);
    } else {
        check_refused(&model, &before, rc);
    }
    end(&model);
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}
