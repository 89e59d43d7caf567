/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: recorded at the end of each step from times noted during it, without a separate lock,
 * a message, or an allocation. Any thread may read them.
 */
#include "ddp/ddp.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/sized.h"
#include "base/status.h"

void tally__counts_add(struct tally__counts *to, const struct tally__counts *from)
{
    to->saturated += from->saturated;
    to->compressed_from += from->compressed_from;
    to->compressed_to += from->compressed_to;
    to->host_bytes += from->host_bytes;
    to->offered_bytes += from->offered_bytes;
    to->exchanges += from->exchanges;
}

void tally__stats_total(struct tally__step_stats *stats)
{
    stats->other_bytes = stats->total_other_bytes - stats->taken_other_bytes;
    stats->taken_other_bytes = stats->total_other_bytes;
    stats->n_steps++;
    stats->total_forward_ns += stats->forward_ns;
    stats->total_backward_ns += stats->backward_ns;
    stats->total_comm_ns += stats->comm_ns;
    stats->total_exposed_ns += stats->exposed_ns;
    stats->total_wire_bytes += stats->wire_bytes;
    tally__counts_add(&stats->total_counts, &stats->counts);
}

void tally__stats_take(tally_ddp *ddp, uint64_t called_ns)
{
    struct tally__step_stats *stats = &ddp->stats;
    uint64_t busy_until_ns = 0;
    uint64_t now_ns = tally__now_ns();

    stats->last_begin_ns = stats->last_end_ns > 0 ? stats->last_end_ns : stats->first_ns;
    stats->forward_ns = tally__ns_between(stats->last_begin_ns, stats->first_ns);
    stats->last_end_ns = now_ns;
    stats->backward_ns = tally__ns_between(stats->first_ns, called_ns);
    stats->exposed_ns = tally__ns_between(called_ns, now_ns);
    if (ddp->observer.step_times) {
        stats->exposed_ns -= ddp->observer.step_times(ddp->observer.user, called_ns);
    }
    stats->comm_ns = 0;
    stats->wire_bytes = 0;
    stats->counts = (struct tally__counts){0};
    stats->n_reduced = 0;
    stats->last_first_ns = stats->first_ns;
    for (size_t b = 0; b < ddp->buckets.n; b++) {
        struct tally__bucket *bucket = &ddp->buckets.bucket[b];

        /* Questions between ranks do not count for the bucket; bytes sent at the end of the step
         * do. */
        bucket->now.bytes_sent += bucket->now.late_bytes - bucket->now.aside_bytes;
        stats->total_other_bytes += bucket->now.aside_bytes - bucket->now.late_bytes;
        stats->comm_ns += bucket->now.late_ns;
        bucket->last = bucket->now;
        /* Lanes that are busy at the same time count once. */
        stats->comm_ns += tally__ns_between(tally__larger_ns(bucket->last.start_ns, busy_until_ns),
                                            bucket->last.done_ns);
        busy_until_ns = tally__larger_ns(bucket->last.done_ns, busy_until_ns);
        stats->wire_bytes += bucket->last.bytes_sent;
        tally__counts_add(&stats->counts, &bucket->last.counts);
        stats->n_reduced += !bucket->skipped;
    }
    stats->n_ready = ddp->ready.n;
    memcpy(ddp->ready.last, ddp->ready.order, ddp->ready.n * sizeof *ddp->ready.last);
    tally__stats_total(stats);
}

void tally__stats_other(tally_ddp *ddp, uint64_t bytes)
{
    (void)pthread_mutex_lock(&ddp->mutex);
    ddp->stats.total_other_bytes += bytes;
    (void)pthread_mutex_unlock(&ddp->mutex);
}

int tally__stats_note(tally_ddp *ddp, int status)
{
    if (status != TALLY_OK) {
        uint64_t now_ns = tally__now_ns();

        (void)pthread_mutex_lock(&ddp->mutex);
        tally__ddp_event(
            ddp, NULL,
            &(struct tally__trace_event){
                .kind = TALLY__EVENT_ERROR, .begin_ns = now_ns, .end_ns = now_ns, .peer = status});
        ddp->stats.error = status;
        ddp->stats.error_step = ddp->step;
        (void)snprintf(ddp->stats.error_text, sizeof ddp->stats.error_text, "%s",
                       tally_last_error());
        tally__status_fail(ddp->trace.status, tally_last_error());
        (void)pthread_mutex_unlock(&ddp->mutex);
        tally__ddp_report(ddp, status);
    } else {
        tally__status_call_over(ddp->trace.status);
    }
    return status;
}

