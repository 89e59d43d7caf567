/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading checkpoints. Everything is read and verified before ranks agree, and nothing changes
 * before that; then parameters, buffers, blobs and the states of all objects are taken over. The
 * application's thread enters, between steps.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/status.h"
#include "state/container.h"
#include "train/averager.h"
#include "train/checkpoint.h"

#define CALL "tally_checkpoint_load"

/* Two parts of a parameter or buffer: that of all ranks, or rank 0's, and this rank's own. */
struct choice {
    const struct tally__part *first;
    const struct tally__part *mine;
};

/* A checkpoint on its way into a ddp. */
struct loading {
    tally_ddp *ddp;
    const char *directory;
    tally_checkpoint_config config;
    struct tally__found found;
    struct tally__path folder;
    struct tally__manifest manifest;
    bool has_manifest;
    int rank;
    bool same_world;
    size_t n_values;        /* parameters, then buffers */
    struct choice *choices; /* per value */
    void **values;          /* per value: its bytes, or NULL; */
    void *memory;           /* all of them are here */
    void **blobs;           /* per blob of the application */
    const struct tally__part **blob_parts;
    struct tally__objects objects;
    size_t n_objects;                  /* that are loaded */
    void **states[TALLY__MAX_OBJECTS]; /* per object and rank that saved */
    size_t *sizes[TALLY__MAX_OBJECTS];
    size_t n_blobs[TALLY__MAX_OBJECTS];
};

/* ---- which parts ---- */

static int damaged(const char *why)
{
    return tally__fail(TALLY_ARG, "its manifest is not valid: %s", why);
}

/* Notes the parts of every value. */
static int choose_values(struct loading *loading)
{
    const struct tally__manifest *manifest = &loading->manifest;
    size_t n_params = manifest->n_params;

    loading->n_values = n_params + manifest->n_buffers;
    loading->choices =
        tally__alloc_array(loading->n_values, sizeof *loading->choices, "a checkpoint");
    loading->values =
        tally__alloc_array(loading->n_values, sizeof *loading->values, "a checkpoint");
    if (!loading->choices || !loading->values) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < manifest->n_parts; i++) {
        const struct tally__part *part = &manifest->parts[i];
        bool is_param = tally__is_tensor(part->kind);
        bool is_own = tally__part_kinds[part->kind].is_own;
        int rank = manifest->files[part->file].rank;
        struct choice *choice;

        if (!is_param && part->kind != TALLY__PART_BUFFER && part->kind != TALLY__PART_OWN_BUFFER) {
            continue;
        }
        if (part->index >= (is_param ? n_params : manifest->n_buffers)) {
            return damaged("it numbers a part that is not there");
        }
        choice = &loading->choices[(is_param ? 0 : n_params) + part->index];
        choice->first = !is_own || rank == 0 ? part : choice->first;
        choice->mine = is_own && rank == loading->rank ? part : choice->mine;
    }
    return TALLY_OK;
}

/* Whether a parameter, or with NULL a buffer, may differ between ranks. */
static bool may_differ(const struct loading *loading, const struct tally__param *param)
{
    const tally_ddp *ddp = loading->ddp;

    return (param && param->flags & TALLY_PARAM_IGNORED) || (!param && ddp->config.keep_buffers) ||
           tally__training_of(ddp)->averager || tally__hook_local(ddp->hook);
}

static const struct tally__part *chosen(const struct loading *loading, size_t value)
{
    const struct choice *choice = &loading->choices[value];
    size_t n_params = loading->manifest.n_params;
    const struct tally__param *param = value < n_params ? &loading->ddp->params[value] : NULL;

    return choice->mine && loading->same_world && may_differ(loading, param) ? choice->mine
                                                                             : choice->first;
}

/* ---- the same model? ---- */

static bool same_shape(const struct tally__param *param, const struct tally__part *part)
{
    return param->n_dims == part->n_dims &&
           (param->n_dims == 0 ||
            memcmp(param->shape, part->shape, (size_t)param->n_dims * sizeof *param->shape) == 0);
}

