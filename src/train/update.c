/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updating parameters by the means. With overlap a parameter is updated on its bucket's lane, after
 * the hook, if this rank had a gradient for it. The other parameters are updated at the end of the
 * step, when it is known whether another rank had one. A sharded optimizer's ranks ask each other
 * per bucket (zero.c). If updates need all buckets, for example for the joint norm, all updates
 * wait for the end of the step. Lanes enter, several at once for different buckets, and the thread
 * that waits or calls tally_optimizer_step.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/sized.h"
#include "base/status.h"
#include "comm/group.h"
#include "ddp/grad_cast.h"
#include "train/averager.h"
#include "train/mixed.h"
#include "train/norm.h"
#include "train/optimizer.h"

int tally__update_param(tally_optimizer *optimizer, size_t i, const float *gradient, float factor)
{
    const struct tally__param *param = &optimizer->ddp->params[i];
    struct tally__updated *updated = &optimizer->updated[i];
    const tally_step_param seen = {.size = sizeof seen,
                                   .index = (int)i,
                                   .name = param->name,
                                   .n_dims = param->n_dims,
                                   .shape = param->shape,
                                   .data = (float *)param->data + updated->moments.first,
                                   .gradient = gradient + updated->moments.first,
                                   .lr = optimizer->lr[updated->group]};

    TRY(tally__moments_step(&updated->moments, optimizer->rules[updated->group], &seen, factor,
                            optimizer->config.release_gradients && !tally__mean_is_apart(param)));
    if (optimizer->config.release_gradients && tally__mean_is_apart(param)) {
        memset(param->grad.array, 0, param->grad.bytes);
    }
    /* A sharded parameter is refreshed when all its shards have arrived. */
    if (!optimizer->zero) {
        tally__mixed_refresh_param(optimizer->ddp, i);
    }
    return TALLY_OK;
}

static int update_bucket(tally_optimizer *optimizer, const struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        size_t i = (size_t)bucket->seen.params[k].index;

        if (ddp->now.used[i] && optimizer->updated[i].group >= 0) {
            TRY(tally__update_param(optimizer, i, ddp->params[i].mean.array, 1));
        }
    }
    return TALLY_OK;
}

int tally__update_bucket(tally_optimizer *optimizer, tally_lane *lane, struct tally__bucket *bucket)
{
    if (!optimizer->overlaps || optimizer->waits) {
        return TALLY_OK;
    }
    TRY(bucket->sharded ? tally__zero_update(lane, bucket) : update_bucket(optimizer, bucket));
    bucket->now.after_ns = tally__now_ns();
    return TALLY_OK;
}

/* ---- at the end ---- */

float *tally__update_local(const tally_optimizer *optimizer, size_t i)
{
    const tally_ddp *ddp = optimizer->ddp;
    bool is_local =
        (ddp->params[i].flags & TALLY_PARAM_IGNORED) && optimizer->updated[i].group >= 0;

    return is_local && !tally__is_shadow(ddp) ? ddp->params[i].grad.local : NULL;
}

/* The gradient to update parameter i by: the mean, or the local gradient of an ignored parameter.
 * NULL if it was updated on its lane or has no mean. */
static float *gradient_of(const tally_optimizer *optimizer, size_t i)
{
    const struct tally__param *param = &optimizer->ddp->params[i];
    bool was_on_lane = optimizer->overlaps && !optimizer->waits;

    if (param->flags & TALLY_PARAM_IGNORED) {
        return tally__update_local(optimizer, i);
    }
    return was_on_lane && param->now.state == TALLY__GRAD_READY ? NULL : param->mean.last;
}

/* The factor that limits the joint norm of the means to max_norm. */
static int find_factor(tally_lane *lane, tally_optimizer *optimizer, double *factor)
{
    const double *squares = optimizer->zero ? optimizer->zero->squares : NULL;
    double norm = 0;
    tally__fpenv saved;
    int rc;

    *factor = 1;
    if (!(optimizer->config.max_norm > 0)) {
        return TALLY_OK;
    }
    if (squares) {
        TRY(tally__zero_norms(lane, optimizer));
    }
    saved = tally__fpenv_enter();
    rc = tally__joint_norm(optimizer->ddp, squares, &norm);
    if (rc == TALLY_OK && norm > optimizer->config.max_norm) {
        *factor = optimizer->config.max_norm / norm;
    }
    tally__fpenv_leave(saved);
    TRY(rc);
    (void)pthread_mutex_lock(&optimizer->ddp->mutex);
    optimizer->norm = norm;
    (void)pthread_mutex_unlock(&optimizer->ddp->mutex);
    return TALLY_OK;
}

/* Means of parameters in no group are clipped too, as by tally_ddp_clip_grad_norm. */
static void clip_others(tally_optimizer *optimizer, double factor)
{
    tally__fpenv saved = tally__fpenv_enter();

    for (size_t i = 0; factor < 1 && i < optimizer->ddp->n_params; i++) {
        if (optimizer->updated[i].group < 0) {
            tally__scale_mean(&optimizer->ddp->params[i], factor);
        }
    }
    tally__fpenv_leave(saved);
}

