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
#include "comm/group_config.h"
#include "ddp/ddp.h"
#include "ddp/step_end.h"
#include "num/num.h"
#include "state/blob.h"

/* One blob, looked through; everything points into it. */
struct saved {
    struct tally__blob blob;
    const char *hook; /* its name */
    size_t hook_bytes;
    struct tally__hook_kind_name kind;
    bool hook_ran;
    const int *order; /* n_order of them; NULL: none */
    struct tally__blob_param *params;
};

/* All of them, and what this rank makes of them. */
struct loading {
    tally_ddp *ddp;
    size_t n;
    struct saved *saved;
    struct tally__blob_param *params;   /* of all blobs */
    tally_hook_blob *states;            /* of all blobs */
    bool same_world;                    /* as many ranks as then */
    bool same_hook;                     /* the hook is the one that saved, to the bit; */
    bool same_kind;                     /* or one that takes its state */
    struct tally__residuals *residuals; /* the new residuals */
    uint64_t digest;                    /* of all blobs */
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

/* Which hook saved. */
static void take_hook(struct saved *saved)
{
    struct tally__blob_reader *reader = &saved->blob.reader;
    uint64_t flags;

    saved->hook = tally__blob_take_array(reader, &saved->hook_bytes);
    tally__blob_take(reader, &flags, sizeof flags);
    saved->kind.is_own = (flags & TALLY__BLOB_HOOK_OWN) != 0;
    saved->kind.text = tally__blob_take_array(reader, &saved->kind.length);
    saved->hook_ran = (flags & TALLY__BLOB_HOOK_RAN) != 0;
}

static bool is_same_hook(const struct saved *saved, const char *name, size_t bytes,
                         struct tally__hook_kind_name kind)
{
    return saved->hook_bytes == bytes && memcmp(saved->hook, name, bytes) == 0 &&
           tally__hook_same_kind(saved->kind, kind);
}

/* What a parameter owes, as blob r of a run of world ranks says. */
static int check_owed(const struct tally__param *param, const struct tally__blob_param *saved,
                      size_t r, uint32_t world)
{
    struct tally__blob_reader reader = saved->owned;

    for (uint64_t k = 0; k < saved->n_owned; k++) {
        struct tally__blob_owned owned;

        tally__blob_take_owned(&reader, &owned);
        if (owned.n_ranks > world) {
            return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
        }
    }
    if ((saved->sent || saved->n_owned > 0) && param->reduce_dtype != TALLY_F32) {
        return tally__fail(TALLY_ARG,
                           "blob %zu has a residual of parameter '%.200s', which travelled as "
                           "fp32 then: config.reduce_dtype is another here",
                           r, param->name);
    }
    return TALLY_OK;
}

/* What follows the head. */
static int look_at(const tally_ddp *ddp, struct saved *saved, size_t r, tally_hook_blob *state)
{
    size_t order_bytes;

    take_hook(saved);
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
    for (size_t i = 0; i < ddp->n_params; i++) {
        TRY(tally__blob_check_param(&ddp->params[i], &saved->params[i].is, r));
        TRY(check_owed(&ddp->params[i], &saved->params[i], r, saved->blob.head.world));
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
    const struct saved *first = &loading->saved[0];

    for (size_t r = 0; r < loading->n; r++) {
        struct saved *saved = &loading->saved[r];

        saved->params = loading->params + r * loading->ddp->n_params;
        TRY(open_blob(loading, r, blobs[r], bytes[r]));
        TRY(look_at(loading->ddp, saved, r, &loading->states[r]));
        if (!is_same_hook(saved, first->hook, first->hook_bytes, first->kind)) {
            return tally__fail(TALLY_ARG, "blob %zu is of hook '%s', blob 0 of hook '%s'", r,
                               tally__blob_show(saved->hook, saved->hook_bytes).text,
                               tally__blob_show(first->hook, first->hook_bytes).text);
        }
        if (!saved->hook_ran) {
            loading->states[r] = loading->states[0];
        }
        loading->digest =
            tally__checksum(&saved->blob.head.checksum, sizeof saved->blob.head.checksum) ^
            loading->digest * 31;
    }
    return TALLY_OK;
}

/* ---- new residuals ---- */

/* The run of the smallest group of at least so many ranks. */
static bool find_run(const struct tally__blob_param *param, uint64_t n_ranks,
                     struct tally__blob_owned *owned)
{
    struct tally__blob_reader reader = param->owned;

    for (uint64_t k = 0; k < param->n_owned; k++) {
        tally__blob_take_owned(&reader, owned);
        if (owned->n_ranks >= n_ranks) {
            return true;
        }
    }
    return false;
}

/* The smallest group of more than so many ranks that left something out of parameter i; 0: none. */
static uint64_t next_group(const struct loading *loading, size_t i, uint64_t above)
{
    uint64_t next = 0;

    for (size_t r = 0; r < loading->n; r++) {
        struct tally__blob_owned owned;

        if (find_run(&loading->saved[r].params[i], above + 1, &owned) &&
            (next == 0 || owned.n_ranks < next)) {
            next = owned.n_ranks;
        }
    }
    return next;
}

/* The same hook, as many ranks: all of what this rank's group has left out. The next step takes
 * what this rank owns then. */
static int take_whole(const struct loading *loading, const struct tally__blob_owned *run, size_t r,
                      struct tally__residual *residual)
{
    size_t rank = (size_t)tally_group_rank(loading->ddp->group);
    struct tally__owned *owned;

    TRY(tally__residual_add_owned(residual, (int)run->n_ranks, &owned));
    if (!owned->values) {
        owned->values = tally__alloc_array(residual->n, sizeof *owned->values, "a residual");
        owned->is_whole = owned->values != NULL;
    }
    if (!owned->values) {
        return TALLY_NOMEM;
    }
    memcpy(owned->values + run->first, run->values, run->n * sizeof *run->values);
    if (r == rank) {
        owned->first = (size_t)run->first;
        owned->n = run->n;
    }
    return TALLY_OK;
}

/* What rank r owned of the means of a group. */
static int take_run(const struct loading *loading, const struct tally__blob_owned *run, size_t r,
                    struct tally__residual *residual)
{
    int rank = tally_group_rank(loading->ddp->group);
    /* More or fewer ranks: as much as all ranks lacked of it on average. */
    float weight = (float)((double)run->n_ranks / (double)loading->n);

    if (loading->same_world) {
        if (!tally__lacks(rank, (int)r, (int)run->n_ranks)) {
            return TALLY_OK;
        }
        if (loading->same_hook) {
            return take_whole(loading, run, r, residual);
        }
        weight = 1;
    }
    TRY(tally__residual_send(residual, residual->n));
    tally__axpy_f32(run->n, run->values, weight, residual->sent + run->first);
    return TALLY_OK;
}

/* Those of small groups first: an element's sum must not depend on which ranks owned it. */
static int take_runs(const struct loading *loading, size_t i, struct tally__residual *residual)
{
    for (uint64_t group = next_group(loading, i, 0); group > 0;
         group = next_group(loading, i, group)) {
        for (size_t r = 0; r < loading->n; r++) {
            struct tally__blob_owned run;

            if (find_run(&loading->saved[r].params[i], group, &run) && run.n_ranks == group) {
                TRY(take_run(loading, &run, r, residual));
            }
        }
    }
    return TALLY_OK;
}

/* With as many ranks, what this rank had left out; otherwise the mean of all. */
static int take_sent(const struct loading *loading, size_t i, struct tally__residual *residual)
{
    size_t rank = (size_t)tally_group_rank(loading->ddp->group);
    size_t n = residual->n;

    for (size_t r = 0; r < loading->n; r++) {
        const float *sent = loading->saved[r].params[i].sent;

        if (!sent || (loading->same_world && r != rank)) {
            continue;
        }
        TRY(tally__residual_send(residual, n));
        if (loading->same_world) {
            memcpy(residual->sent, sent, n * sizeof *sent);
        } else {
            tally__axpy_f32(n, sent, 1, residual->sent);
        }
    }
    if (residual->sent && !loading->same_world) {
        const float *in = residual->sent;

        tally__sum_f32(n, 1, &in, (float)loading->n, 1, &residual->sent);
    }
    return TALLY_OK;
}

static int make_residuals(struct loading *loading)
{
    const tally_ddp *ddp = loading->ddp;
    const struct saved *first = &loading->saved[0];
    const char *name = ddp->hook->table.name;

    loading->same_world = loading->n == (size_t)tally_group_size(ddp->group);
    loading->same_kind = tally__hook_same_kind(first->kind, tally__hook_kind_name(ddp->hook));
    loading->same_hook = is_same_hook(first, name, strlen(name), tally__hook_kind_name(ddp->hook));
    TRY(tally__residuals_make(ddp->n_params, &loading->residuals));
    for (size_t i = 0; i < ddp->n_params; i++) {
        struct tally__residual *residual = &loading->residuals->params[i];

        residual->n = ddp->params[i].n;
        TRY(take_sent(loading, i, residual));
        TRY(take_runs(loading, i, residual));
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

/* The hook takes the state of one of its kind on all ranks, or is left as it was. */
static int load_hook(const struct loading *loading)
{
    const tally_hook *hook = loading->ddp->hook;
    tally_hook_blob before = {.size = sizeof before};
    struct tally__outcome outcome;
    int loaded = tally__residuals_make_plain(loading->ddp->residuals);
    int rc;

    if (loaded == TALLY_OK) {
        loaded = tally__hook_state_take(hook, &before);
    }
    if (loaded == TALLY_OK && loading->same_kind) {
        loaded = tally__hook_load(hook, loading->states, loading->n);
    }
    outcome = tally__outcome_of(loaded);
    rc = tally__ddp_run(loading->ddp, tally__outcome_job, &outcome);
    if (rc != TALLY_OK && loaded == TALLY_OK && loading->same_kind) {
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
    struct tally__residual *old = ddp->residuals->params;
    const struct saved *first = &loading->saved[0];

    ddp->residuals->params = loading->residuals->params;
    loading->residuals->params = old;
    ddp->steps_before = first->blob.head.n_steps - ddp->step;
    /* Some hooks' bits depend on the layout. */
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
    tally__residuals_free(loading->residuals);
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
    if (rc == TALLY_OK && loading.residuals) {
        take_effect(&loading);
    }
    clean_up(&loading);
    return rc;
}
