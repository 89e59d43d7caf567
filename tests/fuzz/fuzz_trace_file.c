/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a trace file: they are read, with spans that nest, or refused with one line. One
 * thread.
 */
#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/trace_read.h"
#include "tools/trace_tracks.h"

/* Spans come by begin and nest. */
static void check_spans(void *user, const struct track *track,
                        const struct tally__trace_event *spans, size_t n)
{
    (void)user;
    FUZZ_CHECK(memchr(track->name, '\0', sizeof track->name));
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(spans[i].end_ns >= spans[i].begin_ns && spans[i].kind < TALLY__N_EVENT_KINDS);
        FUZZ_CHECK(spans[i].bytes >= 0 && isfinite(spans[i].bytes));
        FUZZ_CHECK(i == 0 || spans[i].begin_ns >= spans[i - 1].begin_ns);
        FUZZ_CHECK(i == 0 || spans[i].begin_ns >= spans[i - 1].end_ns ||
                   spans[i].end_ns <= spans[i - 1].end_ns || n > 16);
    }
}

static void take_events(void *user, const struct tally__trace_thread *thread,
                        const struct tally__trace_event *events, size_t n)
{
    tracks_add(user, thread, events, n);
}

static void take_note(void *user, const struct tally__trace_note *note)
{
    (void)user;
    FUZZ_CHECK(memchr(note->key, '\0', sizeof note->key) &&
               memchr(note->value, '\0', sizeof note->value));
}

static void take_lines(void *user, const struct tally__trace_lines *head,
                       const struct tally__trace_line *lines)
{
    (void)user;
    for (uint32_t i = 0; i < head->n; i++) {
        FUZZ_CHECK(memchr(lines[i].doing, '\0', sizeof lines[i].doing));
    }
}

static void take_buckets(void *user, const struct tally__trace_buckets *head,
                         const struct tally__trace_bucket *buckets)
{
    (void)user;
    for (uint32_t i = 0; i < head->n; i++) {
        FUZZ_CHECK(memchr(buckets[i].first_param, '\0', sizeof buckets[i].first_param));
    }
}

static void take_step(void *user, const struct tally__trace_step *step)
{
    (void)user;
    FUZZ_CHECK(step->end_ns >= step->begin_ns);
}

int fuzz_one(const uint8_t *data, size_t n)
{
    FILE *from = n > 0 ? fmemopen((void *)(uintptr_t)data, n, "rb") : NULL;
    struct tracks tracks = {.use = check_spans};
    const struct trace_visitor visitor = {.user = &tracks,
                                          .events = take_events,
                                          .step = take_step,
                                          .buckets = take_buckets,
                                          .note = take_note,
                                          .lines = take_lines};
    struct trace_file file;
    char why[300] = "";

    if (!from) {
        return 0;
    }
    if (!trace_file_read(from, &file, why, sizeof why) ||
        !trace_file_visit(from, &file, &visitor, why, sizeof why)) {
        FUZZ_CHECK(why[0] != '\0' && !strchr(why, '\n'));
    }
    tracks_end(&tracks);
    trace_file_free(&file);
    (void)fclose(from);
    return 0;
}
