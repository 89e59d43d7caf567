/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arranges the events of a rank on tracks. Events come in pieces; the events of the last bucket of
 * a piece are held back, because the rest of them may be in the next one. One thread.
 */
#include "tools/trace_tracks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool track_is_phase(uint8_t kind)
{
    return kind >= TALLY__EVENT_ENCODE && kind <= TALLY__EVENT_DECODE;
}

bool track_is_instant(uint8_t kind)
{
    return kind == TALLY__EVENT_GRAD_READY || kind == TALLY__EVENT_LAUNCH ||
           kind == TALLY__EVENT_HOOK || kind == TALLY__EVENT_ERROR;
}

static bool is_of_exchange(const struct tally__trace_event *event)
{
    return event->kind == TALLY__EVENT_BUCKET || track_is_phase(event->kind);
}

static bool is_same_bucket(const struct tally__trace_event *a, const struct tally__trace_event *b)
{
    return a->bucket == b->bucket && a->step == b->step && a->ddp == b->ddp;
}

/* The outer span first where two begin together; phases last, since they are laid out. */
static int compare_spans(const void *a, const void *b)
{
    const struct tally__trace_event *x = a;
    const struct tally__trace_event *y = b;

    if (x->begin_ns != y->begin_ns) {
        return x->begin_ns < y->begin_ns ? -1 : 1;
    }
    if (track_is_phase(x->kind) != track_is_phase(y->kind)) {
        return track_is_phase(x->kind) ? 1 : -1;
    }
    if (x->end_ns != y->end_ns) {
        return x->end_ns > y->end_ns ? -1 : 1;
    }
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* ---- phases into their bucket ---- */

/* The phases of events[0..n), all of one bucket, one after the other inside its span. */
static void lay_out(struct tally__trace_event *events, size_t n)
{
    const struct tally__trace_event *bucket = NULL;
    uint64_t at_ns;

    for (size_t i = 0; i < n; i++) {
        bucket = events[i].kind == TALLY__EVENT_BUCKET ? &events[i] : bucket;
    }
    if (!bucket) {
        return;
    }
    at_ns = bucket->begin_ns;
    for (int kind = TALLY__EVENT_ENCODE; kind <= TALLY__EVENT_DECODE; kind++) {
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == kind) {
                uint64_t length = events[i].end_ns - events[i].begin_ns;
                uint64_t left = bucket->end_ns - at_ns;

                events[i].begin_ns = at_ns;
                at_ns += length < left ? length : left;
                events[i].end_ns = at_ns;
            }
        }
    }
}

/* Events of the exchange of one bucket stand next to each other. */
static void lay_out_all(struct tally__trace_event *events, size_t n)
{
    for (size_t first = 0; first < n;) {
        size_t end = first + 1;

        while (is_of_exchange(&events[first]) && end < n && is_of_exchange(&events[end]) &&
               is_same_bucket(&events[first], &events[end])) {
            end++;
        }
        lay_out(events + first, end - first);
        first = end;
    }
}

/* ---- nesting ---- */

#define DEPTH_MAX 16

/* Cuts a span that begins inside another one and ends after it. */
static void nest(struct tally__trace_event *spans, size_t n)
{
    uint64_t ends[DEPTH_MAX];
    size_t depth = 0;

    for (size_t i = 0; i < n; i++) {
        if (track_is_instant(spans[i].kind)) {
            spans[i].end_ns = spans[i].begin_ns;
            continue;
        }
        while (depth > 0 && ends[depth - 1] <= spans[i].begin_ns) {
            depth--;
        }
        if (depth > 0 && spans[i].end_ns > ends[depth - 1]) {
            spans[i].end_ns = ends[depth - 1];
        }
        if (depth < DEPTH_MAX) {
            ends[depth++] = spans[i].end_ns;
        }
    }
}

/* ---- tracks ---- */

static struct track *find_track(struct tracks *tracks, uint64_t thread, const char *name)
{
    struct track *grown;

    for (size_t i = 0; i < tracks->n; i++) {
        if (tracks->all[i].thread == thread) {
            return &tracks->all[i];
        }
    }
    grown = realloc(tracks->all, (tracks->n + 1) * sizeof *grown);
    if (!grown) {
        tracks->failed = true;
        return NULL;
    }
    tracks->all = grown;
    grown[tracks->n] = (struct track){.thread = thread};
    (void)snprintf(grown[tracks->n].name, sizeof grown->name, "%s", name);
    return &tracks->all[tracks->n++];
}

static void give_out(struct tracks *tracks, struct track *track, struct tally__trace_event *spans,
                     size_t n)
{
    lay_out_all(spans, n);
    qsort(spans, n, sizeof *spans, compare_spans);
    nest(spans, n);
    if (n > 0) {
        tracks->use(tracks->user, track, spans, n);
    }
}

static void add_steps(struct tracks *tracks, const struct tally__trace_event *events, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[48];
        struct track *track;

        if (events[i].kind != TALLY__EVENT_STEP) {
            continue;
        }
        (void)snprintf(name, sizeof name, "steps of ddp %d", events[i].ddp);
        track = find_track(tracks, TRACK_OF_STEPS + events[i].ddp, name);
        if (track) {
            tracks->use(tracks->user, track, &events[i], 1);
        }
    }
}

/* Counts the events at the end that belong to one bucket. */
static size_t count_last(const struct tally__trace_event *events, size_t n)
{
    size_t last = 0;

    while (last < n && last < TRACK_HELD_MAX && is_of_exchange(&events[n - 1 - last]) &&
           is_same_bucket(&events[n - 1 - last], &events[n - 1])) {
        last++;
    }
    return last;
}

void tracks_add(struct tracks *tracks, const struct tally__trace_thread *thread,
                const struct tally__trace_event *events, size_t n)
{
    struct track *track = find_track(tracks, thread->thread, thread->name);
    size_t n_spans = 0;

    if (track && n + TRACK_HELD_MAX > tracks->spans_room) {
        free(tracks->spans);
        tracks->spans_room = n + TRACK_HELD_MAX;
        tracks->spans = malloc(tracks->spans_room * sizeof *tracks->spans);
    }
    if (!track || !tracks->spans) {
        tracks->failed = true;
        tracks->spans_room = 0;
        return;
    }
    track->n_lost += thread->n_lost;
    memcpy(tracks->spans, track->held, track->n_held * sizeof *events);
    n_spans = track->n_held;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind != TALLY__EVENT_STEP && events[i].kind != TALLY__EVENT_NONE) {
            tracks->spans[n_spans++] = events[i];
        }
    }
    track->n_held = count_last(tracks->spans, n_spans);
    n_spans -= track->n_held;
    memcpy(track->held, tracks->spans + n_spans, track->n_held * sizeof *events);
    give_out(tracks, track, tracks->spans, n_spans);
    add_steps(tracks, events, n);
}

void tracks_end(struct tracks *tracks)
{
    for (size_t i = 0; i < tracks->n; i++) {
        give_out(tracks, &tracks->all[i], tracks->all[i].held, tracks->all[i].n_held);
        tracks->all[i].n_held = 0;
    }
    free(tracks->all);
    free(tracks->spans);
    tracks->all = NULL;
    tracks->spans = NULL;
}
