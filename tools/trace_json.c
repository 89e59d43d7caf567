/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chrome trace JSON: a process per rank, a track per thread, a flow from the launch of a bucket to
 * its exchange. Events are written as they are read: memory is bounded by one segment. One thread.
 *
 * If events of a track begin together, a viewer takes the order of the file: a bucket comes
 * first, then the end of its flow, which so belongs to it, then its phases.
 */
#include "tools/trace_json.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/json.h"
#include "tools/trace_tracks.h"

struct writer {
    const struct trace_set *set;
    const struct trace_member *member;
    const struct trace_cut *cut;
    FILE *to;
    struct trace_written *written;
    struct tracks tracks;
    uint64_t *named; /* threads whose name is written */
    size_t n_named;
};

/* ---- names ---- */

/* The opening of a line, up to its arguments. */
static void begin_line(struct writer *writer)
{
    (void)fputs(writer->written->n_events++ == 0 ? "" : ",\n", writer->to);
}

static void name_thread(struct writer *writer, const struct track *track)
{
    uint64_t *grown;
    bool is_steps = track->thread >= TRACK_OF_STEPS;
    int rank = writer->member->file.head.rank;
    size_t order = is_steps ? 0 : 1 + writer->n_named;

    for (size_t i = 0; i < writer->n_named; i++) {
        if (writer->named[i] == track->thread) {
            return;
        }
    }
    grown = realloc(writer->named, (writer->n_named + 1) * sizeof *grown);
    if (!grown) {
        writer->tracks.failed = true;
        return;
    }
    writer->named = grown;
    grown[writer->n_named++] = track->thread;
    begin_line(writer);
    (void)fprintf(writer->to,
                  "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%" PRIu64
                  ",\"args\":{\"name\":",
                  rank, track->thread);
    json_string(writer->to, track->name);
    (void)fputs("}}", writer->to);
    begin_line(writer);
    (void)fprintf(writer->to,
                  "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%" PRIu64
                  ",\"args\":{\"sort_index\":%zu}}",
                  rank, track->thread, order);
}