static int check_param(const struct tally__param *param, const struct tally__part *part, size_t i)
{
    if (!param->data && param->n > 0) {
        return TALLY_OK;
    }
    if (!part) {
        return tally__fail(TALLY_ARG, "it has no parameter %zu, which is '%.200s' in this model", i,
                           param->name);
    }
    if (strcmp(part->name, param->name) != 0) {
        return tally__fail(TALLY_ARG,
                           "it is of another model: parameter %zu is '%.200s', and '%.200s' in "
                           "this model",
                           i, part->name, param->name);
    }
    if (part->dtype != param->dtype) {
        return tally__fail(TALLY_ARG, "it has parameter '%.200s' as %s, this model as %s",
                           param->name, tally__dtype_word(part->dtype),
                           tally__dtype_word(param->dtype));
    }
    if (!same_shape(param, part)) {
        struct tally__growing text = {0};
        int rc;

        tally__grow(&text, "it has parameter '%.200s' with shape (", param->name);
        for (int d = 0; d < part->n_dims; d++) {
            tally__grow(&text, d == 0 ? "%zu" : ", %zu", part->shape[d]);
        }
        tally__grow(&text, "), this model with (");
        for (int d = 0; d < param->n_dims; d++) {
            tally__grow(&text, d == 0 ? "%zu" : ", %zu", param->shape[d]);
        }
        rc = text.is_lost ? TALLY_NOMEM : tally__fail(TALLY_ARG, "%s)", text.text);
        tally__grow_free(&text);
        return rc;
    }
    return TALLY_OK;
}

static int check_buffer(const struct loading *loading, size_t i)
{
    const tally_buffer *buffer = &loading->ddp->buffers[i];
    const struct tally__part *part = chosen(loading, loading->manifest.n_params + i);

    if (!part) {
        return damaged("a buffer is missing");
    }
    if (buffer->name && strcmp(part->name, buffer->name) != 0) {
        return tally__fail(TALLY_ARG, "buffer %zu is '%.200s', and '%.200s' in this model", i,
                           part->name, buffer->name);
    }
    return part->bytes == buffer->bytes
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "it has buffer %zu with %zu bytes, this model with %zu", i,
                             part->bytes, buffer->bytes);
}

static int check_model(const struct loading *loading)
{
    const tally_ddp *ddp = loading->ddp;
    const struct tally__manifest *manifest = &loading->manifest;
    size_t n = manifest->n_params < ddp->n_params ? manifest->n_params : ddp->n_params;

    for (size_t i = 0; i < n; i++) {
        TRY(check_param(&ddp->params[i], chosen(loading, i), i));
    }
    if (manifest->n_params != ddp->n_params) {
        const struct tally__part *next = n < manifest->n_params ? loading->choices[n].first : NULL;

        return tally__fail(TALLY_ARG,
                           "it has %zu parameters, this model has %zu: the first that only one of "
                           "them has is '%.200s'",
                           manifest->n_params, ddp->n_params,
                           n < ddp->n_params ? ddp->params[n].name : (next ? next->name : "?"));
    }
    if (manifest->n_buffers != ddp->n_buffers) {
        return tally__fail(TALLY_ARG, "it has %zu buffers, this model has %zu", manifest->n_buffers,
                           ddp->n_buffers);
    }
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        TRY(check_buffer(loading, i));
    }
    return TALLY_OK;
}

/* ---- reading ---- */

/* Reads a part into new memory. */
static int read_part(const struct loading *loading, const struct tally__part *part, void **bytes)
{
    *bytes = tally__alloc_unset(part->bytes, "a part of a checkpoint");
    return *bytes ? tally__part_read(loading->folder.text, &loading->manifest, part, *bytes)
                  : TALLY_NOMEM;
}

/* The bytes of a value, rounded up to whole cache lines; 0: it is not read. */
static size_t room_for(const struct loading *loading, size_t value)
{
    const struct tally__part *part = chosen(loading, value);
    bool has_data = value >= loading->manifest.n_params || loading->ddp->params[value].data;

    return part && has_data ? tally__to_cache_line(part->bytes) : 0;
}

static int read_values(struct loading *loading)
{
    unsigned char *to;
    size_t total = 0;

    for (size_t i = 0; i < loading->n_values; i++) {
        total += room_for(loading, i);
    }
    to = tally__alloc_unset(total, "a checkpoint");
    if (!to) {
        return TALLY_NOMEM;
    }
    loading->memory = to;
    for (size_t i = 0; i < loading->n_values; i++) {
        size_t room = room_for(loading, i);

        if (room > 0) {
            loading->values[i] = to;
            to += room;
            TRY(tally__part_read(loading->folder.text, &loading->manifest, chosen(loading, i),
                                 loading->values[i]));
        }
    }
    return TALLY_OK;
}

