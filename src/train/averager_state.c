/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving an averager, a blob per rank or one for all, and loading what all ranks of a run saved. A
 * blob (see blob.h for the head and the way things follow one another):
 *
 *   head       as that of a ddp, with a magic number of its own; steps are those counted
 *   anchor     whether there is one
 *   names      of the hook, and of the outer optimizer
 *   parameter  name, shape, dtype; on rank 0, for all have the same: the anchor, and the outer
 *              optimizer's steps and state
 *   ddp        what the averager's own ddp saves: residuals and the hook's state. Empty in a blob
 *              for all, which is that of a world of one
 *
 * One thread of the application enters at a time, between steps.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/group_config.h"
#include "ddp/stats.h"
#include "state/blob.h"
#include "train/averager.h"

#define MAGIC UINT64_C(0x317641796c6c6154)
#define VERSION 1

static const char *outer_name(const tally_averager *averager)
{
    return averager->outer ? averager->outer->name : "";
}

/* ---- saving ---- */

/* Anchor and moments lie side by side: all elements of each, or none. */
static void put_param(const tally_averager *averager, size_t k, bool is_first,
                      struct tally__blob_writer *writer)
{
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->of->params[averaged->index];
    const struct tally__moments *moments = &averaged->moments;
    bool has_it = is_first && averager->has_anchor && averaged->anchor;
    uint64_t step = moments->step;

    tally__blob_put_identity(writer, param);
    tally__blob_put_array(writer, averaged->anchor, has_it ? param->bytes : 0);
    tally__blob_put(writer, &step, sizeof step);
    for (int s = 0; s < moments->n_states; s++) {
        tally__blob_put_array(writer, moments->state[s], has_it ? param->bytes : 0);
    }
}

static void put_all(const tally_averager *averager, const tally_hook_blob *of_ddp,
                    struct tally__blob_writer *writer)
{
    bool is_whole = !of_ddp->data;
    const struct tally__blob_head head = {
        .magic = MAGIC,
        .version = VERSION,
        .rank = is_whole ? 0 : (uint32_t)tally_group_rank(averager->of->group),
        .world = is_whole ? 1 : (uint32_t)tally_group_size(averager->of->group),
        .n_params = (uint32_t)averager->n_params,
        .n_steps = averager->n_steps};
    const uint64_t has_anchor = averager->has_anchor;

    tally__blob_put(writer, &head, sizeof head);
    tally__blob_put(writer, &has_anchor, sizeof has_anchor);
    tally__blob_put_array(writer, averager->hook->table.name, strlen(averager->hook->table.name));
    tally__blob_put_array(writer, outer_name(averager), strlen(outer_name(averager)));
    for (size_t k = 0; k < averager->n_params; k++) {
        put_param(averager, k, head.rank == 0, writer);
    }
    tally__blob_put_array(writer, of_ddp->data, of_ddp->bytes);
}

/* What the averager's own ddp saves, in memory of its own; nothing for a blob for all. */
static int take_ddp(const tally_averager *averager, bool is_whole, tally_hook_blob *of_ddp)
{
    size_t bytes = 0;
    void *data;
    int rc;

    *of_ddp = (tally_hook_blob){.size = sizeof *of_ddp};
    if (is_whole) {
        return averager->is_lossy
                   ? tally__fail(TALLY_UNSUPPORTED,
                                 "averager: its hook '%s' leaves something out, on each rank "
                                 "something else: save every rank's state",
                                 averager->hook->table.name)
                   : TALLY_OK;
    }
    TRY(tally_ddp_save(averager->ddp, NULL, &bytes));
    data = tally__alloc(bytes, "an averager's state");
    if (!data) {
        return TALLY_NOMEM;
    }
    rc = tally_ddp_save(averager->ddp, data, &bytes);
    if (rc != TALLY_OK) {
        tally__free(data);
        return rc;
    }
    of_ddp->data = data;
    of_ddp->bytes = bytes;
    return TALLY_OK;
}

static int save(const tally_averager *averager, const tally_hook_blob *of_ddp, void *blob,
                size_t *bytes)
{
    struct tally__blob_writer counter = {0};
    struct tally__blob_writer writer = {.to = blob};

    put_all(averager, of_ddp, &counter);
    if (blob && *bytes < counter.used) {
        return tally__fail(TALLY_ARG, "tally_averager_save: room for %zu bytes, needed are %zu",
                           *bytes, counter.used);
    }
    if (blob) {
        put_all(averager, of_ddp, &writer);
        tally__blob_seal(blob, writer.used);
    }
    *bytes = counter.used;
    return TALLY_OK;
}

