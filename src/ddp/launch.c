/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching: hands buckets to their lanes, strictly in order, and runs the hook and the observer
 * there. If gradients are copies, the lane copies them into the bucket before the hook and copies
 * the means back after it. Application threads enter with the ddp's mutex held; the job runs on a
 * lane. collect.c waits for the jobs.
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/status.h"
#include "comm/doing.h"
#include "comm/group.h"
#include "comm/threads.h"
#include "ddp/check.h"
#include "ddp/ddp.h"
#include "ddp/grad_cast.h"

/* Small gradients are reduced together up to this size: they should stay in the caches until the
 * means are copied back. */
#define TOGETHER_BYTES ((size_t)256 << 10)

/* Whether any rank has a gradient for the bucket. */
static int any_used(tally_lane *lane, const struct tally__bucket *bucket, bool *used)
{
    uint64_t any = 0;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        any |= bucket->ddp->now.used[bucket->seen.params[k].index] != 0;
    }
    TRY(tally__agree_any(lane, any, &any));
    *used = any != 0;
    return TALLY_OK;
}

/* A range of a bucket's parameters. */
struct range {
    int first;
    int end;
};

static size_t bytes_of(const struct tally__bucket *bucket, int k)
{
    return bucket->seen.params[k].n * tally_dtype_bytes(bucket->seen.dtype);
}

/* An elementwise hook gets large copies one by one and adjacent small ones together, the same on
 * all ranks; one that sends nothing gets each alone. Other hooks get the whole bucket. */
static struct range next_range(const struct tally__bucket *bucket, int first)
{
    const tally_hook *hook = bucket->ddp->hook;
    struct range range = {first, first + 1};
    size_t bytes = bytes_of(bucket, first);

    if (hook->private.sends_nothing) {
        return range;
    }
    if (!tally__hook_is_elementwise(hook, &bucket->seen)) {
        range.end = bucket->seen.n_params;
        return range;
    }
    while (range.end < bucket->seen.n_params && bytes_of(bucket, first) < TALLY__LARGE_BYTES &&
           bytes_of(bucket, range.end) < TALLY__LARGE_BYTES && bytes < TOGETHER_BYTES) {
        bytes += bytes_of(bucket, range.end++);
    }
    return range;
}

static void scale(const struct tally__bucket *bucket, int dtype, size_t n, void *x)
{
    tally__fpenv saved = tally__fpenv_enter();

    tally__scale_array(dtype, n, x, bucket->factor);
    tally__fpenv_leave(saved);
}

/* fp32 is scaled before the hook, so that residuals do not depend on the factor. Halves would lose
 * precision: they are scaled after it. */
static void scale_before(const struct tally__bucket *bucket, size_t n, void *gradient)
{
    if (bucket->factor != 1 && bucket->seen.dtype == TALLY_F32) {
        scale(bucket, TALLY_F32, n, gradient);
    }
}

static void scale_after(const struct tally__bucket *bucket, int dtype, size_t n, void *mean)
{
    if (bucket->factor != 1 && bucket->seen.dtype != TALLY_F32) {
        scale(bucket, dtype, n, mean);
    }
}

/* Gradients go into the bucket. A parameter without a gradient on this rank counts as zeros. */
static void gather(const struct tally__bucket *bucket, struct range range)
{
    for (int k = range.first; k < range.end; k++) {
        const tally_bucket_param *entry = &bucket->seen.params[k];
        const struct tally__param *param = &bucket->ddp->params[entry->index];

        if (bucket->ddp->now.used[entry->index]) {
            tally__grad_gather(param, entry->gradient);
            scale_before(bucket, entry->n, entry->gradient);
        } else {
            memset(entry->gradient, 0, bytes_of(bucket, k));
        }
    }
}

/* The hook's result becomes the mean. Parameters without a local gradient are deferred, unless the
 * mean has its own array. */
static void take_mean(const struct tally__bucket *bucket, const struct tally__param *param,
                      void *left)
{
    if (tally__mean_is_apart(param)) {
        tally__grad_spread(param, left);
        scale_after(bucket, param->dtype, param->n, param->mean.array);
        return;
    }
    scale_after(bucket, param->dtype, param->n, left);
    if (bucket->ddp->now.used[param - bucket->ddp->params]) {
        tally__grad_spread(param, left);
    }
}

