/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading a ddp: residuals, the hook's state and the order of the buckets, for the
 * driver in state/save_load.h; ddp_state.h has the order of the entries. One thread of the
 * application enters at a time, between steps.
 */
#include "ddp/ddp_state.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "num/num.h"

/* Flags of the hook: the one that has the state is tally's; it ran on the rank that saved. */
#define HOOK_BUILTIN 1u
#define HOOK_RAN 2u

struct tally__state tally__state_of(const struct tally__state_kind *kind, void *object,
                                    tally_ddp *ddp, size_t n_params, uint64_t n_steps)
{
    return (struct tally__state){.kind = kind,
                                 .object = object,
                                 .rank = tally_group_rank(ddp->group),
                                 .world = tally_group_size(ddp->group),
                                 .n_params = n_params,
                                 .n_steps = n_steps,
                                 .agree = tally__ddp_agree,
                                 .ddp = ddp};
}

/* ---- saving ---- */

static int snapshot(struct tally__state *state)
{
    const tally_ddp *ddp = state->object;

    TRY(tally__residuals_make_plain(ddp->residuals));
    return tally__hook_state_take(ddp->hook, &state->hook);
}

static void write(const struct tally__state *state, struct tally__blob_writer *writer)
{
    const tally_ddp *ddp = state->object;
    const struct tally__hook_kind_name kind = tally__hook_kind_name(ddp->hook);

    tally__blob_put_array(writer, ddp->hook->table.name, strlen(ddp->hook->table.name));
    tally__blob_put_number(writer,
                           (kind.is_builtin ? HOOK_BUILTIN : 0) |
                               (ddp->hook->private.runs_here(ddp->hook->state) ? HOOK_RAN : 0));
    tally__blob_put_array(writer, kind.text, kind.length);
    tally__blob_put_array(writer, ddp->order,
                          ddp->stats.rebuilt ? ddp->n_order * sizeof *ddp->order : 0);
    for (size_t i = 0; i < ddp->n_params; i++) {
        tally__put_identity(writer, &ddp->params[i]);
        tally__put_residual(writer, &ddp->residuals->params[i]);
    }
    tally__blob_put_array(writer, state->hook.data, state->hook.bytes);
}

/* ---- reading blobs ---- */

/* The entries of one blob; everything points into it. */
struct entries {
    struct tally__hook_kind_name hook; /* its whole name */
    struct tally__hook_kind_name kind;
    bool hook_ran;
    const int *order;                             /* ddp->n_order parameters; NULL: none */
    const struct tally__saved_residual *residual; /* per parameter */
};

/* The state that this rank takes over. */
struct fresh {
    size_t n; /* blobs */
    size_t rank;
    struct entries *saved;   /* per blob */
    tally_hook_blob *states; /* the hook's, per blob */
    bool *seen;              /* per parameter, to find one twice */
    bool same_world;         /* as many ranks as then */
    bool same_hook;          /* the hook is the one that saved, to the bit; */
    bool same_kind;          /* or one that takes its state */
    struct tally__residuals *residuals;
};

/* Whether order has every parameter with a gradient once. */
static bool is_order(const tally_ddp *ddp, const int *order, size_t n, bool *seen)
{
    memset(seen, 0, ddp->n_params * sizeof *seen);
    for (size_t k = 0; k < n; k++) {
        int i = order[k];

        if (i < 0 || (size_t)i >= ddp->n_params || ddp->params[i].bucket < 0 || seen[i]) {
            return false;
        }
        seen[i] = true;
    }
    return n == ddp->n_order;
}

static bool is_same_hook(const struct entries *saved, struct tally__hook_kind_name hook,
                         struct tally__hook_kind_name kind)
{
    return tally__hook_same_kind(saved->hook, hook) && tally__hook_same_kind(saved->kind, kind);
}

static int read_residual(const struct tally__state *state, size_t r, size_t i)
{
    const struct tally__param *param = &((const tally_ddp *)state->object)->params[i];
    struct tally__blob_reader *reader = &state->blobs[r].reader;
    struct tally__saved_residual *residual = state->blobs[r].params;

    TRY(tally__check_identity(reader, param, r));
    tally__take_residual(reader, param, state->n, &residual[i]);
    if ((residual[i].sent || residual[i].n_owned > 0) && param->grad.reduce_dtype != TALLY_F32) {
        return tally__fail(TALLY_ARG,
                           "blob %zu has a residual of parameter '%.200s', which was reduced in "
                           "fp32: set config.reduce_dtype to fp32 to load it",
                           r, param->name);
    }
    return TALLY_OK;
}