static void fill_config(const tally_ddp *ddp, tally_ddp_stats *out)
{
    out->rank = tally_group_rank(ddp->group);
    out->world = tally_group_size(ddp->group);
    out->backend = tally_group_backend(ddp->group);
    out->views = ddp->views;
    out->find_unused = ddp->config.find_unused != 0;
    out->static_graph = ddp->config.static_graph != 0;
    out->join = ddp->config.join != 0;
    out->first_bucket_bytes = ddp->packed_cap ? ddp->packed_cap : ddp->caps[0];
    out->bucket_cap_bytes = ddp->packed_cap ? ddp->packed_cap : ddp->caps[ddp->n_caps - 1];
    out->hook = ddp->hook->table.name;
}

static void fill_sizes(const tally_ddp *ddp, tally_ddp_stats *out)
{
    out->n_params = ddp->n_order;
    out->n_buckets = ddp->buckets.n;
    out->n_delayed_buckets = ddp->buckets.n_delayed;
    out->gradient_bytes = 0;
    out->unused_bytes = 0;
    out->buffer_bytes = 0;
    out->dtypes = 0;
    for (size_t i = 0; i < ddp->n_buffers; i++) {
        out->buffer_bytes += ddp->buffers[i].bytes;
    }
    for (size_t k = 0; k < ddp->n_order; k++) {
        const struct tally__param *param = &ddp->params[ddp->order[k]];

        out->dtypes |= 1u << param->grad.dtype;
        out->gradient_bytes += param->grad.bytes;
        out->unused_bytes += param->unused ? param->grad.bytes : 0;
    }
}

static void fill_counts(const struct tally__step_stats *stats, tally_ddp_stats *out)
{
    out->wire_bytes = stats->wire_bytes;
    out->total_wire_bytes = stats->total_wire_bytes;
    out->other_wire_bytes = stats->other_bytes;
    out->total_other_wire_bytes = stats->total_other_bytes;
    out->saturated = stats->counts.saturated;
    out->total_saturated = stats->total_counts.saturated;
    out->compressed_from = stats->counts.compressed_from;
    out->compressed_to = stats->counts.compressed_to;
    out->total_compressed_from = stats->total_counts.compressed_from;
    out->total_compressed_to = stats->total_counts.compressed_to;
    out->host_bytes = stats->counts.host_bytes;
    out->total_host_bytes = stats->total_counts.host_bytes;
}

static void fill_times(const struct tally__step_stats *stats, tally_ddp_stats *out)
{
    double hidden = tally__seconds(tally__ns_between(stats->exposed_ns, stats->comm_ns));
    double n_steps = stats->n_steps > 0 ? (double)stats->n_steps : 1;

    out->forward_s = tally__seconds(stats->forward_ns);
    out->backward_s = tally__seconds(stats->backward_ns);
    out->comm_s = tally__seconds(stats->comm_ns);
    out->exposed_s = tally__seconds(stats->exposed_ns);
    out->overlap = stats->comm_ns > 0 ? hidden / tally__seconds(stats->comm_ns) : 0;
    out->mean_forward_s = tally__seconds(stats->total_forward_ns) / n_steps;
    out->mean_backward_s = tally__seconds(stats->total_backward_ns) / n_steps;
    out->mean_comm_s = tally__seconds(stats->total_comm_ns) / n_steps;
    out->mean_exposed_s = tally__seconds(stats->total_exposed_ns) / n_steps;
}

/* An older program's struct may have less room for the text. */
static void cut_text(tally_ddp_stats *answer, size_t size)
{
    size_t start = offsetof(tally_ddp_stats, error_text);

    if (size > start && size < start + sizeof answer->error_text) {
        answer->error_text[size - start - 1] = '\0';
    }
}

int tally_ddp_get_stats(tally_ddp *ddp, tally_ddp_stats *stats)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_ddp_stats, mean_exposed_s);
    tally_ddp_stats answer = {0};

    TRY(tally__check_ddp(ddp, "tally_ddp_get_stats"));
    TRY(tally__answer_check(kind, "tally_ddp_get_stats", stats));
    (void)pthread_mutex_lock(&ddp->mutex);
    answer.step = ddp->step;
    answer.n_reduced = ddp->stats.n_reduced;
    answer.rebuilt = ddp->stats.rebuilt;
    answer.error = ddp->stats.error;
    answer.error_step = ddp->stats.error_step;
    (void)snprintf(answer.error_text, sizeof answer.error_text, "%s", ddp->stats.error_text);
    fill_config(ddp, &answer);
    fill_sizes(ddp, &answer);
    fill_counts(&ddp->stats, &answer);
    fill_times(&ddp->stats, &answer);
    (void)pthread_mutex_unlock(&ddp->mutex);
    cut_text(&answer, stats->size);
    tally__sized_write(kind, &answer, stats);
    return TALLY_OK;
}

