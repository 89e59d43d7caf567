/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ddp's hook: comparing it between ranks, and replacing the old one. A failure on one rank is a
 * failure on all, and the old hook stays. One thread of the application enters at a time.
 */
#include <string.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/memory.h"
#include "base/status.h"
#include "ddp/compare.h"
#include "ddp/ddp.h"

/* ---- comparing it ---- */

/* The name, and what else exchanges depend on. */
static void describe(const void *of, size_t i, struct tally__description *about)
{
    const tally_hook *hook = of;

    (void)i;
    tally__describe_thing(about, "hook");
    tally__describe_name(about, hook->table.name);
    tally__describe_field(about, "maker",
                          tally__hook_kind_name(hook).is_builtin ? "tally" : "the application");
    tally__describe_number(about, "concurrent", hook->table.concurrent != 0);
    tally__describe_number(about, "feedback", hook->table.feedback != 0);
    tally__describe_number(about, "elementwise", hook->table.elementwise != 0);
    tally__describe_field(about, "scatter", hook->table.scatter ? "set" : "NULL");
}

static int compare_job(tally_lane *lane, void *user)
{
    const struct tally__compared compared = {
        .plural = "hooks", .n = 1, .of = user, .describe = describe};

    return tally__compare(lane, &compared, 1);
}

/* ---- the state ---- */

/* The state that a hook takes over from the old one: this rank's state, or rank 0's if the old hook
 * did not run on this rank. */
struct inheritance {
    bool is_from_root;
    tally_hook_blob state;
};

static int inherit_job(tally_lane *lane, void *user)
{
    struct inheritance *inheritance = user;
    tally_hook_blob *state = &inheritance->state;
    uint64_t bytes = state->bytes;
    void *theirs = NULL;
    int rc;

    TRY(tally_lane_broadcast(lane, &bytes, sizeof bytes, 0));
    if (bytes == 0) {
        return TALLY_OK;
    }
    if (tally_group_rank(tally_lane_group(lane)) != 0) {
        theirs = tally__alloc((size_t)bytes, "the hook's state");
        if (!theirs) {
            return TALLY_NOMEM;
        }
    }
    rc = tally_lane_broadcast(lane, theirs ? theirs : (void *)state->data, (size_t)bytes, 0);
    if (rc == TALLY_OK && theirs && inheritance->is_from_root) {
        tally__hook_state_free(state);
        state->data = theirs;
        state->bytes = (size_t)bytes;
        theirs = NULL;
    }
    tally__free(theirs);
    return rc;
}

/* The new hook takes over the state of the old one if both are of one kind. If both are the same
 * hook, it lacks state only on ranks where it did not run. Collective if the old hook did not run
 * on all ranks. */
static int inherit_state(tally_ddp *ddp, tally_hook *hook, bool is_attached)
{
    const tally_hook *old = ddp->hook;
    bool is_led = old->private.is_led;
    bool is_from_root = !old->private.runs_here(old->state);
    struct inheritance inheritance = {.is_from_root = is_from_root};
    int rc;

    if (!tally__hook_same_kind(tally__hook_kind_name(old), tally__hook_kind_name(hook)) ||
        (is_attached && !is_led)) {
        return TALLY_OK;
    }
    rc = tally__hook_state_take(old, &inheritance.state);
    if (is_led) {
        rc = tally__ddp_agree(ddp, rc, inherit_job, &inheritance);
    }
    if (rc == TALLY_OK && inheritance.state.data && (!is_attached || is_from_root)) {
        rc = tally__hook_load(hook, &inheritance.state, 1);
    }
    tally__hook_state_free(&inheritance.state);
    return rc;
}

/* ---- residuals ---- */

struct moved {
    struct tally__residuals *residuals;
    struct tally__moving moving;
};

static int move_job(tally_lane *lane, void *user)
{
    struct moved *moved = user;

    return tally__residuals_move(lane, moved->residuals, &moved->moving);
}

/* Makes all residuals plain, and moves owned ones if moves is set. */
static int move_residuals(tally_ddp *ddp, bool moves, enum tally__move how)
{
    struct moved moved = {.residuals = ddp->residuals, .moving = {.how = how}};

    if (!ddp->hook->table.feedback) {
        return TALLY_OK;
    }
    return tally__ddp_agree(ddp, tally__residuals_make_plain(ddp->residuals),
                            moves ? move_job : NULL, &moved);
}

int tally__ddp_move_residuals(tally_ddp *ddp, enum tally__move how)
{
    return move_residuals(ddp, true, how);
}

/* ---- replacing it ---- */

/* Whether both hooks compute the same bits. */
static bool is_equal(const tally_hook *a, const tally_hook *b)
{
    return strcmp(a->table.name, b->table.name) == 0 &&
           tally__hook_same_kind(tally__hook_kind_name(a), tally__hook_kind_name(b));
}