/* As find_factor, but with an averager, when means may differ between ranks, a failure on one rank
 * is a failure on all. */
static int agree_on_factor(tally_lane *lane, tally_optimizer *optimizer, double *factor)
{
    int rc = find_factor(lane, optimizer, factor);

    if (!optimizer->config.averager || !(optimizer->config.max_norm > 0)) {
        return rc;
    }
    if (lane) {
        TRY(rc);
        /* A rank that failed says so in place of this round: no rank has updated anything. */
        return tally_lane_barrier(lane);
    }
    return tally__ddp_agree(optimizer->ddp, rc, NULL, NULL);
}

/* lane is the job's; NULL in tally_optimizer_step. */
static int update_all(tally_lane *lane, tally_optimizer *optimizer)
{
    double factor;

    TRY(agree_on_factor(lane, optimizer, &factor));
    clip_others(optimizer, factor);
    if (optimizer->zero && optimizer->waits) {
        TRY(tally__zero_update_all(lane, optimizer, (float)factor));
    }
    for (size_t i = 0; i < optimizer->ddp->n_params; i++) {
        const struct tally__param *param = &optimizer->ddp->params[i];
        float *gradient = optimizer->updated[i].group >= 0 ? gradient_of(optimizer, i) : NULL;

        if (gradient) {
            bool is_clipped = !(param->flags & TALLY_PARAM_IGNORED);

            TRY(tally__update_param(optimizer, i, gradient,
                                    (float)(is_clipped ? factor : tally__loss_factor(optimizer))));
        }
    }
    return TALLY_OK;
}

/* Whether any rank still has a parameter to update. The same answer on all ranks. */
static bool is_anything_left(const tally_optimizer *optimizer)
{
    const tally_ddp *ddp = optimizer->ddp;

    for (size_t i = 0; i < ddp->n_params; i++) {
        int n_used = ddp->now.used[i];

        if (optimizer->updated[i].group >= 0 && !ddp->params[i].mean.sharded &&
            (ddp->params[i].bucket < 0 || (n_used > 0 && n_used < tally_group_size(ddp->group)))) {
            return true;
        }
    }
    return optimizer->waits;
}

static void trace_update(const tally_optimizer *optimizer, uint64_t begin_ns, uint64_t end_ns)
{
    tally__ddp_event(optimizer->ddp, NULL,
                     &(struct tally__trace_event){.kind = TALLY__EVENT_UPDATE,
                                                  .begin_ns = begin_ns,
                                                  .end_ns = end_ns,
                                                  .peer = TALLY__NO_PEER});
}

int tally__update_end(tally_optimizer *optimizer, tally_lane *lane)
{
    int rc;

    optimizer->times.start_ns = 0;
    optimizer->times.done_ns = 0;
    optimizer->times.sent_ns = 0;
    TRY(tally__loss_end(optimizer, lane));
    if (!optimizer->overlaps || optimizer->loss.skips || !is_anything_left(optimizer)) {
        return TALLY_OK;
    }
    optimizer->times.start_ns = tally__now_ns();
    rc = update_all(lane, optimizer);
    optimizer->times.done_ns = tally__now_ns() - optimizer->times.sent_ns;
    trace_update(optimizer, optimizer->times.start_ns, optimizer->times.done_ns);
    return rc;
}

/* ---- on call ---- */

static void note_time(tally_optimizer *optimizer, uint64_t update_ns, uint64_t exposed_ns)
{
    struct tally__update_times *times = &optimizer->times;

    times->update_ns = update_ns;
    times->exposed_ns = exposed_ns;
    times->total_update_ns += update_ns;
    times->total_exposed_ns += exposed_ns;
    times->n++;
}

/* If an averager follows, means may differ between ranks, and one rank alone may fail: all ranks
 * learn about it, so that none waits in the averager. */
static int update_on_call(tally_optimizer *optimizer)
{
    int rc = update_all(NULL, optimizer);

    return optimizer->config.averager ? tally__ddp_agree(optimizer->ddp, rc, NULL, NULL) : rc;
}

/* Steps that update nothing count for the averager, as they do for the hook: skipped steps, and
 * steps that all ranks refuse as NUMERIC. */
static int average(const tally_optimizer *optimizer, int updated)
{
    struct tally__outcome outcome;

    if (!optimizer->config.averager || (updated != TALLY_OK && updated != TALLY_NUMERIC)) {
        return updated;
    }
    outcome = tally__outcome_of(updated);
    TRY(tally__averager_run(optimizer->config.averager, NULL));
    return tally__outcome_return(&outcome);
}

int tally__update_over(tally_optimizer *optimizer, int status, bool counts)
{
    bool updates = counts && status == TALLY_OK && optimizer->overlaps && !optimizer->loss.skips;

    (void)pthread_mutex_lock(&optimizer->ddp->mutex);
    optimizer->n_updates += updates;
    optimizer->due = optimizer->due || (counts && status == TALLY_OK && !optimizer->overlaps);
    tally__loss_over(optimizer);
    (void)pthread_mutex_unlock(&optimizer->ddp->mutex);
    return counts && optimizer->overlaps ? average(optimizer, status) : status;
}

