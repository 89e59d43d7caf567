/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ddp in traces: its events, and what a trace file says of its buckets and steps. Any thread
 * puts events; the thread that waits writes to the file.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"

/* Buckets whose choices a trace has: they are repeated in every segment. */
#define MOST_CHOICES 64

void tally__ddp_trace_begin(tally_ddp *ddp)
{
    struct tally__tracer *tracer = ddp->group->tracer;

    ddp->trace.tracer = tracer;
    ddp->trace.number =
        (uint8_t)(atomic_fetch_add_explicit(&tracer->n_ddps, 1, memory_order_relaxed) % 255 + 1);
    tally__tracer_begin(tracer);
    ddp->trace.status = tally__tracer_enter(tracer, ddp->trace.number);
}

void tally__ddp_event(const tally_ddp *ddp, const struct tally__bucket *bucket,
                      const struct tally__trace_event *event)
{
    struct tally__trace_event filled = *event;

    filled.ddp = ddp->trace.number;
    filled.bucket = bucket ? (uint16_t)bucket->seen.index : TALLY__NO_BUCKET;
    if (filled.step == 0) {
        filled.step = (uint32_t)(ddp->step + ddp->steps_before + 1);
    }
    tally__event_put(ddp->trace.tracer->id, &filled);
}

void tally__ddp_trace_checkpoint(const tally_ddp *ddp, uint64_t begin_ns)
{
    tally__ddp_event(ddp, NULL,
                     &(struct tally__trace_event){.kind = TALLY__EVENT_CHECKPOINT,
                                                  .begin_ns = begin_ns,
                                                  .end_ns = tally__now_ns(),
                                                  .peer = TALLY__NO_PEER});
}

/* Tells the open file the buckets and the hook, if it does not know them. */
static void tell_buckets(tally_ddp *ddp)
{
    const struct tally__buckets *buckets = &ddp->buckets;
    size_t n = buckets->n + buckets->n_delayed;
    size_t bytes = sizeof(struct tally__trace_buckets) + n * sizeof(struct tally__trace_bucket);
    uint64_t file = tally__tracer_file(ddp->trace.tracer);
    struct tally__trace_buckets *head;
    struct tally__trace_bucket *bucket;

    if (ddp->trace.told_file == file && ddp->trace.told_generation == ddp->generation &&
        ddp->trace.told_hook == ddp->hook) {
        return;
    }
    head = tally__alloc(bytes, "buckets in the trace");
    if (!head) {
        return;
    }
    head->ddp = ddp->trace.number;
    head->generation = ddp->generation;
    head->n = (uint32_t)n;
    head->n_params = (uint32_t)ddp->n_order;
    (void)snprintf(head->hook, sizeof head->hook, "%s", ddp->hook->table.name);
    bucket = (struct tally__trace_bucket *)(head + 1);
    for (size_t b = 0; b < n; b++) {
        const tally_bucket *seen = &buckets->bucket[b].seen;

        bucket[b].bytes = seen->n * tally_dtype_bytes(seen->dtype);
        bucket[b].n_params = (uint32_t)seen->n_params;
        bucket[b].is_delayed = b >= buckets->n;
        (void)snprintf(bucket[b].first_param, sizeof bucket[b].first_param, "%s",
                       seen->params[0].name);
    }
    tally__tracer_keep(ddp->trace.tracer, TALLY__RECORD_BUCKETS, ddp->trace.number, head, bytes);
    tally__free(head);
    ddp->trace.told_file = file;
    ddp->trace.told_generation = ddp->generation;
    ddp->trace.told_hook = ddp->hook;
    ddp->trace.told_explained = 0;
}

/* Tells the choices of auto and their reasons, if the open file lacks them. After tell_buckets. */
static void tell_choices(tally_ddp *ddp, uint64_t step)
{
    uint64_t n_explained = ddp->hook->private.n_explained(ddp->hook->state);
    size_t n = ddp->buckets.n < MOST_CHOICES ? ddp->buckets.n : MOST_CHOICES;
    size_t bytes = sizeof(struct tally__trace_choices) + n * sizeof(struct tally__trace_choice);
    struct tally__trace_choices *head;
    struct tally__trace_choice *to;

    if (n_explained == ddp->trace.told_explained) {
        return;
    }
    head = tally__alloc(bytes, "choices in the trace");
    if (!head) {
        return;
    }
    *head = (struct tally__trace_choices){
        .ddp = ddp->trace.number, .generation = ddp->generation, .n = (uint32_t)n, .step = step};
    to = (struct tally__trace_choice *)(head + 1);
    for (size_t b = 0; b < n; b++) {
        const struct tally__bucket_times *last = &ddp->buckets.bucket[b].last;
        tally_bucket_choice from = {.hook = ddp->hook->table.name};

        ddp->hook->private.explain(ddp->hook->state, b, &from);
        head->is_settled = from.settled != 0;
        head->cap_bytes = from.cap_bytes;
        head->cap_gain = from.cap_gain;
        (void)snprintf(to[b].hook, sizeof to[b].hook, "%s", from.hook);
        (void)snprintf(to[b].runner_up, sizeof to[b].runner_up, "%s",
                       from.runner_up ? from.runner_up : "");
        to[b].predicted_s = from.predicted_s;
        to[b].measured_s = tally__seconds(tally__ns_between(last->start_ns, last->done_ns));
        to[b].runner_up_s = from.runner_up_s;
        to[b].error = from.error;
        (void)snprintf(to[b].reason, sizeof to[b].reason, "%s", from.reason);
    }
    tally__tracer_keep(ddp->trace.tracer, TALLY__RECORD_CHOICES, ddp->trace.number, head, bytes);
    tally__free(head);
    ddp->trace.told_explained = n_explained;
}