int tally_averager_save(tally_averager *averager, void *blob, size_t *bytes)
{
    tally_hook_blob of_ddp;
    int rc;

    if (!averager || !bytes) {
        return tally__fail(TALLY_ARG, "tally_averager_save: %s is NULL",
                           averager ? "bytes" : "averager");
    }
    TRY(tally__check_between_steps(averager->of, "tally_averager_save"));
    TRY(take_ddp(averager, false, &of_ddp));
    rc = save(averager, &of_ddp, blob, bytes);
    tally__free((void *)of_ddp.data);
    return rc;
}

int tally__averager_state_take(const tally_averager *averager, bool is_whole,
                               tally_hook_blob *state)
{
    tally_hook_blob of_ddp;
    size_t bytes = 0;
    void *data = NULL;
    int rc;

    TRY(take_ddp(averager, is_whole, &of_ddp));
    rc = save(averager, &of_ddp, NULL, &bytes);
    if (rc == TALLY_OK) {
        data = tally__alloc(bytes, "an averager's state");
        rc = data ? save(averager, &of_ddp, data, &bytes) : TALLY_NOMEM;
    }
    tally__free((void *)of_ddp.data);
    *state = (tally_hook_blob){.size = sizeof *state, .data = data, .bytes = bytes};
    return rc;
}

/* ---- looking at blobs ---- */

/* One parameter, as the first blob says it; the arrays lie in the blob. NULL: nothing. */
struct saved_param {
    struct tally__blob_identity is;
    const float *anchor;
    uint64_t step;
    const float *state[TALLY_MAX_STATES];
};

struct loading {
    tally_averager *averager;
    size_t n;
    struct tally__blob *blobs;
    uint64_t has_anchor; /* as the first says */
    struct saved_param *params;
    const void **of_ddp; /* what its ddp saved, per blob */
    size_t *of_ddp_bytes;
    uint64_t digest;
    bool is_ready; /* all of it was looked at */
};

static int check_name(const char *what, const char *ours, struct tally__blob_reader *reader,
                      size_t r)
{
    size_t bytes;
    const char *name = tally__blob_take_array(reader, &bytes);

    if (reader->bad) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    if (bytes != strlen(ours) || memcmp(name, ours, bytes) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu is of an averager with %s '%s', not '%.200s'", r,
                           what, tally__blob_show(name, bytes).text, ours);
    }
    return TALLY_OK;
}

/* An array of all elements of a parameter, or of none: NULL then. */
static const float *take_elements(struct tally__blob_reader *reader, uint64_t n, bool has_it)
{
    size_t bytes;
    const float *elements = tally__blob_take_array(reader, &bytes);

    if (bytes % sizeof *elements != 0 || bytes / sizeof *elements != (has_it ? n : 0)) {
        reader->bad = 1;
    }
    return has_it ? elements : NULL;
}

static int look_at_param(const struct loading *loading, struct tally__blob_reader *reader, size_t r,
                         size_t k)
{
    const tally_averager *averager = loading->averager;
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->of->params[averaged->index];
    bool has_it = r == 0 && loading->has_anchor && averaged->anchor;
    struct saved_param saved = {0};

    tally__blob_take_identity(reader, &saved.is);
    if (reader->bad) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    TRY(tally__blob_check_param(param, &saved.is, r));
    saved.anchor = take_elements(reader, param->n, has_it);
    tally__blob_take(reader, &saved.step, sizeof saved.step);
    for (int s = 0; s < averaged->moments.n_states; s++) {
        saved.state[s] = take_elements(reader, param->n, has_it);
    }
    if (r == 0) {
        loading->params[k] = saved;
    }
    return TALLY_OK;
}

static int check_head(const struct loading *loading, size_t r)
{
    const struct tally__blob_head *head = &loading->blobs[r].head;

    if (head->n_steps != loading->blobs[0].head.n_steps) {
        return tally__fail(TALLY_ARG, "blob %zu was saved after %llu steps, blob 0 after %llu", r,
                           (unsigned long long)head->n_steps,
                           (unsigned long long)loading->blobs[0].head.n_steps);
    }
    if (head->n_params != loading->averager->n_params) {
        return tally__fail(TALLY_ARG, "blob %zu has %u parameters, this averager has %zu", r,
                           head->n_params, loading->averager->n_params);
    }
    return TALLY_OK;
}