/* Updates, and records the time. */
static int use_means(tally_optimizer *optimizer)
{
    tally_ddp *ddp = optimizer->ddp;
    uint64_t start_ns = tally__now_ns();
    uint64_t ns;

    TRY(update_on_call(optimizer));
    ns = tally__now_ns() - start_ns;
    trace_update(optimizer, start_ns, start_ns + ns);
    (void)pthread_mutex_lock(&ddp->mutex);
    optimizer->n_updates++;
    note_time(optimizer, ns, ns);
    (void)pthread_mutex_unlock(&ddp->mutex);
    return TALLY_OK;
}

static int step(tally_optimizer *optimizer)
{
    if (optimizer->overlaps) {
        return tally__fail(TALLY_STATE, "tally_optimizer_step: with config.overlap, tally_ddp_wait "
                                        "has updated the parameters");
    }
    if (tally__is_no_sync(optimizer->ddp)) {
        return TALLY_OK;
    }
    if (!optimizer->due) {
        return tally__fail(TALLY_STATE, "tally_optimizer_step: there are no new means; call "
                                        "tally_ddp_wait first");
    }
    optimizer->due = false;
    tally__show_state(optimizer->ddp, TALLY__STATE_UPDATE, "tally_optimizer_step");
    return average(optimizer, optimizer->loss.skips ? TALLY_OK : use_means(optimizer));
}

int tally_optimizer_step(tally_optimizer *optimizer)
{
    TRY(tally__optimizer_check(optimizer, "tally_optimizer_step"));
    return tally__stats_note(optimizer->ddp, step(optimizer));
}

/* ---- times ---- */

/* The part of start..done after from. */
static uint64_t part_behind(uint64_t from_ns, uint64_t start_ns, uint64_t done_ns)
{
    return tally__ns_between(tally__larger_ns(start_ns, from_ns), done_ns);
}

uint64_t tally__update_take(tally_optimizer *optimizer, uint64_t called_ns)
{
    const tally_ddp *ddp = optimizer->ddp;
    uint64_t update_ns;
    uint64_t exposed_ns;
    uint64_t busy_until_ns = 0;

    if (!optimizer->overlaps || optimizer->loss.skips) {
        return 0;
    }
    update_ns = part_behind(0, optimizer->times.start_ns, optimizer->times.done_ns);
    exposed_ns = part_behind(called_ns, optimizer->times.start_ns, optimizer->times.done_ns);
    for (size_t b = 0; b < ddp->buckets.n; b++) {
        const struct tally__bucket_times *now = &ddp->buckets.bucket[b].now;
        /* Lanes that are busy at the same time count once. */
        uint64_t from_ns = tally__larger_ns(now->done_ns, busy_until_ns);

        update_ns += part_behind(0, from_ns, now->after_ns);
        exposed_ns += part_behind(called_ns, from_ns, now->after_ns);
        busy_until_ns = tally__larger_ns(now->after_ns, busy_until_ns);
    }
    note_time(optimizer, update_ns, exposed_ns);
    return exposed_ns;
}

static size_t state_bytes(const tally_optimizer *optimizer)
{
    size_t bytes = 0;

    for (size_t i = 0; i < optimizer->ddp->n_params; i++) {
        const struct tally__moments *moments = &optimizer->updated[i].moments;

        bytes += moments->n * (size_t)moments->n_states * sizeof(float);
    }
    return bytes;
}

int tally_optimizer_get_stats(tally_optimizer *optimizer, tally_optimizer_stats *stats)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_optimizer_stats, mean_exposed_update_s);
    const struct tally__update_times *times;
    tally_optimizer_stats answer = {0};
    double n;

    if (!optimizer) {
        return tally__fail(TALLY_ARG, "tally_optimizer_get_stats: optimizer is NULL");
    }
    TRY(tally__answer_check(kind, "tally_optimizer_get_stats", stats));
    if (!optimizer->ddp) {
        return tally__fail(TALLY_STATE, "tally_optimizer_get_stats: its ddp was freed");
    }
    TRY(tally__check_creator(&optimizer->ddp->group->creator));
    (void)pthread_mutex_lock(&optimizer->ddp->mutex);
    times = &optimizer->times;
    n = times->n > 0 ? (double)times->n : 1;
    answer.step = optimizer->n_updates;
    answer.skipped = optimizer->n_skipped;
    answer.loss_scale = tally_optimizer_loss_scale(optimizer);
    answer.norm = optimizer->norm;
    answer.state_bytes = state_bytes(optimizer);
    answer.update_s = tally__seconds(times->update_ns);
    answer.exposed_update_s = tally__seconds(times->exposed_ns);
    answer.mean_update_s = tally__seconds(times->total_update_ns) / n;
    answer.mean_exposed_update_s = tally__seconds(times->total_exposed_ns) / n;
    (void)pthread_mutex_unlock(&optimizer->ddp->mutex);
    tally__sized_write(kind, &answer, stats);
    return TALLY_OK;
}
