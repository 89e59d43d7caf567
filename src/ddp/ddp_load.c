/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading what all ranks of a run saved. Every rank looks at all blobs and makes its new residuals
 * before anything changes anywhere; only when all ranks are content does it take effect. One thread
 * of the application enters at a time, between steps.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/blob.h"
#include "ddp/ddp.h"
#include "num/num.h"

/* One blob, looked through; everything points into it. */
struct saved {
    struct tally__blob_head head;
    struct tally__blob_param *params;
    tally_hook_blob state;
};

/* All of them, and what this rank makes of them. */
struct loading {
    tally_ddp *ddp;
    size_t n;
    struct saved *saved;
    struct tally__blob_param *params; /* of all blobs */
    tally_hook_blob *states;          /* of all blobs */
    struct tally__keeper *keeper;     /* the new residuals */
};

/* ---- looking at blobs ---- */

static int check_head(const struct tally__blob_head *head, size_t r, size_t n, size_t bytes)
{
    if (head->magic != TALLY__BLOB_MAGIC) {
        return tally__fail(TALLY_ARG,
                           "blob %zu is not what tally_ddp_save wrote on a machine like "
                           "this one",
                           r);
    }
    if (head->version != TALLY__BLOB_VERSION) {
        return tally__fail(TALLY_ARG, "blob %zu has version %u, this tally reads version %d", r,
                           head->version, TALLY__BLOB_VERSION);
    }
    if (head->bytes != bytes) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes, but was saved with %llu", r, bytes,
                           (unsigned long long)head->bytes);
    }
    if (head->world != n || head->rank != r) {
        return tally__fail(TALLY_ARG,
                           "blob %zu of %zu is that of rank %u of %u: all ranks' are needed, in "
                           "order",
                           r, n, head->rank, head->world);
    }
    return TALLY_OK;
}

static int check_names(const tally_ddp *ddp, const struct saved *saved, size_t r)
{
    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__blob_param *param = &saved->params[i];
        const char *name = ddp->params[i].name;

        if (param->name_bytes != strlen(name) ||
            memcmp(param->name, name, param->name_bytes) != 0 || param->n != ddp->params[i].n) {
            return tally__fail(
                TALLY_ARG,
                "blob %zu has parameter '%.*s' of %llu elements where this model has "
                "'%s' of %zu",
                r, (int)(param->name_bytes < 60 ? param->name_bytes : 60), param->name,
                (unsigned long long)param->n, name, ddp->params[i].n);
        }
    }
    return TALLY_OK;
}

static int look_at(const tally_ddp *ddp, struct saved *saved, size_t r,
                   struct tally__blob_reader *reader)
{
    size_t name_bytes;
    const char *name = tally__blob_take_array(reader, &name_bytes);
    const char *ours = ddp->hook->table.name;

    if (saved->head.n_params != ddp->n_params) {
        return tally__fail(TALLY_ARG, "blob %zu has %u parameters, this model has %zu", r,
                           saved->head.n_params, ddp->n_params);
    }
    for (size_t i = 0; i < ddp->n_params && !reader->bad; i++) {
        tally__blob_take_param(reader, &saved->params[i]);
    }
    saved->state = (tally_hook_blob){.size = sizeof saved->state};
    saved->state.data = tally__blob_take_array(reader, &saved->state.bytes);
    if (reader->bad || reader->left > 0) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    if (name_bytes != strlen(ours) || memcmp(name, ours, name_bytes) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu is of hook '%.*s', but the hook is '%s'", r,
                           (int)(name_bytes < 200 ? name_bytes : 200), name, ours);
    }
    return check_names(ddp, saved, r);
}

static int look_at_all(struct loading *loading, const void *const *blobs, const size_t *bytes)
{
    for (size_t r = 0; r < loading->n; r++) {
        struct saved *saved = &loading->saved[r];
        struct tally__blob_reader reader = {.from = blobs[r], .left = bytes[r]};

        saved->params = loading->params + r * loading->ddp->n_params;
        tally__blob_take(&reader, &saved->head, sizeof saved->head);
        if (!blobs[r] || reader.bad) {
            return tally__fail(TALLY_ARG, "blob %zu has %zu bytes: less than any that was saved", r,
                               bytes[r]);
        }
        TRY(check_head(&saved->head, r, loading->n, bytes[r]));
        if (tally__blob_checksum(blobs[r], bytes[r]) != saved->head.checksum) {
            return tally__fail(TALLY_ARG, "blob %zu is damaged: its checksum is wrong", r);
        }
        TRY(look_at(loading->ddp, saved, r, &reader));
        loading->states[r] = saved->state;
    }
    return TALLY_OK;
}

/* ---- new residuals ---- */