static int no_bucket(const char *call, size_t bucket, size_t n)
{
    if (n == 0) {
        return tally__fail(TALLY_ARG, "%s: there is no bucket %zu: a step has none", call, bucket);
    }
    return tally__fail(TALLY_ARG, "%s: there is no bucket %zu: they are 0..%zu", call, bucket,
                       n - 1);
}

int tally_ddp_get_bucket_stats(tally_ddp *ddp, size_t bucket, tally_bucket_stats *stats)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_bucket_stats, wire_bytes);
    const struct tally__bucket *from;
    tally_bucket_stats answer = {0};
    uint64_t first_ns;
    size_t n;

    TRY(tally__check_ddp(ddp, "tally_ddp_get_bucket_stats"));
    TRY(tally__answer_check(kind, "tally_ddp_get_bucket_stats", stats));
    (void)pthread_mutex_lock(&ddp->mutex);
    n = ddp->buckets.n;
    if (bucket >= n) {
        (void)pthread_mutex_unlock(&ddp->mutex);
        return no_bucket("tally_ddp_get_bucket_stats", bucket, n);
    }
    from = &ddp->buckets.bucket[bucket];
    first_ns = ddp->stats.last_first_ns;
    answer.measured = from->last.done_ns > 0;
    answer.n_params = (size_t)from->seen.n_params;
    answer.bytes = from->seen.n * tally_dtype_bytes(from->seen.dtype);
    answer.ready_s = tally__seconds(tally__ns_between(first_ns, from->last.ready_ns));
    answer.launch_s = tally__seconds(tally__ns_between(first_ns, from->last.launch_ns));
    answer.start_s = tally__seconds(tally__ns_between(first_ns, from->last.start_ns));
    answer.done_s = tally__seconds(tally__ns_between(first_ns, from->last.done_ns));
    answer.wire_bytes = from->last.bytes_sent;
    answer.host_bytes = from->last.counts.host_bytes;
    (void)pthread_mutex_unlock(&ddp->mutex);
    tally__sized_write(kind, &answer, stats);
    return TALLY_OK;
}

int tally_ddp_explain(tally_ddp *ddp, size_t bucket, tally_bucket_choice *choice)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_bucket_choice, reason);
    const struct tally__bucket_times *last;
    tally_bucket_choice answer = {0};

    TRY(tally__check_between_steps(ddp, "tally_ddp_explain"));
    TRY(tally__answer_check(kind, "tally_ddp_explain", choice));
    if (bucket >= ddp->buckets.n) {
        return no_bucket("tally_ddp_explain", bucket, ddp->buckets.n);
    }
    last = &ddp->buckets.bucket[bucket].last;
    answer.hook = ddp->hook->table.name;
    answer.measured_s = tally__seconds(tally__ns_between(last->start_ns, last->done_ns));
    ddp->hook->private.explain(ddp->hook->state, bucket, &answer);
    tally__sized_write(kind, &answer, choice);
    return TALLY_OK;
}

size_t tally_ddp_bucket_params(tally_ddp *ddp, size_t bucket, int *params, size_t n)
{
    const tally_bucket *seen;
    size_t n_params = 0;

    if (!ddp || (!params && n > 0) || !tally__is_creator(&ddp->group->creator)) {
        return 0;
    }
    (void)pthread_mutex_lock(&ddp->mutex);
    if (bucket < ddp->buckets.n + ddp->buckets.n_delayed) {
        seen = &ddp->buckets.bucket[bucket].seen;
        n_params = (size_t)seen->n_params;
        for (size_t k = 0; k < n && k < n_params; k++) {
            params[k] = seen->params[k].index;
        }
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
    return n_params;
}

size_t tally_ddp_ready_order(tally_ddp *ddp, int *order, size_t n)
{
    size_t n_ready;

    if (!ddp || (!order && n > 0) || !tally__is_creator(&ddp->group->creator)) {
        return 0;
    }
    (void)pthread_mutex_lock(&ddp->mutex);
    n_ready = ddp->stats.n_ready;
    for (size_t k = 0; k < n && k < n_ready; k++) {
        order[k] = ddp->ready.last[k];
    }
    (void)pthread_mutex_unlock(&ddp->mutex);
    return n_ready;
}
