/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second pass of `tally report`: the spans of the steps that are shown, and the figures of each
 * bucket over all steps. One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/report_run.h"

/* The most spans on a page. */
#define SPANS_MAX 300000

/* The exchange of a bucket in the step that is being read. */
struct bucket_now {
    uint64_t step;
    uint64_t ready_ns;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t waiting_ns;
    double wire_bytes;
};

struct pass {
    struct report_run *run;
    size_t member;
    struct tracks tracks;
    struct bucket_now *now;
    bool counts; /* the buckets are those of the report */
    uint64_t wait_step;
    uint64_t wait_begin_ns;
    uint64_t wait_end_ns;
    size_t n_spans;
};

/* ---- figures of buckets ---- */

static struct bucket_now *find_now(struct pass *pass, const struct tally__trace_event *event)
{
    struct bucket_now *now =
        event->bucket < pass->run->n_buckets ? &pass->now[event->bucket] : NULL;

    if (now && now->step != event->step) {
        *now = (struct bucket_now){.step = event->step};
    }
    return now;
}

static void note_event(struct pass *pass, const struct tally__trace_event *event)
{
    struct bucket_now *now = find_now(pass, event);

    if (event->kind == TALLY__EVENT_WAIT) {
        pass->wait_step = event->step;
        pass->wait_begin_ns = event->begin_ns;
        pass->wait_end_ns = event->end_ns;
    }
    if (!now) {
        return;
    }
    if ((event->kind == TALLY__EVENT_GRAD_READY || event->kind == TALLY__EVENT_LAUNCH) &&
        (now->ready_ns == 0 || event->kind == TALLY__EVENT_GRAD_READY) &&
        event->begin_ns > now->ready_ns) {
        now->ready_ns = event->begin_ns;
    } else if (event->kind == TALLY__EVENT_BUCKET) {
        now->begin_ns = event->begin_ns;
        now->end_ns = event->end_ns;
        now->wire_bytes = (double)event->bytes;
    } else if (event->kind == TALLY__EVENT_WAIT_RANK) {
        now->waiting_ns = event->end_ns - event->begin_ns;
    }
}

static double overlap(uint64_t begin_a, uint64_t end_a, uint64_t begin_b, uint64_t end_b)
{
    uint64_t begin = begin_a > begin_b ? begin_a : begin_b;
    uint64_t end = end_a < end_b ? end_a : end_b;

    return end > begin ? (double)(end - begin) : 0;
}

/* All events of a step come before the step. */
static void take_step(void *user, const struct tally__trace_step *step)
{
    struct pass *pass = user;

    for (size_t b = 0; b < pass->run->n_buckets && step->ddp == pass->run->ddp; b++) {
        struct bucket_now *now = &pass->now[b];
        struct bucket_figures *figures = &pass->run->buckets[b];

        if (!pass->counts || now->step != step->step || now->end_ns == 0) {
            continue;
        }
        figures->n += 1;
        figures->wire_bytes += now->wire_bytes;
        figures->exchange_ns += (double)(now->end_ns - now->begin_ns);
        figures->waiting_ns += (double)now->waiting_ns;
        if (now->ready_ns > 0 && now->ready_ns < now->end_ns) {
            figures->ready_ns += (double)(now->end_ns - now->ready_ns);
        }
        if (pass->wait_step == step->step) {
            figures->exposed_ns +=
                overlap(now->begin_ns, now->end_ns, pass->wait_begin_ns, pass->wait_end_ns);
        }
        now->step = 0;
    }
}

static void take_buckets(void *user, const struct tally__trace_buckets *head,
                         const struct tally__trace_bucket *buckets)
{
    struct pass *pass = user;

    (void)buckets;
    if (head->ddp == pass->run->ddp) {
        pass->counts = head->generation == pass->run->generation;
    }
}

/* ---- spans of the steps that are shown ---- */

static struct rank_spans *find_thread(struct pass *pass, struct shown_rank *rank, const char *name)
{
    struct rank_spans *grown;

    for (size_t t = 0; t < rank->n_threads; t++) {
        if (strcmp(rank->threads[t].name, name) == 0) {
            return &rank->threads[t];
        }
    }
    grown = realloc(rank->threads, (rank->n_threads + 1) * sizeof *grown);
    if (!grown) {
        pass->run->failed = true;
        return NULL;
    }
    rank->threads = grown;
    grown[rank->n_threads] = (struct rank_spans){0};
    (void)snprintf(grown[rank->n_threads].name, sizeof grown->name, "%s", name);
    return &grown[rank->n_threads++];
}

static void keep_span(struct pass *pass, struct shown_rank *rank, const struct track *track,
                      const struct tally__trace_event *span)
{
    /* A step is the background of the thread that waits, which is called main. */
    struct rank_spans *thread =
        find_thread(pass, rank, track->thread >= TRACK_OF_STEPS ? "main" : track->name);

    if (!thread || pass->n_spans == SPANS_MAX) {
        return;
    }
    thread->spans =
        report_grow(pass->run, thread->spans, &thread->room, thread->n + 1, sizeof *thread->spans);
    if (!thread->spans) {
        thread->n = 0;
        return;
    }
    pass->n_spans++;
    thread->spans[thread->n++] = *span;
}

