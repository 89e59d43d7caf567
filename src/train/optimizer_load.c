/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading what the ranks of a run saved of an optimizer, or one blob for all. Every rank puts the
 * state it needs together from all blobs, in memory of its own; only when all ranks are content
 * does it take effect. One thread of the application enters at a time, between steps.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/group_config.h"
#include "ddp/stats.h"
#include "train/optimizer.h"
#include "train/optimizer_blob.h"

/* One parameter, as a blob says it; the arrays lie in the blob. */
struct saved_param {
    struct tally__blob_identity is;
    int64_t group;
    uint64_t step;
    uint64_t first;
    uint64_t n;
    uint64_t n_states;
    const float *state[TALLY_MAX_STATES];
};

struct saved {
    struct tally__blob blob;
    uint64_t n_skipped;
    double scale; /* of the loss; 0: none */
    uint64_t n_good;
    struct saved_param *params;
};

struct loading {
    tally_optimizer *optimizer;
    size_t n;
    struct saved *saved;
    struct saved_param *params;   /* of all blobs */
    struct tally__moments *fresh; /* the new ones, per parameter */
    double *lr;                   /* per group */
    const void **averager;        /* what an averager saved, per blob */
    size_t *averager_bytes;
    uint64_t digest; /* of all blobs */
};

/* ---- looking at blobs ---- */

/* Of a rule's name: up to its options. */
static size_t kind_bytes(const char *name, size_t n)
{
    const char *end = memchr(name, ':', n);

    return end ? (size_t)(end - name) : n;
}

static int look_at_group(struct loading *loading, struct tally__blob_reader *reader, size_t r,
                         size_t g)
{
    const char *ours = loading->optimizer->rules[g]->name;
    size_t bytes;
    const char *name = tally__blob_take_array(reader, &bytes);
    double lr;

    tally__blob_take(reader, &lr, sizeof lr);
    if (reader->bad || !tally__is_lr(lr)) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    if (kind_bytes(name, bytes) != kind_bytes(ours, strlen(ours)) ||
        memcmp(name, ours, kind_bytes(name, bytes)) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu has group %zu with '%s', but it is '%.200s'", r, g,
                           tally__blob_show(name, bytes).text, ours);
    }
    loading->lr[g] = r == 0 ? lr : loading->lr[g];
    return TALLY_OK;
}

static int look_at_groups(struct loading *loading, struct saved *saved, size_t r)
{
    uint64_t n_groups;

    tally__blob_take(&saved->blob.reader, &saved->n_skipped, sizeof saved->n_skipped);
    tally__blob_take(&saved->blob.reader, &saved->scale, sizeof saved->scale);
    tally__blob_take(&saved->blob.reader, &saved->n_good, sizeof saved->n_good);
    tally__blob_take(&saved->blob.reader, &n_groups, sizeof n_groups);
    if (saved->blob.reader.bad || (saved->scale != 0 && !tally__is_loss_scale(saved->scale))) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    if (n_groups != loading->optimizer->n_groups) {
        return tally__fail(TALLY_ARG, "blob %zu has %llu groups, this optimizer has %zu", r,
                           (unsigned long long)n_groups, loading->optimizer->n_groups);
    }
    for (size_t g = 0; g < loading->optimizer->n_groups; g++) {
        TRY(look_at_group(loading, &saved->blob.reader, r, g));
    }
    return TALLY_OK;
}

/* Takes one parameter; what it says of its state fits its elements. */
static void take_param(struct tally__blob_reader *reader, struct saved_param *param)
{
    uint64_t numbers[5];

    tally__blob_take_identity(reader, &param->is);
    tally__blob_take(reader, numbers, sizeof numbers);
    param->group = (int64_t)numbers[0];
    param->step = numbers[1];
    param->first = numbers[2];
    param->n = numbers[3];
    param->n_states = numbers[4];
    if (param->n > param->is.n || param->first > param->is.n - param->n ||
        param->n_states > TALLY_MAX_STATES) {
        reader->bad = 1;
    }
    for (uint64_t k = 0; k < param->n_states && !reader->bad; k++) {
        size_t bytes;

        param->state[k] = tally__blob_take_array(reader, &bytes);
        if (bytes % sizeof *param->state[k] != 0 || bytes / sizeof *param->state[k] != param->n) {
            reader->bad = 1;
        }
    }
}

