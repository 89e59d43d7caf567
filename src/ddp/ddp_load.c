/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading what all ranks of a run saved. Every rank looks at all blobs and makes its new residuals
 * before anything changes anywhere; only when all ranks are content does it take effect. One thread
 * of the application enters at a time, between steps.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/open.h"
#include "ddp/blob.h"
#include "ddp/ddp.h"
#include "ddp/step_end.h"
#include "num/num.h"

/* One blob, looked through; everything points into it. */
struct saved {
    struct tally__blob blob;
    const int *order; /* n_order of them; NULL: none */
    struct tally__blob_param *params;
};

/* All of them, and what this rank makes of them. */
struct loading {
    tally_ddp *ddp;
    size_t n;
    struct saved *saved;
    struct tally__blob_param *params; /* of all blobs */
    tally_hook_blob *states;          /* of all blobs */
    struct tally__keeper *keeper;     /* the new residuals */
    uint64_t digest;                  /* of all blobs */
};

/* ---- looking at blobs ---- */

static int open_blob(struct loading *loading, size_t r, const void *blob, size_t bytes)
{
    static const struct tally__blob_kind kind = {TALLY__BLOB_MAGIC, TALLY__BLOB_VERSION,
                                                 "tally_ddp_save"};
    struct tally__blob *saved = &loading->saved[r].blob;

    TRY(tally__blob_open(&kind, loading->n, r, blob, bytes, saved));
    if (saved->head.n_steps != loading->saved[0].blob.head.n_steps) {
        return tally__fail(TALLY_ARG, "blob %zu was saved after %llu steps, blob 0 after %llu", r,
                           (unsigned long long)saved->head.n_steps,
                           (unsigned long long)loading->saved[0].blob.head.n_steps);
    }
    return TALLY_OK;
}

/* Whether it names every parameter with a gradient once. */
static bool is_order(const tally_ddp *ddp, const int *order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (order[i] < 0 || (size_t)order[i] >= ddp->n_params || ddp->params[order[i]].bucket < 0) {
            return false;
        }
        for (size_t k = 0; k < i; k++) {
            if (order[k] == order[i]) {
                return false;
            }
        }
    }
    return n == ddp->n_order;
}

/* What follows the head. */
static int look_at(const tally_ddp *ddp, struct saved *saved, size_t r, tally_hook_blob *state)
{
    const char *ours = ddp->hook->table.name;
    size_t name_bytes;
    const char *name = tally__blob_take_array(&saved->blob.reader, &name_bytes);
    size_t order_bytes;

    saved->order = tally__blob_take_array(&saved->blob.reader, &order_bytes);
    if (saved->blob.head.n_params != ddp->n_params) {
        return tally__fail(TALLY_ARG, "blob %zu has %u parameters, this model has %zu", r,
                           saved->blob.head.n_params, ddp->n_params);
    }
    for (size_t i = 0; i < ddp->n_params && !saved->blob.reader.bad; i++) {
        tally__blob_take_param(&saved->blob.reader, &saved->params[i]);
    }
    *state = (tally_hook_blob){.size = sizeof *state};
    state->data = tally__blob_take_array(&saved->blob.reader, &state->bytes);
    if (saved->blob.reader.bad || saved->blob.reader.left > 0) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    if (name_bytes != strlen(ours) || memcmp(name, ours, name_bytes) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu is of hook '%s', but the hook is '%.200s'", r,
                           tally__blob_show(name, name_bytes).text, ours);
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        TRY(tally__blob_check_param(&ddp->params[i], &saved->params[i].is, r));
        if (saved->params[i].owned_ranks > saved->blob.head.world) {
            return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
        }
        if (saved->params[i].sent && ddp->params[i].reduce_dtype != TALLY_F32) {
            return tally__fail(TALLY_ARG,
                               "blob %zu has a residual of parameter '%.200s', which travelled as "
                               "fp32 then: config.reduce_dtype is another here",
                               r, ddp->params[i].name);
        }
    }
    if (order_bytes == 0) {
        saved->order = NULL;
    } else if (order_bytes % sizeof *saved->order != 0 ||
               !is_order(ddp, saved->order, order_bytes / sizeof *saved->order)) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
    }
    return TALLY_OK;
}

static int look_at_all(struct loading *loading, const void *const *blobs, const size_t *bytes)
{
    for (size_t r = 0; r < loading->n; r++) {
        struct saved *saved = &loading->saved[r];

        saved->params = loading->params + r * loading->ddp->n_params;
        TRY(open_blob(loading, r, blobs[r], bytes[r]));
        TRY(look_at(loading->ddp, saved, r, &loading->states[r]));
        loading->digest =
            tally__checksum(&saved->blob.head.checksum, sizeof saved->blob.head.checksum) ^
            loading->digest * 31;
    }
    return TALLY_OK;
}