/* Means go back to their parameters. The end of the step handles parameters without a gradient on
 * this rank (step_end.c): only then is it known whether another rank had one. */
static void spread(const struct tally__bucket *bucket, struct range range)
{
    for (int k = range.first; k < range.end; k++) {
        const tally_bucket_param *entry = &bucket->seen.params[k];
        const struct tally__param *param = &bucket->ddp->params[entry->index];

        take_mean(bucket, param, entry->gradient);
    }
}

void tally__bucket_gather(const struct tally__bucket *bucket)
{
    if (bucket->ddp->views) {
        scale_before(bucket, bucket->seen.n, bucket->seen.data);
    } else {
        gather(bucket, (struct range){0, bucket->seen.n_params});
    }
}

void tally__bucket_spread(const struct tally__bucket *bucket)
{
    spread(bucket, (struct range){0, bucket->seen.n_params});
}

/* Runs the hook; shard_starts is NULL for the mean of the whole bucket. If the hook does not use
 * residuals, those of an earlier hook are added to the gradients first. */
int tally__run_hook(tally_lane *lane, tally_ddp *ddp, const tally_bucket *bucket,
                    const size_t *shard_starts)
{
    if (!ddp->hook->table.feedback) {
        TRY(tally__residuals_deliver(ddp->residuals, bucket));
    }
    return tally__hook_reduce(ddp->hook, lane, bucket, shard_starts);
}

/* Whether the hook can reduce a gradient in place. */
static bool fits_in_place(const struct tally__bucket *bucket, int k)
{
    const tally_ddp *ddp = bucket->ddp;
    const tally_hook *hook = ddp->hook;
    int index = bucket->seen.params[k].index;
    bool is_worth = bytes_of(bucket, k) >= TALLY__LARGE_BYTES &&
                    tally__hook_is_elementwise(hook, &bucket->seen);

    return (is_worth || hook->private.sends_nothing) && ddp->now.used[index] &&
           ddp->params[index].grad.dtype == bucket->seen.dtype;
}

static int reduce_range(tally_lane *lane, const struct tally__bucket *bucket, struct range range)
{
    tally_ddp *ddp = bucket->ddp;
    tally_bucket part = bucket->seen;
    tally_bucket_param first = part.params[range.first];

    part.params += range.first;
    part.n_params = range.end - range.first;
    part.data = first.gradient;
    part.n = 0;
    for (int k = 0; k < part.n_params; k++) {
        part.n += part.params[k].n;
    }
    if (fits_in_place(bucket, range.first)) {
        const struct tally__param *param = &ddp->params[first.index];

        first.gradient = param->grad.array;
        part.params = &first;
        part.data = first.gradient;
        scale_before(bucket, param->n, param->grad.array);
        TRY(tally__run_hook(lane, ddp, &part, NULL));
        take_mean(bucket, param, param->grad.array);
        return TALLY_OK;
    }
    gather(bucket, range);
    TRY(tally__run_hook(lane, ddp, &part, NULL));
    spread(bucket, range);
    return TALLY_OK;
}

/* The application's array with all gradients of the bucket. NULL: there is none, or this rank has
 * zeros for a parameter. */
static unsigned char *own_array(const struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;
    unsigned char *first = NULL;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        int index = bucket->seen.params[k].index;

        if (!ddp->now.used[index]) {
            return NULL;
        }
        if (!first && ddp->params[index].n > 0) {
            first = ddp->params[index].grad.array;
        }
    }
    return first;
}

static void point_to(const struct tally__bucket *bucket, unsigned char *data)
{
    struct tally__buckets *buckets = &bucket->ddp->buckets;
    tally_bucket_param *params = buckets->params + (bucket->seen.params - buckets->params);

    for (int k = 0; k < bucket->seen.n_params; k++) {
        params[k].gradient = data + params[k].offset * tally_dtype_bytes(bucket->seen.dtype);
    }
}