/* The application's blobs, those of one rank that saved. */
static int read_blob(struct loading *loading, size_t i)
{
    const struct tally__manifest *manifest = &loading->manifest;
    const struct tally__part *found = NULL;
    tally_checkpoint_blob blob;

    TRY(tally__checkpoint_blob(&loading->config, i, &blob));
    for (size_t k = 0; k < manifest->n_parts && !found; k++) {
        const struct tally__part *part = &manifest->parts[k];

        if (part->kind == TALLY__PART_BLOB && strcmp(part->name, blob.name) == 0 &&
            manifest->files[part->file].rank == loading->rank % manifest->world) {
            found = part;
        }
    }
    if (!found) {
        return tally__fail(TALLY_ARG, "it has no blob '%.200s'", blob.name);
    }
    if (found->bytes > blob.bytes) {
        return tally__fail(TALLY_ARG, "its blob '%.200s' has %zu bytes, but there is room for %zu",
                           blob.name, found->bytes, blob.bytes);
    }
    loading->blob_parts[i] = found;
    return read_part(loading, found, &loading->blobs[i]);
}

static int read_blobs(struct loading *loading)
{
    size_t n = loading->config.n_blobs;

    loading->blobs = tally__alloc_array(n, sizeof *loading->blobs, "a checkpoint");
    loading->blob_parts = tally__alloc_array(n, sizeof(void *), "a checkpoint");
    if (!loading->blobs || !loading->blob_parts) {
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        TRY(read_blob(loading, i));
    }
    return TALLY_OK;
}

/* The blobs of all ranks for one object. */
static int read_states(struct loading *loading, size_t k)
{
    const struct tally__manifest *manifest = &loading->manifest;
    enum tally__part_kind kind = loading->objects.kinds[k];
    size_t world = (size_t)manifest->world;
    size_t n = 0;

    loading->states[k] = tally__alloc_array(world, sizeof *loading->states[k], "a checkpoint");
    loading->sizes[k] = tally__alloc_array(world, sizeof *loading->sizes[k], "a checkpoint");
    if (!loading->states[k] || !loading->sizes[k]) {
        return TALLY_NOMEM;
    }
    loading->n_blobs[k] = world;
    for (size_t i = 0; i < manifest->n_parts; i++) {
        const struct tally__part *part = &manifest->parts[i];
        int rank = manifest->files[part->file].rank;

        if (part->kind == kind && !loading->states[k][rank]) {
            TRY(read_part(loading, part, &loading->states[k][rank]));
            loading->sizes[k][rank] = part->bytes;
            n++;
        }
    }
    if (n == 0 && kind == TALLY__PART_OPTIMIZER) {
        TRY(tally__checkpoint_slices(loading->folder.text, manifest, &loading->states[k][0],
                                     &loading->sizes[k][0]));
        loading->n_blobs[k] = loading->states[k][0] ? 1 : world;
    }
    if (n == world || (n == 0 && loading->states[k][0])) {
        return TALLY_OK;
    }
    return tally__fail(TALLY_ARG,
                       "it has the state of the %s from %zu of %zu ranks; config.params_only loads "
                       "the parameters alone",
                       tally__part_kinds[kind].shown, n, world);
}

/* All that needs no other rank: changes nothing. */
static int read_all(struct loading *loading)
{
    TRY(tally__path_join(loading->directory, loading->found.name, &loading->folder));
    TRY(tally__manifest_read(loading->found.text, loading->found.n_text, &loading->manifest));
    loading->has_manifest = true;
    loading->same_world = loading->manifest.world == tally_group_size(loading->ddp->group);
    TRY(choose_values(loading));
    TRY(check_model(loading));
    TRY(read_values(loading));
    TRY(read_blobs(loading));
    for (size_t k = 0; k < loading->n_objects; k++) {
        TRY(read_states(loading, k));
    }
    return TALLY_OK;
}

/* ---- taking over ---- */

static void take_values(const struct loading *loading)
{
    const tally_ddp *ddp = loading->ddp;

    for (size_t i = 0; i < ddp->n_params; i++) {
        if (loading->values[i]) {
            tally__rows_put(&ddp->params[i], loading->values[i]);
        }
    }
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        if (loading->values[ddp->n_params + i]) {
            memcpy(ddp->buffers[i].data, loading->values[ddp->n_params + i], ddp->buffers[i].bytes);
        }
    }
    tally__mixed_refresh(ddp);
    tally__mixed_raise_buffers(ddp);
}

static void take_blobs(const struct loading *loading)
{
    for (size_t i = 0; i < loading->config.n_blobs; i++) {
        tally_checkpoint_blob *given =
            (tally_checkpoint_blob *)tally__sized_at(loading->config.blobs, i);

        if (loading->blob_parts[i]->bytes > 0) {
            memcpy(given->data, loading->blobs[i], loading->blob_parts[i]->bytes);
        }
        given->loaded_bytes = loading->blob_parts[i]->bytes;
    }
}

/* All ranks have read everything, and all objects accept their states; otherwise nothing changes.
 * status is that of reading, on this rank. */