static int read_blob(const struct tally__state *state, size_t r)
{
    const tally_ddp *ddp = state->object;
    const struct fresh *fresh = state->fresh;
    struct tally__blob_reader *reader = &state->blobs[r].reader;
    struct entries *saved = &fresh->saved[r];
    tally_hook_blob *of_hook = &fresh->states[r];
    size_t order_bytes;
    uint64_t flags;

    saved->hook.text = tally__blob_take_array(reader, &saved->hook.length);
    flags = tally__blob_take_number(reader);
    saved->kind.is_builtin = (flags & HOOK_BUILTIN) != 0;
    saved->hook_ran = (flags & HOOK_RAN) != 0;
    saved->kind.text = tally__blob_take_array(reader, &saved->kind.length);
    saved->order = tally__blob_take_array(reader, &order_bytes);
    for (size_t i = 0; i < ddp->n_params; i++) {
        TRY(read_residual(state, r, i));
    }
    saved->residual = state->blobs[r].params;
    *of_hook = (tally_hook_blob){.size = sizeof *of_hook};
    of_hook->data = tally__blob_take_array(reader, &of_hook->bytes);
    TRY(tally__state_check_end(state, r));
    if (order_bytes == 0 || ddp->is_reducer) {
        saved->order = NULL;
    } else if (order_bytes % sizeof *saved->order != 0 ||
               !is_order(ddp, saved->order, order_bytes / sizeof *saved->order, fresh->seen)) {
        return tally__state_damaged(r);
    }
    return TALLY_OK;
}

static int read_blobs(const struct tally__state *state)
{
    const struct fresh *fresh = state->fresh;
    const struct entries *first = &fresh->saved[0];

    for (size_t r = 0; r < state->n; r++) {
        const struct entries *saved = &fresh->saved[r];

        TRY(read_blob(state, r));
        if (!is_same_hook(saved, first->hook, first->kind)) {
            return tally__fail(TALLY_ARG, "blob %zu is of hook '%s', blob 0 of hook '%s'", r,
                               tally__blob_show(saved->hook.text, saved->hook.length).text,
                               tally__blob_show(first->hook.text, first->hook.length).text);
        }
        if (!saved->hook_ran) {
            fresh->states[r] = fresh->states[0];
        }
    }
    return TALLY_OK;
}

/* ---- new residuals ---- */

/* Finds the run of the smallest group that has at least n_ranks ranks. */
static bool find_run(const struct tally__saved_residual *residual, uint64_t n_ranks,
                     struct tally__saved_run *run)
{
    struct tally__blob_reader reader = residual->owned;

    for (uint64_t k = 0; k < residual->n_owned; k++) {
        tally__take_run(&reader, run);
        if (run->n_ranks >= n_ranks) {
            return true;
        }
    }
    return false;
}

/* The size of the smallest group of more than above ranks that has a run of parameter i; 0: none.
 */
static uint64_t next_group(const struct fresh *fresh, size_t i, uint64_t above)
{
    uint64_t next = 0;

    for (size_t r = 0; r < fresh->n; r++) {
        struct tally__saved_run run;

        if (find_run(&fresh->saved[r].residual[i], above + 1, &run) &&
            (next == 0 || run.n_ranks < next)) {
            next = run.n_ranks;
        }
    }
    return next;
}

/* With the same hook and as many ranks, every rank keeps what its whole group owns. The next step
 * takes what this rank owns then. */
static int take_whole(const struct fresh *fresh, const struct tally__saved_run *run, size_t r,
                      struct tally__residual *residual)
{
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
    if (r == fresh->rank) {
        owned->first = (size_t)run->first;
        owned->n = run->n;
    }
    return TALLY_OK;
}

/* Takes the run that rank r owned of the means of a group. */
static int take_run(const struct fresh *fresh, const struct tally__saved_run *run, size_t r,
                    struct tally__residual *residual)
{
    /* With more or fewer ranks: what all ranks lacked of it on average. */
    float weight = (float)((double)run->n_ranks / (double)fresh->n);

    if (fresh->same_world) {
        if (!tally__lacks((int)fresh->rank, (int)r, (int)run->n_ranks)) {
            return TALLY_OK;
        }
        if (fresh->same_hook) {
            return take_whole(fresh, run, r, residual);
        }
        weight = 1;
    }
    TRY(tally__residual_allocate(residual, residual->n));
    tally__axpy_f32(run->n, run->values, weight, residual->sent + run->first);
    return TALLY_OK;
}

/* Takes small groups first: an element's sum must not depend on which ranks owned it. */
static int take_runs(const struct fresh *fresh, size_t i, struct tally__residual *residual)
{
    for (uint64_t group = next_group(fresh, i, 0); group > 0; group = next_group(fresh, i, group)) {
        for (size_t r = 0; r < fresh->n; r++) {
            struct tally__saved_run run;

            if (find_run(&fresh->saved[r].residual[i], group, &run) && run.n_ranks == group) {
                TRY(take_run(fresh, &run, r, residual));
            }
        }
    }
    return TALLY_OK;
}

/* With the same number of ranks as before, this rank takes its own residual; otherwise the mean of
 * all. */
static int take_sent(const struct fresh *fresh, size_t i, struct tally__residual *residual)
{
    size_t n = residual->n;

    for (size_t r = 0; r < fresh->n; r++) {
        const float *sent = fresh->saved[r].residual[i].sent;

        if (!sent || (fresh->same_world && r != fresh->rank)) {
            continue;
        }
        TRY(tally__residual_allocate(residual, n));
        if (fresh->same_world) {
            memcpy(residual->sent, sent, n * sizeof *sent);
        } else {
            tally__axpy_f32(n, sent, 1, residual->sent);
        }
    }
    if (residual->sent && !fresh->same_world) {
        const float *in = residual->sent;

        tally__sum_f32(n, 1, &in, (float)fresh->n, 1, &residual->sent);
    }
    return TALLY_OK;
}