static void name_rank(struct writer *writer)
{
    const struct tally__trace_head *head = &writer->member->file.head;
    char name[160];

    (void)snprintf(name, sizeof name, "rank %d of %d on %s (process %lld)", head->rank, head->world,
                   head->host, (long long)head->pid);
    begin_line(writer);
    (void)fprintf(
        writer->to,
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", head->rank);
    json_string(writer->to, name);
    (void)fputs("}}", writer->to);
    begin_line(writer);
    (void)fprintf(
        writer->to,
        "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":"
        "%d}}",
        head->rank, head->rank);
}

/* ---- events ---- */

/* Nanoseconds as the format's microseconds. */
static void put_us(FILE *to, const char *key, uint64_t ns)
{
    (void)fprintf(to, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void put_head(struct writer *writer, const char *phase, const struct track *track,
                     uint64_t ns)
{
    begin_line(writer);
    (void)fprintf(writer->to, "{\"ph\":\"%s\",\"pid\":%d,\"tid\":%" PRIu64, phase,
                  writer->member->file.head.rank, track->thread);
    put_us(writer->to, "ts", trace_set_time(writer->member, ns));
}

static void put_name(FILE *to, const struct tally__trace_event *event)
{
    static const char *const names[] = {
#define NAME_OF(name, text) text,
        TALLY__TRACE_EVENT_LIST(NAME_OF)
#undef NAME_OF
    };
    const char *name = names[event->kind];

    switch (event->kind) {
    case TALLY__EVENT_BUCKET:
    case TALLY__EVENT_LAUNCH:
        (void)fprintf(to, ",\"name\":\"%s %d\"", name, event->bucket);
        break;
    case TALLY__EVENT_WAIT_RANK:
        (void)fprintf(to, event->peer >= 0 ? ",\"name\":\"%s %d\"" : ",\"name\":\"%s\"", name,
                      event->peer);
        break;
    case TALLY__EVENT_STEP:
        (void)fprintf(to, ",\"name\":\"%s %u\"", name, event->step);
        break;
    default:
        (void)fprintf(to, ",\"name\":\"%s\"", name);
        break;
    }
}

/* Only arguments that say something. */
static void put_arguments(FILE *to, const struct tally__trace_event *event)
{
    (void)fprintf(to, ",\"args\":{\"step\":%u", event->step);
    if (event->bytes > 0) {
        (void)fprintf(to, ",\"bytes\":%.0f", (double)event->bytes);
    }
    if (event->kind == TALLY__EVENT_GRAD_READY) {
        (void)fprintf(to, ",\"parameter\":%d", event->peer);
    }
    if (event->ddp > 1) {
        (void)fprintf(to, ",\"ddp\":%d", event->ddp);
    }
    (void)fputs("}}", to);
}

/* A viewer joins the two ends of a flow by category, name and number; it reads a number in quotes
 * as hexadecimal. */
static void put_flow(struct writer *writer, const struct track *track,
                     const struct tally__trace_event *event)
{
    bool is_start = event->kind == TALLY__EVENT_LAUNCH;
    uint64_t number = (uint64_t)event->step << 24 | (uint64_t)event->ddp << 16 | event->bucket;

    put_head(writer, is_start ? "s" : "f", track, event->begin_ns);
    (void)fprintf(writer->to,
                  ",\"cat\":\"bucket\",\"name\":\"rank %d\",\"id\":\"0x%" PRIx64 "\"%s}",
                  writer->member->file.head.rank, number, is_start ? "" : ",\"bp\":\"e\"");
}

static void put_event(struct writer *writer, const struct track *track,
                      const struct tally__trace_event *event)
{
    /* A launch is a span without length, since a flow begins in a span. */
    bool is_span = !track_is_instant(event->kind) || event->kind == TALLY__EVENT_LAUNCH;

    put_head(writer, is_span ? "X" : "i", track, event->begin_ns);
    if (is_span) {
        put_us(writer->to, "dur", event->end_ns - event->begin_ns);
    } else {
        (void)fputs(",\"s\":\"t\"", writer->to);
    }
    put_name(writer->to, event);
    put_arguments(writer->to, event);
    if (event->kind == TALLY__EVENT_LAUNCH || event->kind == TALLY__EVENT_BUCKET) {
        put_flow(writer, track, event);
    }
}

static void note_step(struct trace_written *written, uint64_t step)
{
    if (step > 0 && (written->first_step == 0 || step < written->first_step)) {
        written->first_step = step;
    }
    written->last_step = step > written->last_step ? step : written->last_step;
}

static void use_spans(void *user, const struct track *track, const struct tally__trace_event *spans,
                      size_t n)
{
    struct writer *writer = user;

    for (size_t i = 0; i < n; i++) {
        note_step(writer->written, spans[i].step);
        if (spans[i].step >= writer->cut->first && spans[i].step <= writer->cut->last) {
            name_thread(writer, track);
            put_event(writer, track, &spans[i]);
            writer->written->n_spans++;
        }
    }
}

static void take_events(void *user, const struct tally__trace_thread *thread,
                        const struct tally__trace_event *events, size_t n)
{
    struct writer *writer = user;

    writer->written->n_lost += thread->n_lost;
    tracks_add(&writer->tracks, thread, events, n);
}

static bool write_member(const struct trace_set *set, size_t member, const struct trace_cut *cut,
                         FILE *to, struct trace_written *written)
{
    struct writer writer = {.set = set,
                            .member = &set->members[member],
                            .cut = cut,
                            .to = to,
                            .written = written,
                            .tracks = {.use = use_spans}};
    const struct trace_visitor visitor = {.user = &writer, .events = take_events};
    bool good;

    writer.tracks.user = &writer;
    name_rank(&writer);
    good = trace_set_visit(set, member, &visitor);
    tracks_end(&writer.tracks);
    free(writer.named);
    if (writer.tracks.failed) {
        (void)fprintf(stderr, "%s: no memory is left\n", set->command);
        good = false;
    }
    return good;
}

bool trace_json_write(const struct trace_set *set, const struct trace_cut *cut, FILE *to,
                      struct trace_written *written)
{
    *written = (struct trace_written){0};
    (void)fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", to);
    for (size_t i = 0; i < set->n; i++) {
        if (!write_member(set, i, cut, to, written)) {
            return false;
        }
    }
    (void)fputs("\n]}\n", to);
    return true;
}