static int take_over(struct loading *loading, int status)
{
    struct tally__load loads[TALLY__MAX_OBJECTS];
    int rc;

    for (size_t k = 0; k < loading->n_objects; k++) {
        loads[k] = (struct tally__load){.state = loading->objects.states[k],
                                        .blobs = (const void *const *)loading->states[k],
                                        .bytes = loading->sizes[k],
                                        .n = loading->n_blobs[k],
                                        .is_verified = true};
    }
    rc = loading->n_objects > 0 ? tally__states_load(loads, loading->n_objects, status)
                                : tally__ddp_agree(loading->ddp, status, NULL, NULL);
    if (rc != TALLY_OK) {
        return tally__fail(rc, "checkpoint '%.300s/%s': %s", loading->directory,
                           loading->found.name, tally_last_error());
    }
    take_values(loading);
    take_blobs(loading);
    return TALLY_OK;
}

static void clean_up(struct loading *loading)
{
    for (size_t i = 0; loading->blobs && i < loading->config.n_blobs; i++) {
        tally__free(loading->blobs[i]);
    }
    for (size_t k = 0; k < loading->n_objects; k++) {
        for (int r = 0; loading->states[k] && r < loading->manifest.world; r++) {
            tally__free(loading->states[k][r]);
        }
        tally__free(loading->states[k]);
        tally__free(loading->sizes[k]);
    }
    tally__free(loading->values);
    tally__free(loading->memory);
    tally__free(loading->choices);
    tally__free(loading->blobs);
    tally__free(loading->blob_parts);
    tally__free(loading->found.text);
    if (loading->has_manifest) {
        tally__manifest_free(&loading->manifest);
    }
}

/* ---- the call ---- */

static int find_job(tally_lane *lane, void *user)
{
    struct loading *loading = user;
    struct tally__checkpoint_call call = {CALL, loading->directory, &loading->config};

    TRY(tally__checkpoint_compare(lane, &call));
    return tally__container_find(lane, loading->directory, loading->config.name, &loading->found);
}

static int check_call(struct loading *loading, const tally_checkpoint_config *config,
                      const tally_checkpoint_info *info)
{
    TRY(tally__checkpoints_wait(tally__training_of(loading->ddp)->checkpoints));
    if (!loading->directory || loading->directory[0] == '\0') {
        return tally__fail(TALLY_ARG, CALL ": directory is %s",
                           loading->directory ? "empty" : "NULL");
    }
    if (info) {
        TRY(tally__answer_check(TALLY__INFO, CALL, info));
    }
    return tally__checkpoint_config(CALL, config, &loading->config);
}

static int load(struct loading *loading, const tally_checkpoint_config *config,
                tally_checkpoint_info *info)
{
    tally_checkpoint_info filled;

    TRY(tally__ddp_agree(loading->ddp, check_call(loading, config, info), find_job, loading));
    if (loading->found.name[0]) {
        tally__objects_find(loading->ddp, false, &loading->objects);
        loading->n_objects = loading->config.params_only ? 0 : loading->objects.n;
        TRY(take_over(loading, tally__container_explain(loading->ddp->group, loading->folder.text,
                                                        read_all(loading))));
    }
    tally__info_fill(&loading->found, loading->has_manifest ? &loading->manifest : NULL, &filled);
    if (info) {
        tally__sized_write(TALLY__INFO, &filled, info);
    }
    if (loading->rank == 0 && loading->has_manifest) {
        tally__log(TALLY_LOG_INFO, "checkpoint: loaded '%.300s/%s' of step %llu",
                   loading->directory, filled.name, filled.step);
    }
    return TALLY_OK;
}

int tally_checkpoint_load(tally_ddp *ddp, const char *directory,
                          const tally_checkpoint_config *config, tally_checkpoint_info *info)
{
    struct loading *loading;
    uint64_t begin_ns = tally__now_ns();
    int rc;

    TRY(tally__check_between_steps(ddp, CALL));
    tally__show_state(ddp, TALLY__STATE_CHECKPOINT, CALL);
    loading = tally__alloc(sizeof *loading, "a checkpoint");
    if (!loading) {
        return tally__stats_note(ddp, tally__ddp_agree(ddp, TALLY_NOMEM, NULL, NULL));
    }
    loading->ddp = ddp;
    loading->directory = directory;
    loading->rank = tally_group_rank(ddp->group);
    rc = load(loading, config, info);
    clean_up(loading);
    tally__free(loading);
    tally__ddp_trace_checkpoint(ddp, begin_ns);
    return tally__stats_note(ddp, rc);
}