static int check_param(const tally_optimizer *optimizer, size_t i, const struct saved_param *saved,
                       size_t r)
{
    const struct tally__param *param = &optimizer->ddp->params[i];
    const struct tally__updated *updated = &optimizer->updated[i];

    TRY(tally__blob_check_param(param, &saved->is, r));
    if (saved->group != updated->group) {
        return tally__fail(TALLY_ARG, "blob %zu has parameter '%.200s' in group %lld, not in %d", r,
                           param->name, (long long)saved->group, updated->group);
    }
    if (saved->n_states != (uint64_t)updated->moments.n_states) {
        return tally__fail(TALLY_ARG,
                           "blob %zu has parameter '%.200s' with %llu arrays of state, its "
                           "optimizer has %d",
                           r, param->name, (unsigned long long)saved->n_states,
                           updated->moments.n_states);
    }
    return TALLY_OK;
}

static int check_averager(const struct loading *loading, size_t r)
{
    bool has_state = loading->averager_bytes[r] > 0;

    return has_state == (loading->optimizer->config.averager != NULL)
               ? TALLY_OK
               : tally__fail(TALLY_ARG,
                             "blob %zu was saved %s an averager, but this optimizer has %s", r,
                             has_state ? "with" : "without", has_state ? "none" : "one");
}

static int look_at(struct loading *loading, size_t r, const void *bytes, size_t n_bytes)
{
    static const struct tally__blob_kind kind = {TALLY__OPTIMIZER_MAGIC, TALLY__OPTIMIZER_VERSION,
                                                 "tally_optimizer_save"};
    const tally_ddp *ddp = loading->optimizer->ddp;
    struct saved *saved = &loading->saved[r];
    struct tally__blob_reader *reader = &saved->blob.reader;

    TRY(tally__blob_open(&kind, loading->n, r, bytes, n_bytes, &saved->blob));
    if (saved->blob.head.n_steps != loading->saved[0].blob.head.n_steps) {
        return tally__fail(TALLY_ARG, "blob %zu was saved after %llu updates, blob 0 after %llu", r,
                           (unsigned long long)saved->blob.head.n_steps,
                           (unsigned long long)loading->saved[0].blob.head.n_steps);
    }
    if (saved->blob.head.n_params != ddp->n_params) {
        return tally__fail(TALLY_ARG, "blob %zu has %u parameters, this model has %zu", r,
                           saved->blob.head.n_params, ddp->n_params);
    }
    TRY(look_at_groups(loading, saved, r));
    saved->params = loading->params + r * ddp->n_params;
    for (size_t i = 0; i < ddp->n_params && !reader->bad; i++) {
        take_param(reader, &saved->params[i]);
    }
    loading->averager[r] = tally__blob_take_array(reader, &loading->averager_bytes[r]);
    if (reader->bad || reader->left > 0) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    TRY(check_averager(loading, r));
    for (size_t i = 0; i < ddp->n_params; i++) {
        TRY(check_param(loading->optimizer, i, &saved->params[i], r));
    }
    loading->digest =
        tally__checksum(&saved->blob.head.checksum, sizeof(uint64_t)) ^ loading->digest * 31;
    return TALLY_OK;
}

/* ---- new moments ---- */

/* The blob with the state of parameter i's element at: this rank's own first, if there are as many
 * ranks as then; n if there is none. */
static size_t find_blob(const struct loading *loading, size_t i, size_t at)
{
    const tally_group *group = loading->optimizer->ddp->group;
    size_t own =
        loading->n == (size_t)tally_group_size(group) ? (size_t)tally_group_rank(group) : 0;

    for (size_t k = 0; k < loading->n; k++) {
        size_t r = (own + k) % loading->n;
        const struct saved_param *param = &loading->saved[r].params[i];

        if (param->first <= at && at - param->first < param->n) {
            return r;
        }
    }
    return loading->n;
}

/* Puts the run of elements this rank updates together. */
static int gather(const struct loading *loading, size_t i, struct tally__moments *fresh)
{
    size_t end = fresh->first + fresh->n;

    for (size_t at = fresh->first; at < end;) {
        size_t r = find_blob(loading, i, at);
        const struct saved_param *param;
        size_t n;

        if (r == loading->n) {
            return tally__fail(TALLY_ARG, "no blob has the state of element %zu of '%.200s'", at,
                               loading->optimizer->ddp->params[i].name);
        }
        param = &loading->saved[r].params[i];
        n = (size_t)(param->first + param->n) - at;
        n = n < end - at ? n : end - at;
        for (int k = 0; k < fresh->n_states; k++) {
            memcpy(fresh->state[k] + (at - fresh->first), param->state[k] + (at - param->first),
                   n * sizeof *fresh->state[k]);
        }
        fresh->step = param->step;
        at += n;
    }
    return TALLY_OK;
}