/* As many ranks as then: this rank goes on with its own. */
static int take_own(const struct tally__blob_param *own, struct tally__residual *residual)
{
    if (!own->sent) {
        return TALLY_OK;
    }
    TRY(tally__residual_send(residual, (size_t)own->n));
    TRY(tally__residual_own(residual, (size_t)own->owned_first, own->owned_n, 1));
    memcpy(residual->sent, own->sent, residual->n * sizeof *own->sent);
    if (own->owned_n > 0) {
        memcpy(residual->owned, own->owned, own->owned_n * sizeof *own->owned);
    }
    return TALLY_OK;
}

/* More or fewer ranks: every rank takes the mean of what was sent, and all that was owned. */
static int take_mean(const struct loading *loading, size_t i, struct tally__residual *residual)
{
    size_t n = loading->ddp->params[i].n;

    for (size_t r = 0; r < loading->n; r++) {
        const struct tally__blob_param *param = &loading->saved[r].params[i];

        if (param->sent) {
            TRY(tally__residual_send(residual, n));
            tally__axpy_f32(n, param->sent, 1, residual->sent);
        }
    }
    if (residual->sent) {
        const float *in = residual->sent;

        tally__sum_f32(n, 1, &in, (float)loading->n, 1, &residual->sent);
    }
    for (size_t r = 0; r < loading->n; r++) {
        const struct tally__blob_param *param = &loading->saved[r].params[i];

        if (param->owned_n > 0) {
            tally__axpy_f32(param->owned_n, param->owned, 1, residual->sent + param->owned_first);
        }
    }
    return TALLY_OK;
}

static int make_residuals(struct loading *loading)
{
    const tally_ddp *ddp = loading->ddp;
    int rank = tally_group_rank(ddp->group);
    bool same_world = loading->n == (size_t)tally_group_size(ddp->group);

    TRY(tally__keeper_make(ddp->n_params, &loading->keeper));
    for (size_t i = 0; i < ddp->n_params; i++) {
        struct tally__residual *residual = &loading->keeper->params[i];

        TRY(same_world ? take_own(&loading->saved[rank].params[i], residual)
                       : take_mean(loading, i, residual));
    }
    return TALLY_OK;
}

/* All that can be done without changing anything. */
static int prepare(struct loading *loading, const void *const *blobs, const size_t *bytes)
{
    if (!blobs || !bytes || loading->n == 0) {
        return tally__fail(TALLY_ARG, "tally_ddp_load: there are no blobs");
    }
    loading->saved = tally__alloc_array(loading->n, sizeof *loading->saved, "saved states");
    loading->states = tally__alloc_array(loading->n, sizeof *loading->states, "saved states");
    loading->params = tally__alloc_array(
        loading->n, loading->ddp->n_params * sizeof *loading->params, "saved states");
    if (!loading->saved || !loading->states || !loading->params) {
        return TALLY_NOMEM;
    }
    TRY(look_at_all(loading, blobs, bytes));
    return make_residuals(loading);
}

/* ---- taking effect ---- */

/* The hook takes its state on all ranks, or is left as it was. */
static int load_hook(const struct loading *loading)
{
    const tally_hook *hook = loading->ddp->hook;
    tally_hook_blob before = {.size = sizeof before};
    struct tally__outcome outcome;
    int loaded;
    int rc;

    if (!hook->table.load) {
        return TALLY_OK;
    }
    loaded = tally__hook_state_take(hook, &before);
    if (loaded == TALLY_OK) {
        loaded = hook->table.load(hook->state, loading->states, loading->n);
    }
    outcome = tally__outcome_of(loaded);
    rc = tally__ddp_run(loading->ddp, tally__outcome_job, &outcome);
    if (rc != TALLY_OK && loaded == TALLY_OK) {
        (void)hook->table.load(hook->state, &before, 1);
    }
    tally__hook_state_free(&before);
    return rc;
}

static void clean_up(struct loading *loading)
{
    tally__keeper_free(loading->keeper);
    tally__free(loading->saved);
    tally__free(loading->states);
    tally__free(loading->params);
}

int tally_ddp_load(tally_ddp *ddp, const void *const *blobs, const size_t *bytes, size_t n)
{
    struct loading loading = {.ddp = ddp, .n = n};
    struct tally__outcome outcome;
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_load"));
    outcome = tally__outcome_of(prepare(&loading, blobs, bytes));
    rc = tally__ddp_run(ddp, tally__outcome_job, &outcome);
    if (rc == TALLY_OK) {
        rc = load_hook(&loading);
    }
    if (rc == TALLY_OK) {
        struct tally__residual *old = ddp->keeper->params;

        ddp->keeper->params = loading.keeper->params;
        loading.keeper->params = old;
    }
    clean_up(&loading);
    return rc;
}
