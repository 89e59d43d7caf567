/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzing of saved states. One thread. */
#include "fuzz/blob_fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "fuzz/blob_changes.h"
#include "fuzz/fuzz.h"
#include "support/counting_memory.h"
#include "tally.h"

/* Steps before the state is saved. */
#define N_STEPS 3

/* ---- the run ---- */

size_t blob_elements(const struct blob_model *model, int i)
{
    const size_t *shape = model->subject->shapes[i];

    return shape[0] * (shape[1] > 0 ? shape[1] : 1);
}

float blob_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) * 0x1p-24f;
}

int blob_step(struct blob_model *model, unsigned seed)
{
    for (int i = 0; i < model->subject->n_params; i++) {
        float *grad = tally_ddp_grad(model->ddp, i);

        for (size_t e = 0; e < blob_elements(model, i); e++) {
            grad[e] = blob_random(&seed);
        }
        FUZZ_CHECK(tally_ddp_grad_ready(model->ddp, i) == TALLY_OK);
    }
    return tally_ddp_wait(model->ddp);
}

static void start(struct blob_model *model, const struct blob_subject *subject, bool variant)
{
    static const char *const names[BLOB_MAX_PARAMS] = {"first", "second", "third"};
    size_t n = (size_t)subject->n_params;
    tally_param params[BLOB_MAX_PARAMS];
    tally_group_config group_config;
    tally_ddp_config config;

    *model = (struct blob_model){.subject = subject};
    for (size_t i = 0; i < n; i++) {
        params[i] = (tally_param){.size = sizeof params[i],
                                  .name = names[i],
                                  .n_dims = subject->shapes[i][1] > 0 ? 2 : 1,
                                  .shape = subject->shapes[i],
                                  .dtype = TALLY_F32,
                                  .data = model->data[i]};
    }
    tally_group_config_init(&group_config, sizeof group_config);
    group_config.lanes = 0;
    tally_ddp_config_init(&config, sizeof config);
    config.hook = subject->hooks[variant];
    FUZZ_CHECK(tally_group_open_threads(&group_config, 1, &model->group) == TALLY_OK);
    FUZZ_CHECK(tally_ddp_create(model->group, params, n, &config, &model->ddp) == TALLY_OK);
    FUZZ_CHECK(!subject->create || subject->create(model, variant) == TALLY_OK);
}

static void end(struct blob_model *model)
{
    FUZZ_CHECK(!model->object || model->subject->free(model) == TALLY_OK);
    FUZZ_CHECK(tally_ddp_free(model->ddp) == TALLY_OK);
    FUZZ_CHECK(tally_group_close(model->group) == TALLY_OK);
}

/* ---- one input ---- */

static void save(struct blob_model *model, struct blob_tried *blob)
{
    blob->bytes = sizeof blob->room;
    FUZZ_CHECK(model->subject->save(model, blob->room, &blob->bytes) == TALLY_OK);
}

static bool is_same(const struct blob_tried *a, const struct blob_tried *b)
{
    return a->bytes == b->bytes && memcmp(a->room, b->room, a->bytes) == 0;
}

/* In blocks of their sizes, the second one unaligned, so that a sanitizer sees wrong reads. */
static int try(struct blob_model *model, const struct blob_tried *other,
               const struct blob_tried *tried)
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
    rc = model->subject->load(model, blobs, bytes, other ? 2 : 1);
    free(first);
    free(second);
    return rc;
}

static void check_refused(struct blob_model *model, const struct blob_tried *before, int rc)
{
    static struct blob_tried after;
    const char *text = tally_last_error();

    FUZZ_CHECK(rc == TALLY_ARG);
    FUZZ_CHECK(text[0] != '\0' && strlen(text) < TALLY__ERROR_BYTES - 1);
    for (; *text != '\0'; text++) {
        FUZZ_CHECK((unsigned char)*text >= ' ' && *text != '\x7f');
    }
    save(model, &after);
    FUZZ_CHECK(is_same(&after, before));
}

static void check_accepted(struct blob_model *model, bool variant)
{
    static struct blob_tried saved;
    static struct blob_tried again;
    static struct blob_model fresh;

    save(model, &saved);
    start(&fresh, model->subject, variant);
    FUZZ_CHECK(try(&fresh, NULL, &saved) == TALLY_OK);
    save(&fresh, &again);
    FUZZ_CHECK(is_same(&again, &saved));
    end(&fresh);
    FUZZ_CHECK(model->subject->go_on(model, variant) == TALLY_OK);
}

int blob_fuzz(const struct blob_subject *subject, const uint8_t *data, size_t n)
{
    static struct blob_tried before;
    static struct blob_tried tried;
    static struct blob_tried other;
    static struct blob_model model;
    unsigned flags = n > 0 ? data[0] : 0;
    bool variant = flags & BLOB_VARIANT;
    size_t live = counting_memory_live();
    int rc;

    start(&model, subject, variant);
    for (unsigned s = 1; s <= N_STEPS; s++) {
        FUZZ_CHECK(subject->step(&model, s) == TALLY_OK);
    }
    save(&model, &before);
    tried = before;
    blob_make(&tried, n > 0 ? data + 1 : data, n > 0 ? n - 1 : 0, flags);
    other = before;
    blob_seal(&other, 0, 2);
    rc = try(&model, flags & BLOB_OTHERS ? &other : NULL, &tried);
    if (rc == TALLY_OK) {
        check_accepted(&model, variant);
    } else {
        check_refused(&model, &before, rc);
    }
    end(&model);
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}