/* Bytes that this rank would send for the buckets in a two-phase exchange without a codec. */
static uint64_t plain_bytes(const tally_ddp *ddp)
{
    uint64_t bytes = 0;
    uint64_t world = (uint64_t)ddp->group->size;

    for (size_t b = 0; b < ddp->buckets.n; b++) {
        const tally_bucket *seen = &ddp->buckets.bucket[b].seen;

        bytes += seen->n * tally_dtype_bytes(seen->dtype);
    }
    return 2 * bytes * (world - 1) / world;
}

/* The hook inside all wrappers knows it; on ranks that do not call it, nobody does. */
static double compression_error(const tally_ddp *ddp)
{
    const tally_hook *hook = tally__hook_innermost(ddp->hook);

    return hook->private.get_error(hook->state);
}

static void tell_step(tally_ddp *ddp, const struct tally__waited_step *waited)
{
    const struct tally__step_stats *stats = &ddp->stats;
    struct tally__trace_step step = {.ddp = ddp->trace.number,
                                     .step = waited->step,
                                     .begin_ns = stats->last_begin_ns,
                                     .end_ns = stats->last_end_ns,
                                     .forward_ns = stats->forward_ns,
                                     .backward_ns = stats->backward_ns,
                                     .exposed_ns = stats->exposed_ns,
                                     .comm_ns = stats->comm_ns,
                                     .wire_bytes = stats->wire_bytes,
                                     .plain_bytes = plain_bytes(ddp),
                                     .compression_error = compression_error(ddp)};

    if (ddp->observer.step_facts) {
        ddp->observer.step_facts(ddp->observer.user, &step);
    }
    tell_buckets(ddp);
    tell_choices(ddp, waited->step);
    tally__lateness_trace(ddp);
    tally__tracer_step(ddp->trace.tracer, &step);
}

/* The totals on the status page. */
static void show_step(tally_ddp *ddp)
{
    const struct tally__step_stats *stats = &ddp->stats;
    const struct tally__rank_lateness *own = &ddp->lateness.ranks[ddp->group->rank];
    const struct tally__status_step step = {
        .n_steps = ddp->step + ddp->steps_before,
        .n_buckets = (uint32_t)ddp->buckets.n,
        .n_params = (uint32_t)ddp->n_order,
        .ns = tally__step_ns(ddp),
        .exposed_ns = stats->total_exposed_ns,
        .wire_bytes = stats->total_wire_bytes,
        .late_ns = tally__late_ns(own->ns),
        .late_step_ns = own->row.n > 0 ? tally__late_ns(own->row.ns) / own->row.n : 0,
        .n_late_steps = own->row.n,
        .late_cause = tally__late_cause(own),
        .now_ns = stats->last_end_ns};

    tally__status_step(ddp->trace.status, &step);
}

void tally__ddp_trace_wait(tally_ddp *ddp, const struct tally__waited_step *waited)
{
    struct tally__tracer *tracer = ddp->trace.tracer;
    struct tally__trace_event event = {.kind = TALLY__EVENT_WAIT,
                                       .begin_ns = waited->called_ns,
                                       .end_ns = ddp->stats.last_end_ns,
                                       .step = (uint32_t)waited->step,
                                       .peer = TALLY__NO_PEER};

    if (waited->has_ended) {
        show_step(ddp);
    } else {
        event.end_ns = tally__now_ns();
    }
    tally__ddp_event(ddp, NULL, &event);
    if (waited->has_ended) {
        event.kind = TALLY__EVENT_STEP;
        event.begin_ns = ddp->stats.last_begin_ns;
        tally__ddp_event(ddp, NULL, &event);
    }
    if (tally__tracer_file(tracer) != 0) {
        if (waited->has_ended) {
            tell_step(ddp, waited);
        } else {
            (void)tally__tracer_write(tracer);
        }
    }
}