static void undo_attach(tally_ddp *ddp, tally_hook *hook, bool is_attached)
{
    if (!is_attached) {
        hook->table.detach(hook->state, ddp);
    }
    hook->private.leave(hook->state);
}

/* Attaches the hook on this rank, unless it is attached already; all ranks learn whether all
 * succeeded. The hook's collective part comes first, while no rank has failed yet. */
static int attach(tally_ddp *ddp, tally_hook *hook, bool is_attached)
{
    int entered = hook->private.enter(hook->state, ddp);
    int attached = entered != TALLY_OK || is_attached ? entered : tally__hook_attach(hook, ddp);
    int rc = tally__ddp_agree(ddp, attached, NULL, NULL);

    if (rc != TALLY_OK && attached == TALLY_OK) {
        undo_attach(ddp, hook, is_attached);
    } else if (rc != TALLY_OK && entered == TALLY_OK) {
        hook->private.leave(hook->state);
    }
    return rc;
}

/* State and residuals of the old hook go to the new one, on all ranks or on none. */
static int inherit(tally_ddp *ddp, tally_hook *hook, bool is_attached)
{
    TRY(tally__ddp_agree(ddp, inherit_state(ddp, hook, is_attached), NULL, NULL));
    return move_residuals(ddp, !is_equal(ddp->hook, hook), TALLY__MOVE_SENT);
}

/* Replaces the old hook. A status that is not OK says why this rank has no new one. */
static int replace(tally_ddp *ddp, tally_hook *hook, int status)
{
    tally_hook *old = ddp->hook;
    bool is_attached;
    uint64_t now_ns;
    int rc;

    TRY(tally__ddp_agree(ddp, status, compare_job, hook));
    if (!hook) {
        return status;
    }
    if (ddp->observer.accept_hook) {
        TRY(ddp->observer.accept_hook(ddp->observer.user, hook));
    }
    /* The same hook, or another wrapper around it, stays attached. */
    is_attached = tally__hook_innermost(hook) == tally__hook_innermost(old);
    TRY(attach(ddp, hook, is_attached));
    rc = hook->private.layout_bound ? tally__layout_restore_plan(ddp) : TALLY_OK;
    if (rc == TALLY_OK) {
        rc = inherit(ddp, hook, is_attached);
    }
    if (rc != TALLY_OK) {
        undo_attach(ddp, hook, is_attached);
        return rc;
    }
    if (!is_attached) {
        old->table.detach(old->state, ddp);
    }
    old->private.leave(old->state);
    tally__hook_hold(hook);
    (void)pthread_mutex_lock(&ddp->mutex);
    ddp->hook = hook;
    tally__status_hook(ddp->trace.status, hook->table.name);
    (void)pthread_mutex_unlock(&ddp->mutex);
    now_ns = tally__now_ns();
    tally__ddp_event(ddp, NULL,
                     &(struct tally__trace_event){.kind = TALLY__EVENT_HOOK,
                                                  .begin_ns = now_ns,
                                                  .end_ns = now_ns,
                                                  .peer = TALLY__NO_PEER});
    tally_hook_free(old);
    tally__layout_repack(ddp);
    return TALLY_OK;
}

int tally_ddp_attach_hook(tally_ddp *ddp, tally_hook *hook)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_attach_hook"));
    return tally__stats_note(
        ddp,
        replace(ddp, hook,
                hook ? TALLY_OK : tally__fail(TALLY_ARG, "tally_ddp_attach_hook: hook is NULL")));
}

int tally_ddp_set_hook(tally_ddp *ddp, const char *text)
{
    tally_hook *hook = NULL;
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_set_hook"));
    rc = tally_hook_parse(text, &hook);
    rc = tally__stats_note(ddp, replace(ddp, hook, rc));
    tally_hook_free(hook);
    return rc;
}

int tally_ddp_register_hook(tally_ddp *ddp, tally_hook_name name)
{
    switch (name) {
#define TEXT_OF(id, value, text) \
    case TALLY_HOOK_##id:        \
        return tally_ddp_set_hook(ddp, text);
        TALLY_HOOK_LIST(TEXT_OF)
#undef TEXT_OF
    }
    TRY(tally__check_between_steps(ddp, "tally_ddp_register_hook"));
    return tally__stats_note(
        ddp, replace(ddp, NULL,
                     tally__fail(TALLY_ARG, "tally_ddp_register_hook: %d is not a hook's name",
                                 (int)name)));
}

int tally__hook_start(tally_ddp *ddp)
{
    const char *text = ddp->config.hook ? ddp->config.hook : tally__env_text(TALLY__ENV_HOOK);

    ddp->config.hook = NULL; /* the caller's */
    return tally_ddp_set_hook(ddp, text);
}