static bool is_in(const struct shown_rank *rank, const struct tally__trace_event *span)
{
    return span->end_ns >= rank->begin_ns && span->begin_ns <= rank->end_ns &&
           (span->end_ns > rank->begin_ns || span->begin_ns == span->end_ns) &&
           (span->begin_ns < rank->end_ns || span->begin_ns == span->end_ns);
}

static void use_spans(void *user, const struct track *track, const struct tally__trace_event *spans,
                      size_t n)
{
    struct pass *pass = user;

    for (size_t s = 0; s < pass->run->n_shown; s++) {
        struct shown_step *shown = &pass->run->shown[s];

        for (size_t r = 0; r < shown->n_ranks; r++) {
            if (shown->ranks[r].member != pass->member) {
                continue;
            }
            for (size_t i = 0; i < n; i++) {
                bool is_other_step = spans[i].kind == TALLY__EVENT_STEP &&
                                     (spans[i].ddp != pass->run->ddp ||
                                      (shown->step != 0 && spans[i].step != shown->step));

                if (is_in(&shown->ranks[r], &spans[i]) && !is_other_step) {
                    keep_span(pass, &shown->ranks[r], track, &spans[i]);
                }
            }
        }
    }
}

/* Notes the last thing that the rank did, except that it waited or failed. */
static void note_last(struct pass *pass, const struct tally__trace_event *event)
{
    struct rank_figures *rank =
        &pass->run->ranks[pass->run->set->members[pass->member].file.head.rank];

    if (event->kind != TALLY__EVENT_NONE && event->kind != TALLY__EVENT_ERROR &&
        event->kind != TALLY__EVENT_WAIT && event->kind != TALLY__EVENT_STEP &&
        event->end_ns >= rank->last.end_ns) {
        rank->last = *event;
        rank->last_member = pass->member;
    }
}

static void take_events(void *user, const struct tally__trace_thread *thread,
                        const struct tally__trace_event *events, size_t n)
{
    struct pass *pass = user;

    for (size_t i = 0; i < n; i++) {
        if (events[i].ddp == pass->run->ddp) {
            note_event(pass, &events[i]);
        }
        note_last(pass, &events[i]);
    }
    tracks_add(&pass->tracks, thread, events, n);
}

static int compare_begins(const void *a, const void *b)
{
    const struct tally__trace_event *x = a;
    const struct tally__trace_event *y = b;

    if (x->begin_ns != y->begin_ns) {
        return x->begin_ns < y->begin_ns ? -1 : 1;
    }
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static int compare_threads(const void *a, const void *b)
{
    const char *x = ((const struct rank_spans *)a)->name;
    const char *y = ((const struct rank_spans *)b)->name;
    bool x_main = strcmp(x, "main") == 0;
    bool y_main = strcmp(y, "main") == 0;

    return x_main != y_main ? (x_main ? -1 : 1) : strcmp(x, y);
}

/* The application's thread first; outer spans before those inside them. */
static void put_in_order(struct report_run *run)
{
    for (size_t s = 0; s < run->n_shown; s++) {
        for (size_t r = 0; r < run->shown[s].n_ranks; r++) {
            struct shown_rank *rank = &run->shown[s].ranks[r];

            for (size_t t = 0; t < rank->n_threads; t++) {
                qsort(rank->threads[t].spans, rank->threads[t].n, sizeof *rank->threads[t].spans,
                      compare_begins);
            }
            if (rank->n_threads > 0) {
                qsort(rank->threads, rank->n_threads, sizeof *rank->threads, compare_threads);
            }
        }
    }
}

bool report_gather_spans(struct report_run *run)
{
    struct bucket_now *now = calloc(run->n_buckets ? run->n_buckets : 1, sizeof *now);
    size_t n_spans = 0;
    bool good = now != NULL;

    for (size_t i = 0; i < run->set->n && good; i++) {
        struct pass pass = {
            .run = run, .member = i, .now = now, .tracks = {.use = use_spans}, .n_spans = n_spans};
        const struct trace_visitor visitor = {
            .user = &pass, .events = take_events, .step = take_step, .buckets = take_buckets};

        memset(now, 0, run->n_buckets * sizeof *now);
        pass.tracks.user = &pass;
        good = trace_set_visit(run->set, i, &visitor);
        tracks_end(&pass.tracks);
        run->failed |= pass.tracks.failed;
        n_spans = pass.n_spans;
    }
    free(now);
    put_in_order(run);
    if (!now || run->failed) {
        (void)fprintf(stderr, "%s: no memory is left\n", run->set->command);
    }
    return good && !run->failed;
}