/* The hook works on the application's array. */
static int reduce_array(tally_lane *lane, const struct tally__bucket *bucket, unsigned char *array)
{
    tally_bucket seen = bucket->seen;
    int rc;

    seen.data = array;
    point_to(bucket, array);
    scale_before(bucket, seen.n, array);
    rc = tally__run_hook(lane, bucket->ddp, &seen, NULL);
    point_to(bucket, bucket->seen.data);
    scale_after(bucket, seen.dtype, seen.n, array);
    return rc;
}

static int reduce_whole(tally_lane *lane, const struct tally__bucket *bucket)
{
    tally__bucket_gather(bucket);
    TRY(tally__run_hook(lane, bucket->ddp, &bucket->seen, NULL));
    tally__bucket_spread(bucket);
    return TALLY_OK;
}

static int reduce_copies(tally_lane *lane, const struct tally__bucket *bucket)
{
    struct range range;

    if (bucket->is_run) {
        unsigned char *array = own_array(bucket);

        return array ? reduce_array(lane, bucket, array) : reduce_whole(lane, bucket);
    }
    for (int k = 0; k < bucket->seen.n_params; k = range.end) {
        range = next_range(bucket, k);
        TRY(reduce_range(lane, bucket, range));
    }
    return TALLY_OK;
}

int tally__bucket_reduce(tally_lane *lane, struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;

    if (ddp->config.skip_unused) {
        bool used = true;

        TRY(any_used(lane, bucket, &used));
        if (!used) {
            bucket->skipped = true;
            return TALLY_OK;
        }
    }
    return ddp->views ? reduce_whole(lane, bucket) : reduce_copies(lane, bucket);
}

static int reduce_bucket(tally_lane *lane, struct tally__bucket *bucket)
{
    tally_ddp *ddp = bucket->ddp;

    bucket->skipped = false;
    bucket->factor = 1;
    if (ddp->presence.stopped) {
        return tally__join_stopped(ddp);
    }
    bucket->seen.shadows = tally__is_shadow(ddp);
    if (ddp->checks) {
        TRY(tally__checks_bucket(lane, bucket));
    }
    return ddp->observer.reduce ? ddp->observer.reduce(ddp->observer.user, lane, bucket)
                                : tally__bucket_reduce(lane, bucket);
}

/* Says what the lane is doing, for messages. */
static void say_doing(tally_lane *lane, const struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;

    if (ddp->words.step_call) {
        tally__doing_call(lane, ddp->words.step_call, bucket->seen.step);
    } else {
        tally__doing_part(lane, ddp, bucket->seen.index, bucket->seen.params[0].index,
                          (size_t)bucket->seen.n_params);
    }
}

/* The last bucket that every step has: when it is launched, all gradients are announced. */
static bool is_last(const struct tally__bucket *bucket)
{
    const struct tally__buckets *buckets = &bucket->ddp->buckets;

    return (size_t)(bucket - buckets->bucket) + 1 == buckets->n;
}

static void trace_bucket(const tally_lane *lane, const struct tally__bucket *bucket)
{
    const struct tally__bucket_times *now = &bucket->now;

    tally__ddp_event(bucket->ddp, bucket,
                     &(struct tally__trace_event){.kind = TALLY__EVENT_BUCKET,
                                                  .begin_ns = now->start_ns,
                                                  .end_ns = now->done_ns,
                                                  .bytes = (float)lane->job.bytes_sent,
                                                  .peer = TALLY__NO_PEER});
    if (now->after_ns > now->done_ns) {
        tally__ddp_event(bucket->ddp, bucket,
                         &(struct tally__trace_event){.kind = TALLY__EVENT_UPDATE,
                                                      .begin_ns = now->done_ns,
                                                      .end_ns = now->after_ns,
                                                      .peer = TALLY__NO_PEER});
    }
}

