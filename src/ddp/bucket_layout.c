/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of the layout of buckets, where gradients are copies: after the first step buckets are
 * arranged by rank 0's ready order; a hook may want another packing (tally__packing) between any
 * two steps; and both go back to the plan. Residuals and means follow their elements. Lane 0 enters
 * to agree, and the thread that waits, or the one that sets a hook or loads, to change it.
 */
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "ddp/ddp.h"

/* Neither views nor buckets of an observer move, nor those of a hook whose bits depend on them. */
static bool may_move(const tally_ddp *ddp)
{
    return ddp->may_rebuild && !ddp->hook->private.layout_bound && !ddp->buckets.pinned;
}

bool tally__layout_may_arrange(const tally_ddp *ddp)
{
    return ddp->rebuild_due && may_move(ddp);
}

static struct tally__packing wanted(const tally_ddp *ddp)
{
    struct tally__packing packing = {0};

    ddp->hook->private.get_packing(ddp->hook->state, &packing);
    return packing;
}

static bool is_packed(const tally_ddp *ddp, const struct tally__packing *packing)
{
    bool is_same = packing->cap_bytes == ddp->packed_cap;

    for (size_t i = 0; is_same && i < ddp->n_params; i++) {
        is_same = ddp->classes[i] == (packing->classes ? packing->classes[i] : 0);
    }
    return is_same;
}

static bool may_repack(const tally_ddp *ddp)
{
    struct tally__packing packing;

    if (!may_move(ddp)) {
        return false;
    }
    packing = wanted(ddp);
    return !is_packed(ddp, &packing);
}

/* Changing the layout needs all ranks in the same wait. If the group has other ddps, ranks may be
 * in another ddp's wait, so the buckets stay. */
int tally__layout_agree(tally_lane *lane, tally_ddp *ddp, int root)
{
    size_t bytes = ddp->n_params * sizeof *ddp->ready.order;
    uint64_t has_siblings = 0;

    ddp->repack_due = may_repack(ddp);
    if (!ddp->repack_due && !tally__layout_may_arrange(ddp)) {
        return TALLY_OK;
    }
    TRY(tally__agree_any(lane, tally__has_siblings(ddp->group), &has_siblings));
    if (has_siblings) {
        ddp->rebuild_due = false;
        ddp->repack_due = false;
    }
    if (!tally__layout_may_arrange(ddp)) {
        return TALLY_OK;
    }
    /* A rank without input has no order, and is never root. */
    memcpy(ddp->ready.agreed, ddp->ready.order, bytes);
    return tally_lane_broadcast(lane, ddp->ready.agreed, bytes, root);
}

static void note_packing(tally_ddp *ddp, const struct tally__packing *packing)
{
    ddp->packed_cap = packing->cap_bytes;
    for (size_t i = 0; i < ddp->n_params; i++) {
        ddp->classes[i] = packing->classes ? packing->classes[i] : 0;
    }
}

/* Moves the buckets to the order of ready.agreed and this packing. Residuals and means follow their
 * elements. Errors: NOMEM, on all ranks, and the layout stays. */
static int change_layout(tally_ddp *ddp, const struct tally__packing *packing,
                         bool is_by_ready_order)
{
    struct tally__buckets buckets;
    struct tally__buckets old = ddp->buckets;

    TRY(tally__ddp_move_residuals(ddp, TALLY__MOVE_WHOLE));
    TRY(tally__buckets_make(ddp, ddp->ready.agreed, packing, &buckets));
    (void)pthread_mutex_lock(&ddp->mutex);
    memcpy(ddp->order, ddp->ready.agreed, ddp->n_order * sizeof *ddp->order);
    note_packing(ddp, packing);
    tally__buckets_adopt(ddp, &buckets);
    tally__buckets_move_means(ddp, &old);
    ddp->stats.rebuilt = is_by_ready_order;
    (void)pthread_mutex_unlock(&ddp->mutex);
    tally__buckets_free(ddp, &old);
    return TALLY_OK;
}

int tally__layout_restore_plan(tally_ddp *ddp)
{
    static const struct tally__packing planned = {0};
    size_t n = 0;

    if ((!ddp->stats.rebuilt && is_packed(ddp, &planned)) || ddp->buckets.pinned) {
        return TALLY_OK;
    }
    for (size_t i = ddp->n_params; i-- > 0;) {
        if (ddp->params[i].bucket >= 0) {
            ddp->ready.agreed[n++] = (int)i;
        }
    }
    TRY(change_layout(ddp, &planned, false));
    ddp->rebuild_due = true;
    return TALLY_OK;
}

static void try_layout(tally_ddp *ddp, bool is_by_ready_order)
{
    const struct tally__packing packing = wanted(ddp);

    if (change_layout(ddp, &packing, is_by_ready_order) != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "buckets stay as they are: %s", tally_last_error());
    }
}

void tally__layout_arrange(tally_ddp *ddp)
{
    size_t n = ddp->n_order;

    ddp->rebuild_due = false;
    for (size_t k = ddp->n_order; k-- > 0;) {
        if (ddp->params[ddp->order[k]].flags & TALLY_PARAM_DELAYED) {
            ddp->ready.agreed[--n] = ddp->order[k];
        }
    }
    try_layout(ddp, true);
}

/* In the present order. */
void tally__layout_repack(tally_ddp *ddp)
{
    ddp->repack_due = false;
    if (may_repack(ddp)) {
        memcpy(ddp->ready.agreed, ddp->order, ddp->n_order * sizeof *ddp->order);
        try_layout(ddp, ddp->stats.rebuilt);
    }
}

void tally__layout_update(tally_ddp *ddp)
{
    /* The first step of a static graph only counts: its order says nothing. */
    if (tally__layout_may_arrange(ddp) && ddp->step >= (ddp->config.static_graph ? 2 : 1)) {
        tally__layout_arrange(ddp);
    } else if (ddp->repack_due) {
        tally__layout_repack(ddp);
    }
}
