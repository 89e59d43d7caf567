/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step: ranks learn which parameters had no gradient on any rank, buffers become rank
 * 0's, absent gradients get the mean or their old value, ranks agree on the next layout
 * (bucket_layout.c), and the observer runs. Lane 0 enters, and the thread that waits.
 */
#include "ddp/ddp.h"

#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "comm/future.h"
#include "ddp/grad_cast.h"
#include "num/num.h"

static int make_buffers_equal(tally_lane *lane, const tally_ddp *ddp, int root)
{
    if (ddp->config.buffer_hook) {
        for (size_t i = 0; i < ddp->n_buffers; i++) {
            tally__sized_write(TALLY__BUFFER, &ddp->buffers[i],
                               (void *)tally__sized_at(ddp->hook_buffers, i));
        }
        return ddp->config.buffer_hook(ddp->config.buffer_hook_user, lane, ddp->hook_buffers,
                                       ddp->n_buffers);
    }
    return ddp->config.keep_buffers ? TALLY_OK : tally__buffers_broadcast(lane, ddp, root);
}

int tally__step_count_used(tally_lane *lane, struct tally__bucket *last)
{
    tally_ddp *ddp = last->ddp;
    int32_t *counts = ddp->now.used + ddp->n_params;
    uint64_t before = lane->job.bytes_sent;
    uint64_t any_absent = 0;

    TRY(tally__agree_any(lane, ddp->now.lacks_gradients, &any_absent));
    ddp->now.is_counted = any_absent != 0;
    if (!ddp->now.is_counted) {
        return TALLY_OK;
    }
    /* Buckets on other lanes still read used; delayed gradients may still be announced. */
    for (size_t i = 0; i < ddp->n_params; i++) {
        counts[i] = ddp->params[i].flags & TALLY_PARAM_DELAYED ? 0 : ddp->now.used[i];
    }
    TRY(tally_lane_all_reduce(lane, counts, ddp->n_params, TALLY_I32, TALLY_SUM));
    last->now.aside_bytes += lane->job.bytes_sent - before;
    return TALLY_OK;
}

/* Sets used to the number of ranks that had each gradient in this step. All ranks ask for delayed
 * gradients, or none does. */
static void take_counts(tally_ddp *ddp)
{
    int32_t n_ranks = ddp->config.join ? ddp->presence.n_active : tally_group_size(ddp->group);

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];

        if (param->flags & TALLY_PARAM_DELAYED) {
            ddp->now.used[i] = ddp->now.delayed_asked ? n_ranks : 0;
        } else if (ddp->now.is_counted) {
            ddp->now.used[i] = ddp->now.used[ddp->n_params + i];
        } else {
            ddp->now.used[i] = param->bucket >= 0 ? n_ranks : 0;
        }
    }
}

/* Waits for the buckets on other lanes; those of this lane are done. Errors: that of a bucket: the
 * step has no means. */
static int await_buckets(const tally_ddp *ddp)
{
    for (size_t b = 0; b < ddp->buckets.n; b++) {
        const struct tally__bucket *bucket = &ddp->buckets.bucket[b];

        if (bucket->state == TALLY__BUCKET_LAUNCHED) {
            TRY(tally__future_wait_in_job(bucket->future));
        }
    }
    return TALLY_OK;
}

/* A delayed gradient is reduced only if the application asked for it. */
static bool was_reduced(const tally_ddp *ddp, const struct tally__param *param)
{
    return !(param->flags & TALLY_PARAM_DELAYED) || ddp->now.delayed_asked;
}

/* Updates the fields that any thread may read at any time. */
static void record(tally_ddp *ddp)
{
    (void)pthread_mutex_lock(&ddp->mutex);
    take_counts(ddp);
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];
        bool is_used = ddp->now.used[ddp->order[k]] > 0;

        if (!tally__is_shadow(ddp) && was_reduced(ddp, param)) {
            param->unused = !is_used;
        }
        param->mean.last = NULL;
        if (was_reduced(ddp, param) && is_used && !param->mean.sharded) {
            param->mean.last = tally__is_shadow(ddp) && !tally__mean_is_apart(param)
                                   ? (void *)tally__slice(ddp, param)
                                   : param->mean.array;
        }
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
}

