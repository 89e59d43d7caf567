/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step: ranks learn which parameters nobody had a gradient for, buffers become rank
 * 0's, gradients are copied out, and after the first step of copies the buckets are arranged by the
 * order in which rank 0's gradients became ready. The thread that waits enters.
 */
#include "ddp/step_end.h"

#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "num/num.h"

static int align_buffers(tally_lane *lane, const tally_ddp *ddp, int root)
{
    if (ddp->config.buffer_hook) {
        return ddp->config.buffer_hook(ddp->config.buffer_hook_user, lane, ddp->buffers,
                                       ddp->config.n_buffers);
    }
    for (size_t i = 0; !ddp->config.keep_buffers && i < ddp->config.n_buffers; i++) {
        TRY(tally_lane_broadcast(lane, ddp->buffers[i].data, ddp->buffers[i].bytes, root));
    }
    return TALLY_OK;
}

/* The exchanges at the end of a step, in one job. Under join the highest rank with input leads. */
static int end_job(tally_lane *lane, void *user)
{
    tally_ddp *ddp = user;
    int root = ddp->config.join ? ddp->presence.root : 0;

    TRY(tally_lane_all_reduce(lane, ddp->used, ddp->n_params, TALLY_I32, TALLY_SUM));
    TRY(align_buffers(lane, ddp, root));
    if (ddp->rebuild_due) {
        TRY(tally_lane_broadcast(lane, ddp->ready_order, ddp->n_params * sizeof *ddp->ready_order,
                                 root));
    }
    return TALLY_OK;
}

static void copy_out(tally_ddp *ddp)
{
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];
        struct tally__bucket *bucket = &ddp->buckets.bucket[param->bucket];
        bool delayed = (param->flags & TALLY_PARAM_DELAYED) != 0;

        /* A delayed gradient that nobody asked for is as it was; so are those of a rank that only
         * takes part in others' steps. */
        if ((delayed && !ddp->delayed_asked) || (ddp->config.join && !ddp->presence.active)) {
            continue;
        }
        param->unused = ddp->used[ddp->order[k]] == 0;
        if (ddp->views && param->unused && bucket->saved) {
            memcpy(param->grad, bucket->saved + param->offset, param->bytes);
        } else if (!ddp->views && !param->unused) {
            tally__copy(param->bytes, tally__slice(ddp, param), param->grad);
        }
    }
}

/* Arranges buckets by rank 0's ready order, once. What fails here costs speed, not the step. */
static void rebuild(tally_ddp *ddp)
{
    struct tally__buckets buckets;
    struct tally__buckets old = ddp->buckets;
    size_t n = ddp->n_ready;

    ddp->rebuild_due = false;
    for (size_t k = 0; k < ddp->n_order; k++) {
        if (ddp->params[ddp->order[k]].flags & TALLY_PARAM_DELAYED) {
            ddp->ready_order[n++] = ddp->order[k];
        }
    }
    if (tally__buckets_make(ddp, ddp->ready_order, &buckets) != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "buckets stay as they are: %s", tally_last_error());
        return;
    }
    memcpy(ddp->order, ddp->ready_order, ddp->n_order * sizeof *ddp->order);
    tally__buckets_adopt(ddp, &buckets);
    ddp->stats.rebuilt = true;
    tally__buckets_free(ddp, &old);
}

int tally__step_end(tally_ddp *ddp)
{
    bool recorded = ddp->recording;

    TRY(tally__ddp_run(ddp, end_job, ddp));
    copy_out(ddp);
    for (size_t i = 0; recorded && i < ddp->n_params; i++) {
        ddp->params[i].n_expected = ddp->params[i].n_announced;
    }
    ddp->recording = false;
    ddp->step++;
    /* The first step of a static graph only counts: its order says nothing. */
    if (ddp->rebuild_due && !recorded) {
        rebuild(ddp);
    }
    return TALLY_OK;
}