static int bucket_job(tally_lane *lane, void *user)
{
    struct tally__bucket *bucket = user;
    tally_ddp *ddp = bucket->ddp;
    /* A wire type of F32: all dtypes travel unchanged, unless a wrapper sets another one. */
    struct tally__reduction reduction = {.wire.dtype = TALLY_F32, .residuals = ddp->residuals};
    const struct tally__phases_of of = {.tracer = ddp->trace.tracer->id,
                                        .step = (uint32_t)bucket->seen.step + 1,
                                        .bucket = (uint16_t)bucket->seen.index,
                                        .ddp = ddp->trace.number};
    int rc;

    say_doing(lane, bucket);
    bucket->now.aside_bytes = 0;
    bucket->now.late_bytes = 0;
    bucket->now.late_ns = 0;
    bucket->now.start_ns = tally__now_ns();
    bucket->seen.divisor = ddp->config.join && ddp->config.join_divides_by_active
                               ? ddp->presence.n_active
                               : tally_group_size(ddp->group);
    assert(bucket->seen.divisor > 0);
    /* Without lane threads a bucket cannot begin before wait. */
    tally__arrivals_begin(lane, &ddp->lateness.arrivals[lane->index],
                          tally__threads_count(ddp->group->threads) > 0 ? bucket->now.launch_ns
                                                                        : bucket->now.start_ns,
                          is_last(bucket));
    tally__reduction_enter(&reduction);
    tally__phases_begin(&of);
    tally__waits_show(ddp->trace.status);
    tally__status_bucket(ddp->trace.status, bucket->seen.index, bucket->now.start_ns);
    rc = reduce_bucket(lane, bucket);
    bucket->now.done_ns = tally__phases_end();
    tally__reduction_enter(NULL);
    reduction.counts.host_bytes = lane->job.host_bytes;
    bucket->now.counts = reduction.counts;
    bucket->now.after_ns = bucket->now.done_ns;
    if (rc == TALLY_OK && !bucket->skipped && ddp->observer.after_reduce) {
        rc = ddp->observer.after_reduce(ddp->observer.user, lane, bucket);
    }
    trace_bucket(lane, bucket);
    tally__status_bucket_done(ddp->trace.status, bucket->now.after_ns);
    return rc == TALLY_OK && is_last(bucket) ? tally__step_count_used(lane, bucket) : rc;
}

int tally__launch(tally_ddp *ddp, struct tally__bucket *bucket)
{
    /* With join, buckets must follow the presence job, which runs on lane 0. */
    bool many = ddp->hook->table.concurrent && !ddp->config.join;
    int lane = many ? bucket->seen.index % ddp->group->n_lanes : 0;
    struct tally__job job = {.fn = bucket_job, .user = bucket, .wake = TALLY__WAKE};

    assert(bucket->state == TALLY__BUCKET_FILLING);
    bucket->seen.step = ddp->step + ddp->steps_before;
    /* A gradient was announced a moment ago: one reading of the clock is enough. */
    bucket->now.launch_ns = ddp->now.marked_ns ? ddp->now.marked_ns : tally__now_ns();
    ddp->now.marked_ns = 0;
    tally__ddp_event(ddp, bucket,
                     &(struct tally__trace_event){.kind = TALLY__EVENT_LAUNCH,
                                                  .begin_ns = bucket->now.launch_ns,
                                                  .end_ns = bucket->now.launch_ns,
                                                  .bytes = (float)bucket->seen.n,
                                                  .peer = TALLY__NO_PEER});
    TRY(tally__check_alive(ddp->group));
    if (is_last(bucket)) {
        ddp->now.lacks_gradients = ddp->now.n_absent > 0;
    }
    /* The last bucket's job ends with an agreement. */
    job.end = is_last(bucket) ? TALLY__ENDS_ITSELF : TALLY__ENDS_WITH_ROUND;
    TRY(tally__submit(&ddp->group->lanes[lane], &job, &bucket->future));
    bucket->state = TALLY__BUCKET_LAUNCHED;
    return TALLY_OK;
}

static int launch_complete(tally_ddp *ddp)
{
    struct tally__buckets *buckets = &ddp->buckets;
    size_t n = buckets->n + buckets->n_delayed;

    if (tally__checks_hold(ddp)) {
        return TALLY_OK;
    }
    while (ddp->now.next_bucket < n && buckets->bucket[ddp->now.next_bucket].n_missing == 0) {
        TRY(tally__launch(ddp, &buckets->bucket[ddp->now.next_bucket]));
        ddp->now.next_bucket++;
    }
    return ddp->now.next_bucket == n ? tally__step_end_launch(ddp) : TALLY_OK;
}

int tally__launch_complete(tally_ddp *ddp)
{
    int rc = launch_complete(ddp);

    ddp->now.marked_ns = 0;
    return rc;
}