static int make_residuals(const tally_ddp *ddp, struct fresh *fresh)
{
    TRY(tally__residuals_make(ddp->n_params, &fresh->residuals));
    for (size_t i = 0; i < ddp->n_params; i++) {
        struct tally__residual *residual = &fresh->residuals->params[i];

        residual->n = ddp->params[i].n;
        TRY(take_sent(fresh, i, residual));
        TRY(take_runs(fresh, i, residual));
    }
    return TALLY_OK;
}

/* ---- loading ---- */

static int check(struct tally__state *state)
{
    tally_ddp *ddp = state->object;
    struct fresh *fresh = state->fresh;
    const struct tally__hook_kind_name kind = tally__hook_kind_name(ddp->hook);
    const struct tally__hook_kind_name hook = {.text = ddp->hook->table.name,
                                               .length = strlen(ddp->hook->table.name)};

    fresh->n = state->n;
    fresh->rank = (size_t)state->rank;
    fresh->same_world = fresh->n == (size_t)state->world;
    fresh->saved = tally__alloc_array(fresh->n, sizeof *fresh->saved, "saved states");
    fresh->states = tally__alloc_array(fresh->n, sizeof *fresh->states, "saved states");
    fresh->seen = tally__alloc_array(ddp->n_params, sizeof *fresh->seen, "saved states");
    if (!fresh->saved || !fresh->states || !fresh->seen) {
        return TALLY_NOMEM;
    }
    TRY(read_blobs(state));
    fresh->same_kind = tally__hook_same_kind(fresh->saved[0].kind, kind);
    fresh->same_hook = is_same_hook(&fresh->saved[0], hook, kind);
    return make_residuals(ddp, fresh);
}

/* The hook takes the state of a hook of its kind. */
static int start(const struct tally__state *state)
{
    const tally_ddp *ddp = state->object;
    const struct fresh *fresh = state->fresh;

    return fresh->same_kind ? tally__hook_load(ddp->hook, fresh->states, fresh->n) : TALLY_OK;
}

static void undo(const struct tally__state *state)
{
    const tally_ddp *ddp = state->object;
    const struct fresh *fresh = state->fresh;

    if (fresh->same_kind) {
        (void)tally__hook_load(ddp->hook, &state->hook, 1);
    }
}

static void take_over(const struct tally__state *state)
{
    tally_ddp *ddp = state->object;
    const struct fresh *fresh = state->fresh;
    struct tally__residual *old = ddp->residuals->params;
    const int *order = fresh->saved[0].order;

    ddp->residuals->params = fresh->residuals->params;
    fresh->residuals->params = old;
    ddp->steps_before = state->blobs[0].head.n_steps - ddp->step;
    /* Some hooks' bits depend on the layout; so do the choices of auto. */
    if (order && tally__layout_may_arrange(ddp)) {
        memcpy(ddp->ready.agreed, order, ddp->n_order * sizeof *order);
        tally__layout_arrange(ddp);
    } else {
        tally__layout_repack(ddp);
    }
}

static void free_fresh(void *loaded)
{
    struct fresh *fresh = loaded;

    tally__residuals_free(fresh->residuals);
    tally__free(fresh->saved);
    tally__free(fresh->states);
    tally__free(fresh->seen);
}

struct tally__state tally__ddp_state(tally_ddp *ddp)
{
    static const struct tally__state_kind kind = {.magic = UINT64_C(0x31656b6f6c6c6154),
                                                  .version = 2,
                                                  .name = "ddp",
                                                  .counts = "steps",
                                                  .params_of = "model",
                                                  .fresh_bytes = sizeof(struct fresh),
                                                  .param_bytes =
                                                      sizeof(struct tally__saved_residual),
                                                  .snapshot = snapshot,
                                                  .write = write,
                                                  .check = check,
                                                  .start = start,
                                                  .undo = undo,
                                                  .take_over = take_over,
                                                  .free = free_fresh};

    return tally__state_of(&kind, ddp, ddp, ddp->n_params, ddp->step + ddp->steps_before);
}

int tally_ddp_save(tally_ddp *ddp, void *blob, size_t *bytes)
{
    struct tally__state state;

    TRY(tally__check_between_steps(ddp, "tally_ddp_save"));
    state = tally__ddp_state(ddp);
    return tally__state_save(&state, "tally_ddp_save", blob, bytes);
}

int tally_ddp_load(tally_ddp *ddp, const void *const *blobs, const size_t *bytes, size_t n)
{
    struct tally__state state;

    TRY(tally__check_between_steps(ddp, "tally_ddp_load"));
    state = tally__ddp_state(ddp);
    return tally__state_load(&state, blobs, bytes, n);
}
