/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: taken down at the end of each step from times that were noted on the way, without a
 * lock of their own, a message, or an allocation. Any thread may ask.
 */
#include "ddp/stats.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"

static double seconds(uint64_t ns)
{
    return (double)ns / (double)TALLY__NS_PER_SECOND;
}

/* From one moment to another, 0 where the second came first. */
static uint64_t since(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

void tally__stats_take(tally_ddp *ddp, uint64_t called_ns)
{
    struct tally__step_stats *stats = &ddp->stats;
    uint64_t busy_until_ns = 0;

    stats->backward_ns = since(stats->first_ns, called_ns);
    stats->exposed_ns = since(called_ns, tally__now_ns());
    stats->comm_ns = 0;
    stats->wire_bytes = 0;
    stats->n_reduced = 0;
    stats->last_first_ns = stats->first_ns;
    for (size_t b = 0; b < ddp->buckets.n; b++) {
        struct tally__bucket *bucket = &ddp->buckets.bucket[b];

        bucket->last = bucket->now;
        /* Lanes that are busy at the same time count once. */
        stats->comm_ns +=
            since(bucket->last.start_ns > busy_until_ns ? bucket->last.start_ns : busy_until_ns,
                  bucket->last.done_ns);
        busy_until_ns = bucket->last.done_ns > busy_until_ns ? bucket->last.done_ns : busy_until_ns;
        stats->wire_bytes += bucket->last.bytes_sent;
        stats->n_reduced += !bucket->skipped;
    }
    stats->n_ready = ddp->n_ready;
    memcpy(ddp->last_order, ddp->ready_order, ddp->n_ready * sizeof *ddp->last_order);
    stats->total_backward_ns += stats->backward_ns;
    stats->total_comm_ns += stats->comm_ns;
    stats->total_exposed_ns += stats->exposed_ns;
    stats->total_wire_bytes += stats->wire_bytes;
}

static void fill_sizes(const tally_ddp *ddp, tally_ddp_stats *out)
{
    out->n_params = ddp->n_order;
    out->gradient_bytes = 0;
    out->unused_bytes = 0;
    for (size_t k = 0; k < ddp->n_order; k++) {
        const struct tally__param *param = &ddp->params[ddp->order[k]];

        out->gradient_bytes += param->bytes;
        out->unused_bytes += param->unused ? param->bytes : 0;
    }
}

static void fill_times(const struct tally__step_stats *stats, double n_steps, tally_ddp_stats *out)
{
    double hidden = seconds(since(stats->exposed_ns, stats->comm_ns));

    out->backward_s = seconds(stats->backward_ns);
    out->comm_s = seconds(stats->comm_ns);
    out->exposed_s = seconds(stats->exposed_ns);
    out->overlap = stats->comm_ns > 0 ? hidden / seconds(stats->comm_ns) : 0;
    out->mean_backward_s = seconds(stats->total_backward_ns) / n_steps;
    out->mean_comm_s = seconds(stats->total_comm_ns) / n_steps;
    out->mean_exposed_s = seconds(stats->total_exposed_ns) / n_steps;
}

int tally_ddp_get_stats(tally_ddp *ddp, tally_ddp_stats *stats)
{
    if (!ddp || !stats) {
        return tally__fail(TALLY_ARG, "tally_ddp_get_stats: %s is NULL", ddp ? "stats" : "ddp");
    }
    if (stats->size < sizeof *stats) {
        return tally__fail(TALLY_ARG, "tally_ddp_get_stats: size is %zu, expected at least %zu",
                           stats->size, sizeof *stats);
    }
    (void)pthread_mutex_lock(&ddp->mutex);
    stats->step = ddp->step;
    stats->rank = tally_group_rank(ddp->group);
    stats->world = tally_group_size(ddp->group);
    stats->n_buckets = ddp->buckets.n;
    stats->n_reduced = ddp->stats.n_reduced;
    stats->views = ddp->views;
    stats->rebuilt = ddp->stats.rebuilt;
    stats->hook = ddp->hook->table.name;
    stats->wire_bytes = ddp->stats.wire_bytes;
    stats->total_wire_bytes = ddp->stats.total_wire_bytes;
    fill_sizes(ddp, stats);
    fill_times(&ddp->stats, ddp->step > 0 ? (double)ddp->step : 1, stats);
    (void)pthread_mutex_unlock(&ddp->mutex);
    return TALLY_OK;
}

int tally_ddp_get_bucket_stats(tally_ddp *ddp, size_t bucket, tally_bucket_stats *stats)
{
    const struct tally__bucket *from;
    uint64_t first_ns;

    if (!ddp || !stats || stats->size < sizeof *stats) {
        return tally__fail(TALLY_ARG, "tally_ddp_get_bucket_stats: %s",
                           ddp && stats ? "size is too small" : "a pointer is NULL");
    }
    (void)pthread_mutex_lock(&ddp->mutex);
    if (bucket >= ddp->buckets.n) {
        size_t n = ddp->buckets.n;

        (void)pthread_mutex_unlock(&ddp->mutex);
        return tally__fail(TALLY_ARG, "there is no bucket %zu: they are 0..%zu", bucket, n - 1);
    }
    from = &ddp->buckets.bucket[bucket];
    first_ns = ddp->stats.last_first_ns;
    stats->n_params = (size_t)from->seen.n_params;
    stats->bytes = from->seen.n * tally_dtype_bytes(from->seen.dtype);
    stats->ready_s = seconds(since(first_ns, from->last.ready_ns));
    stats->launch_s = seconds(since(first_ns, from->last.launch_ns));
    stats->start_s = seconds(since(first_ns, from->last.start_ns));
    stats->done_s = seconds(since(first_ns, from->last.done_ns));
    stats->wire_bytes = from->last.bytes_sent;
    (void)pthread_mutex_unlock(&ddp->mutex);
    return TALLY_OK;
}

size_t tally_ddp_ready_order(tally_ddp *ddp, int *order, size_t n)
{
    size_t n_ready;

    if (!ddp || (!order && n > 0)) {
        return 0;
    }
    (void)pthread_mutex_lock(&ddp->mutex);
    n_ready = ddp->stats.n_ready;
    for (size_t k = 0; k < n && k < n_ready; k++) {
        order[k] = ddp->last_order[k];
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
    return n_ready;
}