static int look_at(struct loading *loading, size_t r, const void *bytes, size_t n_bytes)
{
    static const struct tally__blob_kind kind = {MAGIC, VERSION, "tally_averager_save"};
    const tally_averager *averager = loading->averager;
    struct tally__blob_reader *reader = &loading->blobs[r].reader;
    uint64_t has_anchor;

    TRY(tally__blob_open(&kind, loading->n, r, bytes, n_bytes, &loading->blobs[r]));
    TRY(check_head(loading, r));
    tally__blob_take(reader, &has_anchor, sizeof has_anchor);
    loading->has_anchor = r == 0 ? has_anchor : loading->has_anchor;
    TRY(check_name("hook", averager->hook->table.name, reader, r));
    TRY(check_name("outer optimizer", outer_name(averager), reader, r));
    for (size_t k = 0; k < averager->n_params; k++) {
        TRY(look_at_param(loading, reader, r, k));
    }
    loading->of_ddp[r] = tally__blob_take_array(reader, &loading->of_ddp_bytes[r]);
    if (reader->bad || reader->left > 0 || has_anchor != loading->has_anchor ||
        (loading->of_ddp_bytes[r] == 0 && loading->n > 1)) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    loading->digest =
        tally__checksum(&loading->blobs[r].head.checksum, sizeof(uint64_t)) ^ loading->digest * 31;
    return TALLY_OK;
}

/* All that can be done without changing anything. */
static int prepare(struct loading *loading, const void *const *blobs, const size_t *bytes)
{
    size_t n = loading->n;

    if (!blobs || !bytes || n == 0) {
        return tally__fail(TALLY_ARG, "tally_averager_load: there are no blobs");
    }
    if (n > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG,
                           "tally_averager_load: %zu blobs, but no run has more than %d ranks", n,
                           TALLY__MAX_WORLD);
    }
    loading->blobs = tally__alloc_array(n, sizeof *loading->blobs, "saved states");
    loading->of_ddp = tally__alloc_array(n, sizeof *loading->of_ddp, "saved states");
    loading->of_ddp_bytes = tally__alloc_array(n, sizeof *loading->of_ddp_bytes, "saved states");
    loading->params =
        tally__alloc_array(loading->averager->n_params, sizeof *loading->params, "saved states");
    if (!loading->blobs || !loading->of_ddp || !loading->of_ddp_bytes || !loading->params) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < n; r++) {
        TRY(look_at(loading, r, blobs[r], bytes[r]));
    }
    loading->is_ready = true;
    return TALLY_OK;
}

/* ---- taking effect ---- */

static void take_param(struct tally__averaged *averaged, const struct saved_param *saved)
{
    size_t bytes = (size_t)saved->is.n * sizeof *averaged->anchor;

    averaged->moments.step = saved->step;
    for (int s = 0; s < averaged->moments.n_states; s++) {
        if (saved->state[s]) {
            memcpy(averaged->moments.state[s], saved->state[s], bytes);
        } else {
            memset(averaged->moments.state[s], 0, bytes);
        }
    }
    if (saved->anchor) {
        memcpy(averaged->anchor, saved->anchor, bytes);
    }
}

/* Nothing can fail any more. */
static void take_effect(const struct loading *loading)
{
    tally_averager *averager = loading->averager;

    for (size_t k = 0; k < averager->n_params; k++) {
        take_param(&averager->params[k], &loading->params[k]);
    }
    averager->n_steps = loading->blobs[0].head.n_steps;
    averager->has_anchor = loading->has_anchor != 0;
}

static void clean_up(struct loading *loading)
{
    for (size_t r = 0; loading->blobs && r < loading->n; r++) {
        tally__blob_close(&loading->blobs[r]);
    }
    tally__free(loading->blobs);
    tally__free((void *)loading->of_ddp);
    tally__free(loading->of_ddp_bytes);
    tally__free(loading->params);
}

/* All ranks are content with what they looked at. Collective. */
static int adopt(const struct loading *loading)
{
    if (loading->of_ddp_bytes[0] > 0) {
        TRY(tally_ddp_load(loading->averager->ddp, loading->of_ddp, loading->of_ddp_bytes,
                           loading->n));
    }
    take_effect(loading);
    return TALLY_OK;
}

int tally_averager_load(tally_averager *averager, const void *const *blobs, const size_t *bytes,
                        size_t n)
{
    struct loading loading = {.averager = averager, .n = n};
    int rc;

    if (!averager) {
        return tally__fail(TALLY_ARG, "tally_averager_load: averager is NULL");
    }
    TRY(tally__check_between_steps(averager->of, "tally_averager_load"));
    rc = prepare(&loading, blobs, bytes);
    rc = tally__load_agree(averager->ddp, "tally_averager_load", rc, loading.digest);
    if (rc == TALLY_OK && loading.is_ready) {
        rc = adopt(&loading);
    }
    clean_up(&loading);
    return tally__stats_note(averager->of, rc);
}