static int make_moments(struct loading *loading)
{
    tally_optimizer *optimizer = loading->optimizer;

    for (size_t i = 0; i < optimizer->n_params; i++) {
        const struct tally__moments *now = &optimizer->updated[i].moments;
        struct tally__moments *fresh = &loading->fresh[i];

        if (optimizer->updated[i].group >= 0) {
            TRY(tally__moments_cover(fresh, now->n_states, now->first, now->n));
            fresh->step = loading->saved[0].params[i].step;
            TRY(gather(loading, i, fresh));
        }
    }
    return TALLY_OK;
}

/* All that can be done without changing anything. */
static int prepare(struct loading *loading, const void *const *blobs, const size_t *bytes)
{
    size_t n_params = loading->optimizer->n_params;

    if (!blobs || !bytes || loading->n == 0) {
        return tally__fail(TALLY_ARG, "tally_optimizer_load: there are no blobs");
    }
    if (loading->n > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG,
                           "tally_optimizer_load: %zu blobs, but no run has more than %d ranks",
                           loading->n, TALLY__MAX_WORLD);
    }
    loading->saved = tally__alloc_array(loading->n, sizeof *loading->saved, "saved states");
    loading->params =
        tally__alloc_array(loading->n, n_params * sizeof *loading->params, "saved states");
    loading->fresh = tally__alloc_array(n_params, sizeof *loading->fresh, "saved states");
    loading->lr =
        tally__alloc_array(loading->optimizer->n_groups, sizeof *loading->lr, "saved states");
    loading->averager = tally__alloc_array(loading->n, sizeof *loading->averager, "saved states");
    loading->averager_bytes =
        tally__alloc_array(loading->n, sizeof *loading->averager_bytes, "saved states");
    if (!loading->saved || !loading->params || !loading->fresh || !loading->lr ||
        !loading->averager || !loading->averager_bytes) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < loading->n; r++) {
        TRY(look_at(loading, r, blobs[r], bytes[r]));
    }
    return make_moments(loading);
}

/* ---- taking effect ---- */

/* Nothing can fail any more. The old moments take the place of the new ones. */
static void take_effect(struct loading *loading)
{
    tally_optimizer *optimizer = loading->optimizer;

    memcpy(optimizer->lr, loading->lr, optimizer->n_groups * sizeof *optimizer->lr);
    (void)pthread_mutex_lock(&optimizer->ddp->mutex);
    for (size_t i = 0; i < optimizer->n_params; i++) {
        struct tally__moments old = optimizer->updated[i].moments;

        optimizer->updated[i].moments = loading->fresh[i];
        loading->fresh[i] = old;
    }
    optimizer->n_updates = loading->saved[0].blob.head.n_steps;
    optimizer->n_skipped = loading->saved[0].n_skipped;
    if (optimizer->loss.scale > 0 && loading->saved[0].scale > 0) {
        optimizer->loss.scale = loading->saved[0].scale;
        optimizer->loss.n_good = loading->saved[0].n_good;
    }
    (void)pthread_mutex_unlock(&optimizer->ddp->mutex);
    optimizer->due = false;
}

static void clean_up(struct loading *loading)
{
    for (size_t r = 0; loading->saved && r < loading->n; r++) {
        tally__blob_close(&loading->saved[r].blob);
    }
    for (size_t i = 0; loading->fresh && i < loading->optimizer->n_params; i++) {
        tally__moments_clear(&loading->fresh[i]);
    }
    tally__free(loading->saved);
    tally__free(loading->params);
    tally__free(loading->fresh);
    tally__free(loading->lr);
    tally__free((void *)loading->averager);
    tally__free(loading->averager_bytes);
}

int tally_optimizer_load(tally_optimizer *optimizer, const void *const *blobs, const size_t *bytes,
                         size_t n)
{
    struct loading loading = {.optimizer = optimizer, .n = n};
    int rc;

    TRY(tally__optimizer_check(optimizer, "tally_optimizer_load"));
    rc = prepare(&loading, blobs, bytes);
    rc = tally__load_agree(optimizer->ddp, "tally_optimizer_load", rc, loading.digest);
    if (rc == TALLY_OK && optimizer->config.averager) {
        rc = tally_averager_load(optimizer->config.averager, loading.averager,
                                 loading.averager_bytes, n);
    }
    if (rc == TALLY_OK && loading.fresh && loading.lr) {
        take_effect(&loading);
    }
    clean_up(&loading);
    return tally__stats_note(optimizer->ddp, rc);
}