/* ---- new residuals ---- */

/* As many ranks as then: this rank goes on with its own. */
static int take_own(const struct tally__blob_param *own, struct tally__residual *residual)
{
    const struct tally__residual saved = {.sent = (float *)own->sent,
                                          .n = (size_t)own->is.n,
                                          .owned = (float *)own->owned,
                                          .owned_first = (size_t)own->owned_first,
                                          .owned_n = own->owned_n,
                                          .owned_ranks = (int)own->owned_ranks};

    return tally__residual_copy(&saved, residual);
}

/* More or fewer ranks: every rank takes the mean of what was sent, and of what was owned as much as
 * all ranks lacked of it on average. */
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
            float lacked = (float)((double)param->owned_ranks / (double)loading->n);

            tally__axpy_f32(param->owned_n, param->owned, lacked,
                            residual->sent + param->owned_first);
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
    if (loading->n > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG,
                           "tally_ddp_load: %zu blobs, but no run has more than %d ranks",
                           loading->n, TALLY__MAX_WORLD);
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

/* How it went on this rank, and what it was about. */
struct opinion {
    struct tally__outcome outcome;
    const char *call;
    uint64_t digest;
};

static int agree_job(tally_lane *lane, void *user)
{
    struct opinion *opinion = user;
    uint64_t theirs = opinion->digest;

    TRY(tally__outcome_job(lane, &opinion->outcome));
    TRY(tally_lane_broadcast(lane, &theirs, sizeof theirs, 0));
    return theirs == opinion->digest
               ? TALLY_OK
               : tally__fail(TALLY_MISMATCH, "%s: other blobs here than on rank 0", opinion->call);
}

int tally__load_agree(tally_ddp *ddp, const char *call, int status, uint64_t digest)
{
    struct opinion opinion = {.outcome = tally__outcome_of(status), .call = call, .digest = digest};

    return tally__ddp_run(ddp, agree_job, &opinion);
}

/* The hook takes its state on all ranks, or is left as it was. */
static int load_hook(const struct loading *loading)
{
    const tally_hook *hook = loading->ddp->hook;
    tally_hook_blob before;
    struct tally__outcome outcome;
    int loaded = tally__hook_state_take(hook, &before);
    int rc;

    if (loaded == TALLY_OK) {
        loaded = tally__hook_load(hook, loading->states, loading->n);
    }
    outcome = tally__outcome_of(loaded);
    rc = tally__ddp_run(loading->ddp, tally__outcome_job, &outcome);
    if (rc != TALLY_OK && loaded == TALLY_OK) {
        outcome = tally__outcome_of(rc);
        (void)tally__hook_load(hook, &before, 1);
        (void)tally__fail(rc, "%s", outcome.text);
    }
    tally__hook_state_free(&before);
    return rc;
}

/* Nothing can fail any more. */
static void take_effect(struct loading *loading)
{
    tally_ddp *ddp = loading->ddp;
    struct tally__residual *old = ddp->keeper->params;
    const struct saved *first = &loading->saved[0];

    ddp->keeper->params = loading->keeper->params;
    loading->keeper->params = old;
    ddp->steps_before = first->blob.head.n_steps - ddp->step;
    /* What an owner keeps is at its best in the layout in which it was left. */
    if (first->order && tally__may_arrange(ddp)) {
        memcpy(ddp->agreed_order, first->order, ddp->n_order * sizeof *first->order);
        tally__step_arrange(ddp);
    }
}

static void clean_up(struct loading *loading)
{
    for (size_t r = 0; loading->saved && r < loading->n; r++) {
        tally__blob_close(&loading->saved[r].blob);
    }
    tally__keeper_free(loading->keeper);
    tally__free(loading->saved);
    tally__free(loading->states);
    tally__free(loading->params);
}

int tally_ddp_load(tally_ddp *ddp, const void *const *blobs, const size_t *bytes, size_t n)
{
    struct loading loading = {.ddp = ddp, .n = n};
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_load"));
    rc = prepare(&loading, blobs, bytes);
    rc = tally__load_agree(ddp, "tally_ddp_load", rc, loading.digest);
    if (rc == TALLY_OK) {
        rc = load_hook(&loading);
    }
    if (rc == TALLY_OK && loading.keeper) {
        take_effect(&loading);
    }
    clean_up(&loading);
    return rc;
}
