/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks trace files, one segment at a time. One thread; no state. */
#include "tools/trace_read.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>

#define WORLD_MAX (1 << 20)

/* Makes an array of bytes from a file one line of text. */
#define END_TEXT(array) end_text(array, sizeof(array))

static void end_text(char *text, size_t bytes)
{
    text[bytes - 1] = '\0';
    for (; *text != '\0'; text++) {
        *text = iscntrl((unsigned char)*text) ? '?' : *text;
    }
}

static bool complain(char *why, size_t room, const char *text)
{
    (void)snprintf(why, room, "%s", text);
    return false;
}

static bool read_at(FILE *from, uint64_t offset, void *to, size_t bytes)
{
    return fseeko(from, (off_t)offset, SEEK_SET) == 0 && fread(to, 1, bytes, from) == bytes;
}

/* ---- the head and the order of segments ---- */

static bool check_head(struct tally__trace_head *head, char *why, size_t room)
{
    END_TEXT(head->tally_version);
    END_TEXT(head->host);
    END_TEXT(head->boot_id);
    END_TEXT(head->backend);
    END_TEXT(head->program);
    if (head->version != TALLY__TRACE_VERSION) {
        (void)snprintf(
            why, room,
            "has format %u, written by tally %.23s; this is tally %s, which reads format "
            "%d",
            head->version, head->tally_version, tally_version(), TALLY__TRACE_VERSION);
        return false;
    }
    if (head->head_bytes != sizeof *head ||
        head->segment_head_bytes != sizeof(struct tally__trace_segment) ||
        head->event_bytes != sizeof(struct tally__trace_event) ||
        head->segment_bytes < sizeof(struct tally__trace_segment) ||
        head->segment_bytes > (UINT64_C(1) << 40) || head->segment_bytes % 8 != 0 ||
        head->n_segments == 0 || head->n_segments > TALLY__TRACE_SEGMENTS || head->world < 1 ||
        head->world > WORLD_MAX || head->rank < 0 || head->rank >= head->world) {
        return complain(why, room, "is damaged: its head makes no sense");
    }
    return true;
}