void tally__residual_take_back(tally_ddp *ddp, const struct tally__param *param)
{
    if (ddp->hook->table.feedback) {
        tally__residual_add(&ddp->residuals->params[param - ddp->params], param->n,
                            (const float *)(void *)tally__slice(ddp, param));
    }
}

/* An absent gradient becomes the mean if another rank had one; otherwise it gets its old value
 * back. */
static void fill_absent(tally_ddp *ddp)
{
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];
        const struct tally__bucket *bucket = &ddp->buckets.bucket[param->bucket];

        if (param->now.state != TALLY__GRAD_ABSENT) {
            continue;
        }
        if (param->unused && !bucket->skipped && !bucket->sharded) {
            tally__residual_take_back(ddp, param);
        }
        if (ddp->views && param->unused) {
            tally__copy(param->grad.bytes, bucket->saved + param->offset, param->grad.array);
        } else if (!ddp->views && param->mean.last && !tally__mean_is_apart(param)) {
            tally__copy(param->bytes, tally__slice(ddp, param), param->grad.array);
        }
    }
}

/* On lane 0, after its buckets. */
static int end_job(tally_lane *lane, void *user)
{
    tally_ddp *ddp = user;
    /* Under join the highest rank with input decides. */
    int root = ddp->config.join ? ddp->presence.root : 0;

    tally__doing_part(lane, ddp, -1, 0, ddp->n_params);
    TRY(await_buckets(ddp));
    TRY(ddp->hook->private.step_end(ddp->hook->state, lane));
    TRY(make_buffers_equal(lane, ddp, root));
    TRY(tally__layout_agree(lane, ddp, root));
    record(ddp);
    fill_absent(ddp);
    ddp->now.has_means = true;
    return ddp->observer.step_end ? ddp->observer.step_end(ddp->observer.user, lane) : TALLY_OK;
}

int tally__step_end_launch(tally_ddp *ddp)
{
    bool has_buffers = ddp->config.buffer_hook || (ddp->n_buffers > 0 && !ddp->config.keep_buffers);
    int rc;

    /* Buffers are the application's until wait; a delayed gradient may still be announced. */
    if (ddp->now.end_future || has_buffers || ddp->buckets.n_delayed > 0 || ddp->config.join ||
        ddp->ends_in_wait) {
        return TALLY_OK;
    }
    rc = tally_submit(ddp->group, 0, end_job, ddp, &ddp->now.end_future);
    /* If the group was aborted, wait learns the reason from a bucket. */
    return rc == TALLY_ABORTED ? TALLY_OK : rc;
}

/* ---- in wait ---- */

/* A step with means counts, even if the observer could not use them. */
static void count_step(tally_ddp *ddp)
{
    (void)pthread_mutex_lock(&ddp->mutex);
    /* A rank without input in the first step of a static graph has counted nothing yet. */
    for (size_t i = 0; i < ddp->n_params && ddp->recording && !tally__is_shadow(ddp); i++) {
        ddp->params[i].n_expected = ddp->params[i].now.n_announced;
    }
    ddp->recording = ddp->recording && tally__is_shadow(ddp);
    ddp->step++;
    /* The means of a rank without input lie in buckets, which may be arranged again. */
    for (size_t i = 0; tally__is_shadow(ddp) && i < ddp->n_params; i++) {
        ddp->params[i].mean.last = NULL;
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
}

int tally__step_end(tally_ddp *ddp, int collected)
{
    int rc = collected;

    if (rc == TALLY_OK && !ddp->now.end_collected) {
        rc = tally__ddp_run(ddp, end_job, ddp);
    }
    if (ddp->now.has_means) {
        count_step(ddp);
    }
    return rc;
}