struct place {
    uint64_t sequence;
    uint32_t index;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a;
    const struct place *y = b;

    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static uint64_t segment_offset(const struct trace_file *file, uint32_t index)
{
    return file->head.head_bytes + index * file->head.segment_bytes;
}

/* Finds the used segments; places has room for all. False if one is damaged. */
static bool find_used(FILE *from, struct trace_file *file, struct place *places)
{
    uint64_t room = file->head.segment_bytes - sizeof(struct tally__trace_segment);

    file->n_used = 0;
    for (uint32_t i = 0; i < file->head.n_segments; i++) {
        struct tally__trace_segment segment;

        if (segment_offset(file, i) + sizeof segment > file->file_bytes) {
            file->is_cut_short |= segment_offset(file, i) < file->file_bytes;
            break;
        }
        if (!read_at(from, segment_offset(file, i), &segment, sizeof segment) ||
            segment.used_bytes > room || segment.used_bytes % 8 != 0) {
            return false;
        }
        if (segment.sequence != 0) {
            places[file->n_used++] = (struct place){segment.sequence, i};
            file->is_cut_short |=
                segment_offset(file, i) + sizeof segment + segment.used_bytes > file->file_bytes;
        }
    }
    return true;
}

static bool order_segments(FILE *from, struct trace_file *file, char *why, size_t room)
{
    uint64_t most = file->file_bytes / file->head.segment_bytes + 1;
    size_t n = most < file->head.n_segments ? (size_t)most : file->head.n_segments;
    struct place *places = malloc(n * sizeof *places);
    bool good;

    file->order = malloc(n * sizeof *file->order);
    if (!places || !file->order) {
        free(places);
        return complain(why, room, "cannot be read: no memory is left");
    }
    good = find_used(from, file, places);
    qsort(places, file->n_used, sizeof *places, compare_places);
    for (uint32_t i = 0; i < file->n_used; i++) {
        good &= i == 0 || places[i].sequence != places[i - 1].sequence;
        file->order[i] = places[i].index;
    }
    free(places);
    return good || complain(why, room, "is damaged: the head of a segment makes no sense");
}

bool trace_file_read(FILE *from, struct trace_file *file, char *why, size_t room)
{
    off_t end;

    memset(file, 0, sizeof *file);
    if (fseeko(from, 0, SEEK_END) != 0 || (end = ftello(from)) < 0) {
        (void)snprintf(why, room, "cannot be read: %s", strerror(errno));
        return false;
    }
    file->file_bytes = (uint64_t)end;
    if (end == 0) {
        return complain(why, room, "is empty: its rank ended before it wrote a step");
    }
    if (!read_at(from, 0, file->head.magic, sizeof file->head.magic) ||
        memcmp(file->head.magic, TALLY__TRACE_MAGIC, sizeof file->head.magic) != 0) {
        return complain(why, room, "is not a trace file of tally");
    }
    if (!read_at(from, 0, &file->head, sizeof file->head)) {
        return complain(why, room, "is cut short inside its head");
    }
    return check_head(&file->head, why, room) && order_segments(from, file, why, room);
}

void trace_file_free(struct trace_file *file)
{
    free(file->order);
    file->order = NULL;
}

/* ---- records ---- */

/* Whether a payload has a head and exactly n entries after it. */
static bool fits(size_t bytes, size_t head, uint64_t n, size_t entry)
{
    return bytes >= head && n <= (bytes - head) / entry && head + n * entry == bytes;
}

static bool visit_events(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_thread *thread = (struct tally__trace_thread *)(void *)payload;
    struct tally__trace_event *events = (struct tally__trace_event *)(void *)(thread + 1);
    size_t n;

    if (bytes < sizeof *thread || (bytes - sizeof *thread) % sizeof *events != 0) {
        return false;
    }
    END_TEXT(thread->name);
    n = (bytes - sizeof *thread) / sizeof *events;
    for (size_t i = 0; i < n; i++) {
        if (events[i].end_ns < events[i].begin_ns) {
            events[i].end_ns = events[i].begin_ns;
        }
        if (events[i].kind >= TALLY__N_EVENT_KINDS) {
            events[i].kind = TALLY__EVENT_NONE;
        }
        if (!(events[i].bytes >= 0 && isfinite(events[i].bytes))) {
            events[i].bytes = 0;
        }
    }
    if (visitor->events) {
        visitor->events(visitor->user, thread, events, n);
    }
    return true;
}

static bool visit_buckets(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_buckets *head = (struct tally__trace_buckets *)(void *)payload;
    struct tally__trace_bucket *buckets = (struct tally__trace_bucket *)(void *)(head + 1);

    if (bytes < sizeof *head || !fits(bytes, sizeof *head, head->n, sizeof *buckets)) {
        return false;
    }
    END_TEXT(head->hook);
    for (uint32_t i = 0; i < head->n; i++) {
        END_TEXT(buckets[i].first_param);
    }
    if (visitor->buckets) {
        visitor->buckets(visitor->user, head, buckets);
    }
    return true;
}

static bool visit_step(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_step *step = (struct tally__trace_step *)(void *)payload;

    if (bytes != sizeof *step) {
        return false;
    }
    if (step->end_ns < step->begin_ns) {
        step->end_ns = step->begin_ns;
    }
    if (visitor->step) {
        visitor->step(visitor->user, step);
    }
    return true;
}

static bool visit_ranks(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_ranks *head = (struct tally__trace_ranks *)(void *)payload;

    if (bytes < sizeof *head ||
        !fits(bytes, sizeof *head, head->n, sizeof(struct tally__trace_rank))) {
        return false;
    }
    if (visitor->ranks) {
        visitor->ranks(visitor->user, head, (const struct tally__trace_rank *)(void *)(head + 1));
    }
    return true;
}

static bool visit_note(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_note *note = (struct tally__trace_note *)(void *)payload;

    if (bytes != sizeof *note) {
        return false;
    }
    END_TEXT(note->key);
    END_TEXT(note->value);
    if (visitor->note) {
        visitor->note(visitor->user, note);
    }
    return true;
}

static bool visit_error(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_error *error = (struct tally__trace_error *)(void *)payload;

    if (bytes != sizeof *error) {
        return false;
    }
    END_TEXT(error->text);
    if (visitor->error) {
        visitor->error(visitor->user, error);
    }
    return true;
}

static bool visit_lines(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_lines *head = (struct tally__trace_lines *)(void *)payload;
    struct tally__trace_line *lines = (struct tally__trace_line *)(void *)(head + 1);

    if (bytes < sizeof *head || !fits(bytes, sizeof *head, head->n, sizeof *lines)) {
        return false;
    }
    for (uint32_t i = 0; i < head->n; i++) {
        END_TEXT(lines[i].doing);
    }
    if (visitor->lines) {
        visitor->lines(visitor->user, head, lines);
    }
    return true;
}

static double at_least_0(double value)
{
    return value >= 0 && value <= 1e18 ? value : 0;
}

static bool visit_choices(const struct trace_visitor *visitor, unsigned char *payload, size_t bytes)
{
    struct tally__trace_choices *head = (struct tally__trace_choices *)(void *)payload;
    struct tally__trace_choice *choices = (struct tally__trace_choice *)(void *)(head + 1);

    if (bytes < sizeof *head || !fits(bytes, sizeof *head, head->n, sizeof *choices)) {
        return false;
    }
    head->cap_gain = at_least_0(head->cap_gain);
    for (uint32_t i = 0; i < head->n; i++) {
        END_TEXT(choices[i].hook);
        END_TEXT(choices[i].runner_up);
        END_TEXT(choices[i].reason);
        choices[i].predicted_s = at_least_0(choices[i].predicted_s);
        choices[i].measured_s = at_least_0(choices[i].measured_s);
        choices[i].runner_up_s = at_least_0(choices[i].runner_up_s);
        choices[i].error = at_least_0(choices[i].error);
    }
    if (visitor->choices) {
        visitor->choices(visitor->user, head, choices);
    }
    return true;
}

static bool visit_record(const struct trace_visitor *visitor, uint32_t kind, unsigned char *payload,
                         size_t bytes)
{
    switch (kind) {
    case TALLY__RECORD_THREAD:
        return visit_events(visitor, payload, bytes);
    case TALLY__RECORD_BUCKETS:
        return visit_buckets(visitor, payload, bytes);
    case TALLY__RECORD_STEP:
        return visit_step(visitor, payload, bytes);
    case TALLY__RECORD_RANKS:
        return visit_ranks(visitor, payload, bytes);
    case TALLY__RECORD_NOTE:
        return visit_note(visitor, payload, bytes);
    case TALLY__RECORD_ERROR:
        return visit_error(visitor, payload, bytes);
    case TALLY__RECORD_LINES:
        return visit_lines(visitor, payload, bytes);
    case TALLY__RECORD_CHOICES:
        return visit_choices(visitor, payload, bytes);
    default:
        return true;
    }
}

/* If a file is cut short, its last record may be missing or incomplete. */
static bool visit_records(const struct trace_visitor *visitor, unsigned char *records,
                          size_t used_bytes, bool is_cut_short)
{
    size_t at = 0;

    while (at < used_bytes) {
        struct tally__trace_record record;

        if (used_bytes - at < sizeof record) {
            return is_cut_short;
        }
        memcpy(&record, records + at, sizeof record);
        at += sizeof record;
        if (record.bytes > used_bytes - at) {
            return is_cut_short;
        }
        if (record.bytes % 8 != 0 ||
            !visit_record(visitor, record.kind, records + at, record.bytes)) {
            return false;
        }
        at += record.bytes;
    }
    return true;
}

bool trace_file_visit(FILE *from, const struct trace_file *file,
                      const struct trace_visitor *visitor, char *why, size_t room)
{
    unsigned char *records = NULL;
    size_t records_room = 0;
    bool good = true;

    for (uint32_t i = 0; i < file->n_used && good; i++) {
        struct tally__trace_segment segment = {0};
        uint64_t offset = segment_offset(file, file->order[i]);
        uint64_t there;

        good = read_at(from, offset, &segment, sizeof segment);
        offset += sizeof segment;
        there = file->file_bytes > offset ? file->file_bytes - offset : 0;
        if (there > segment.used_bytes) {
            there = segment.used_bytes;
        }
        if (good && there > records_room) {
            free(records);
            records_room = (size_t)there;
            records = malloc(records_room);
            if (!records) {
                return complain(why, room, "cannot be read: no memory is left");
            }
        }
        good = good && (there == 0 || (read_at(from, offset, records, (size_t)there) &&
                                       visit_records(visitor, records, (size_t)there,
                                                     there < segment.used_bytes)));
    }
    free(records);
    return good ||
           complain(why, room,
                    "is damaged: a record in it makes no sense; if its job is still running, try "
                    "again");
}
