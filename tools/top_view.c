/* SPDX-License-Identifier: Apache-2.0 */
/* Puts what ranks do into words. One thread; no state. */
#include "tools/top_view.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json.h"

/* A rank without a sign of life for this long, and for many of its steps, makes no progress. */
#define SILENT_NS UINT64_C(3000000000)
#define SILENT_STEPS 10
/* A rank that is late in this many steps in a row is a straggler. */
#define LATE_STEPS 10

/* ---- lines ---- */

static bool make_room(struct top_lines *lines)
{
    size_t more = lines->room < 64 ? 64 : 2 * lines->room;
    char(*grown)[TOP_LINE_MAX];

    if (lines->n < lines->room) {
        return true;
    }
    grown = realloc(lines->all, more * sizeof *grown);
    if (!grown) {
        return false;
    }
    lines->all = grown;
    lines->room = more;
    return true;
}

__attribute__((format(printf, 2, 3))) static void add_line(struct top_lines *lines,
                                                           const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (make_room(lines)) {
        // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above
        (void)vsnprintf(lines->all[lines->n++], TOP_LINE_MAX, format, arguments);
    }
    va_end(arguments);
}

void top_lines_free(struct top_lines *lines)
{
    free(lines->all);
    *lines = (struct top_lines){0};
}

/* ---- figures ---- */

static double seconds_since(uint64_t then_ns, uint64_t now_ns)
{
    return then_ns != 0 && then_ns < now_ns ? (double)(now_ns - then_ns) / 1e9 : 0;
}

/* The time since a moment: "0.3 s", "41 s", "12 min". */
static const char *ago(uint64_t then_ns, uint64_t now_ns, char text[32])
{
    double seconds = seconds_since(then_ns, now_ns);

    if (seconds < 100) {
        (void)snprintf(text, 32, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
    } else {
        (void)snprintf(text, 32, seconds < 6000 ? "%.0f min" : "%.0f h",
                       seconds < 6000 ? seconds / 60 : seconds / 3600);
    }
    return text;
}

static bool is_silent(const struct top_entry *entry, uint64_t now_ns)
{
    double silent = seconds_since(entry->heartbeat_ns, now_ns) * 1e9;

    return silent > (double)SILENT_NS && silent > SILENT_STEPS * (double)entry->step_ns;
}

/* 0 if the rank makes no progress. */
static double steps_per_second(const struct top_rank *rank, const struct top_entry *entry,
                               uint64_t now_ns)
{
    bool runs = rank->process == TOP_RUNS && entry->state != TALLY__STATE_DONE &&
                entry->state != TALLY__STATE_FAILED && !is_silent(entry, now_ns);

    return runs && entry->step_ns > 0 ? 1e9 / (double)entry->step_ns : 0;
}

static double exposed_part(const struct top_entry *entry)
{
    double part = entry->total_ns > 0 ? (double)entry->exposed_ns / (double)entry->total_ns : 0;

    return part > 1 ? 1 : part;
}

/* The part of the run in which the other ranks waited for this one. */
static double late_part(const struct top_entry *entry)
{
    double part = entry->total_ns > 0 ? (double)entry->late_ns / (double)entry->total_ns : 0;

    return part > 1 ? 1 : part;
}

static double bytes_per_second(const struct top_rank *rank, const struct top_entry *entry,
                               uint64_t now_ns)
{
    return entry->n_steps > 0 ? (double)entry->wire_bytes / (double)entry->n_steps *
                                    steps_per_second(rank, entry, now_ns)
                              : 0;
}

/* ---- states in words ---- */

static const char *state_name(const struct top_rank *rank, const struct top_entry *entry)
{
    static const char *const names[] = {"unused",     "computing",  "waiting", "updating",
                                        "checkpoint", "collective", "done",    "failed"};

    if (rank->process != TOP_RUNS) {
        return rank->process == TOP_STOPPED ? "stopped" : "dead";
    }
    return entry ? names[entry->state] : "starting";
}

/* Describes the lanes: "waits for rank 3 (2.1 s) in bucket 7 of 20". A narrow terminal shows the
 * begin of it. */
static void describe_lanes(const struct top_entry *entry, uint64_t now_ns, char *text, size_t room)
{
    char time[32];
    char bucket[48] = "";

    if (entry->bucket >= 0) {
        (void)snprintf(bucket, sizeof bucket, "bucket %d of %u", entry->bucket, entry->n_buckets);
    }
    if (entry->waits_for >= 0) {
        (void)snprintf(text, room, "waits for rank %d (%s)%s%s", entry->waits_for,
                       ago(entry->waits_since_ns, now_ns, time), bucket[0] ? " in " : "", bucket);
    } else {
        (void)snprintf(text, room, "%s", bucket);
    }
}

static void describe(const struct top_rank *rank, const struct top_entry *entry, uint64_t now_ns,
                     char *text, size_t room)
{
    char time[32];
    char lanes[128] = "";
    const char *name = state_name(rank, entry);
    const char *also;

    if (rank->process == TOP_DEAD || !entry) {
        (void)snprintf(text, room, "%s", name);
        return;
    }
    if (entry->state == TALLY__STATE_FAILED) {
        (void)snprintf(text, room, "failed (%s)", ago(entry->state_since_ns, now_ns, time));
        return;
    }
    describe_lanes(entry, now_ns, lanes, sizeof lanes);
    also = entry->waits_for >= 0 ? ", its lane " : (lanes[0] ? ", " : "");
    if (rank->process == TOP_STOPPED) {
        (void)snprintf(text, room, "STOPPED, silent for %s",
                       ago(entry->heartbeat_ns, now_ns, time));
    } else if (entry->state == TALLY__STATE_WAITING) {
        (void)snprintf(text, room, "%s", lanes[0] ? lanes : "in tally_ddp_wait");
    } else if (entry->state == TALLY__STATE_COMPUTING) {
        (void)snprintf(text, room, "computing (%s)%s%s", ago(entry->state_since_ns, now_ns, time),
                       also, lanes);
    } else {
        (void)snprintf(text, room, "%s (%s)%s%s", entry->call[0] ? entry->call : name,
                       ago(entry->state_since_ns, now_ns, time), also, lanes);
    }
}

/* ---- a job ---- */

static size_t job_end(const struct top_ranks *ranks, size_t first)
{
    size_t end = first;

    while (end < ranks->n &&
           strcmp(ranks->all[end].page.head.job, ranks->all[first].page.head.job) == 0) {
        end++;
    }
    return end;
}

static void add_rank(const struct top_rank *rank, uint64_t now_ns, struct top_lines *lines)
{
    const struct top_entry *entry = top_main_entry(rank);
    char words[300];

    describe(rank, entry, now_ns, words, sizeof words);
    if (entry) {
        add_line(lines, "%4d %7ld %8" PRIu64 " %7.1f %6.0f%% %4.0f%% %6.1f  %s",
                 rank->page.head.rank, (long)rank->pid, entry->n_steps,
                 steps_per_second(rank, entry, now_ns), 100 * exposed_part(entry),
                 100 * late_part(entry), bytes_per_second(rank, entry, now_ns) / 1e6, words);
    } else {
        add_line(lines, "%4d %7ld %8s %7s %7s %5s %6s  %s", rank->page.head.rank, (long)rank->pid,
                 "", "", "", "", "", words);
    }
}

/* Ranks of the world that are not there, where all of them must be on this machine. */
static void add_missing(const struct top_ranks *ranks, size_t first, size_t end,
                        struct top_lines *lines)
{
    const struct tally__status_head *head = &ranks->all[first].page.head;
    size_t at = first;
    int n = 0;

    if (strcmp(head->backend, "mpi") == 0) {
        if ((size_t)head->world > end - first) {
            add_line(lines, "%zu of %d ranks are on this machine", end - first, head->world);
        }
        return;
    }
    for (int rank = 0; rank < head->world && n < 20; rank++) {
        while (at < end && ranks->all[at].page.head.rank < rank) {
            at++;
        }
        if (at == end || ranks->all[at].page.head.rank != rank) {
            add_line(lines, "%4d %7s %8s %7s %7s %5s %6s  not found: ended, or no ddp yet", rank,
                     "", "", "", "", "", "");
            n++;
        }
    }
}

/* The ranks that wait for one: "0, 1", or the first ones, "and 12 more". */
struct waiting {
    char who[160];
    size_t used;
    size_t n;
    size_t n_named;
    uint64_t since_ns;
};

static void add_waiting(struct waiting *waiting, int rank, uint64_t since_ns)
{
    /* Room for a rank, and for how many more there are. */
    if (waiting->used + 40 < sizeof waiting->who) {
        waiting->used +=
            (size_t)snprintf(waiting->who + waiting->used, sizeof waiting->who - waiting->used,
                             waiting->n == 0 ? "%d" : ", %d", rank);
        waiting->n_named++;
    }
    waiting->n++;
    waiting->since_ns = since_ns < waiting->since_ns ? since_ns : waiting->since_ns;
}

static struct waiting find_waiting(const struct top_ranks *ranks, size_t first, size_t end,
                                   int target)
{
    struct waiting waiting = {.since_ns = UINT64_MAX};

    for (size_t i = first; i < end; i++) {
        const struct top_entry *entry = top_main_entry(&ranks->all[i]);

        /* The page of a stopped or dead rank is out of date. */
        if (entry && entry->waits_for == target && ranks->all[i].process == TOP_RUNS) {
            add_waiting(&waiting, ranks->all[i].page.head.rank, entry->waits_since_ns);
        }
    }
    if (waiting.n > waiting.n_named) {
        (void)snprintf(waiting.who + waiting.used, sizeof waiting.who - waiting.used,
                       " and %zu more", waiting.n - waiting.n_named);
    }
    return waiting;
}

/* For each rank that is waited for, the ranks that wait. */
static void add_waits(const struct top_ranks *ranks, size_t first, size_t end, uint64_t now_ns,
                      struct top_lines *lines)
{
    for (size_t i = first; i < end; i++) {
        const struct top_rank *target = &ranks->all[i];
        int rank = target->page.head.rank;
        struct waiting waiting = find_waiting(ranks, first, end, rank);
        char time[32];

        if (waiting.n > 0 && (i == first || rank != ranks->all[i - 1].page.head.rank)) {
            add_line(lines, "%s %s wait%s for rank %d (%s), for %s",
                     waiting.n == 1 ? "rank" : "ranks", waiting.who, waiting.n == 1 ? "s" : "",
                     rank, state_name(target, top_main_entry(target)),
                     ago(waiting.since_ns, now_ns, time));
        }
    }
}

/* The ranks that have made the others wait in the last steps. */
static void add_stragglers(const struct top_ranks *ranks, struct top_lines *lines)
{
    static const char *const causes[] = {"", ": it announces its gradients later than they do",
                                         ": its lane comes late, because it lacks CPU time",
                                         ": its network link is slow"};

    for (size_t i = 0; i < ranks->n; i++) {
        const struct top_entry *entry = top_main_entry(&ranks->all[i]);

        if (entry && entry->n_late_steps >= LATE_STEPS && ranks->all[i].process != TOP_DEAD) {
            add_line(
                lines,
                "rank %d has made the others wait for %.3g of %.3g ms per step, in the last %u "
                "steps%s",
                ranks->all[i].page.head.rank, (double)entry->late_step_ns / 1e6,
                (double)entry->step_ns / 1e6, entry->n_late_steps,
                entry->late_cause < sizeof causes / sizeof *causes ? causes[entry->late_cause]
                                                                   : "");
        }
    }
}

/* A call of a rank failed; it may have ended since. */
static void add_failures(const struct top_ranks *ranks, struct top_lines *lines)
{
    for (size_t i = 0; i < ranks->n; i++) {
        const struct top_entry *entry = top_main_entry(&ranks->all[i]);

        if (entry && entry->state == TALLY__STATE_FAILED) {
            add_line(lines, "rank %d failed: %s", ranks->all[i].page.head.rank, entry->error);
        }
    }
}

static void add_job(const struct top_ranks *ranks, uint64_t now_ns, struct top_lines *lines)
{
    const struct tally__status_head *head = &ranks->all[0].page.head;
    const struct top_entry *entry = top_main_entry(&ranks->all[0]);
    char time[32];

    add_line(lines, "%s  %d rank%s, backend %s, hook %s, up %s, tally %s", head->program,
             head->world, head->world == 1 ? "" : "s", head->backend, entry ? entry->hook : "-",
             ago(head->started_ns, now_ns, time), head->tally_version);
    add_line(lines, "%s", "");
    add_line(lines, "%4s %7s %8s %7s %7s %5s %6s  %s", "RANK", "PID", "STEPS", "STEPS/S", "EXPOSED",
             "LATE", "MB/S", "STATE");
    lines->n_fixed = lines->n;
    for (size_t i = 0; i < ranks->n; i++) {
        add_rank(&ranks->all[i], now_ns, lines);
    }
    add_missing(ranks, 0, ranks->n, lines);
    lines->n_cut = lines->n;
    add_line(lines, "%s", "");
    add_failures(ranks, lines);
    add_waits(ranks, 0, ranks->n, now_ns, lines);
    add_stragglers(ranks, lines);
}

/* ---- several jobs ---- */

static void add_job_row(const struct top_ranks *ranks, size_t first, size_t end, uint64_t now_ns,
                        struct top_lines *lines)
{
    const struct top_rank *rank = &ranks->all[first];
    const struct top_entry *entry = top_main_entry(rank);
    size_t counts[TOP_DEAD + 1] = {0};
    char words[64] = "";

    for (size_t i = first; i < end; i++) {
        counts[ranks->all[i].process]++;
    }
    if (counts[TOP_STOPPED] + counts[TOP_DEAD] > 0) {
        (void)snprintf(words, sizeof words, "%zu stopped, %zu dead", counts[TOP_STOPPED],
                       counts[TOP_DEAD]);
    }
    add_line(lines, "%8ld %6d %9" PRIu64 " %8.1f  %-20.40s %s", (long)rank->pid,
             rank->page.head.world, entry ? entry->n_steps : 0,
             entry ? steps_per_second(rank, entry, now_ns) : 0, rank->page.head.program, words);
}

void top_view_lines(const struct top_ranks *ranks, uint64_t now_ns, struct top_lines *lines)
{
    lines->n = 0;
    lines->n_fixed = 0;
    lines->n_cut = 0;
    if (ranks->n == 0 && ranks->problem[0] == '\0') {
        add_line(lines, "no job of this user uses tally now");
    } else if (ranks->n > 0 && job_end(ranks, 0) == ranks->n) {
        add_job(ranks, now_ns, lines);
    } else if (ranks->n > 0) {
        add_line(lines, "several jobs; tally top PID shows one");
        add_line(lines, "%s", "");
        add_line(lines, "%8s %6s %9s %8s  %-20s", "PID", "RANKS", "STEPS", "STEPS/S", "PROGRAM");
        lines->n_fixed = lines->n;
        for (size_t first = 0; first < ranks->n; first = job_end(ranks, first)) {
            add_job_row(ranks, first, job_end(ranks, first), now_ns, lines);
        }
        lines->n_cut = lines->n;
    }
    if (ranks->problem[0] != '\0') {
        add_line(lines, "%s", ranks->problem);
    }
}

/* ---- JSON ---- */

static const char *const cause_names[] = {NULL, "computes", "lane", "link"};
#define N_CAUSES (sizeof cause_names / sizeof *cause_names)

static void put_entry(struct json *json, const struct top_rank *rank, const struct top_entry *entry,
                      uint64_t now_ns)
{
    json_count(json, "ddp", entry->ddp);
    json_count(json, "steps", (size_t)entry->n_steps);
    json_real(json, "steps_per_s", steps_per_second(rank, entry, now_ns));
    json_real(json, "exposed", exposed_part(entry));
    json_real(json, "late", late_part(entry));
    json_count(json, "late_steps", entry->n_late_steps);
    json_text(json, "late_cause",
              entry->late_cause < N_CAUSES ? cause_names[entry->late_cause] : NULL);
    json_real(json, "bytes_per_s", bytes_per_second(rank, entry, now_ns));
    json_real(json, "state_s", seconds_since(entry->state_since_ns, now_ns));
    json_real(json, "silent_s", seconds_since(entry->heartbeat_ns, now_ns));
    json_count(json, "buckets", entry->n_buckets);
    if (entry->bucket >= 0) {
        json_count(json, "bucket", (size_t)entry->bucket);
    }
    if (entry->waits_for >= 0) {
        json_count(json, "waits_for", (size_t)entry->waits_for);
        json_real(json, "waits_s", seconds_since(entry->waits_since_ns, now_ns));
    }
    json_text(json, "hook", entry->hook);
    json_text(json, "call", entry->call);
    json_text(json, "error", entry->state == TALLY__STATE_FAILED ? entry->error : NULL);
}

static void put_rank(struct json *json, const struct top_rank *rank, uint64_t now_ns)
{
    const struct top_entry *entry = top_main_entry(rank);
    char words[300];

    describe(rank, entry, now_ns, words, sizeof words);
    json_open_item(json);
    json_count(json, "rank", (size_t)rank->page.head.rank);
    json_count(json, "pid", (size_t)rank->pid);
    json_text(json, "state", state_name(rank, entry));
    json_text(json, "words", words);
    if (entry) {
        put_entry(json, rank, entry, now_ns);
    }
    json_close_item(json);
}

void top_view_json(const struct top_ranks *ranks, uint64_t now_ns, FILE *to)
{
    struct json json = json_begin(to);

    json_open_list(&json, "jobs");
    for (size_t first = 0; first < ranks->n; first = job_end(ranks, first)) {
        const struct tally__status_head *head = &ranks->all[first].page.head;

        json_open_item(&json);
        json_text(&json, "program", head->program);
        json_text(&json, "backend", head->backend);
        json_text(&json, "host", head->host);
        json_text(&json, "tally", head->tally_version);
        json_count(&json, "world", (size_t)head->world);
        json_real(&json, "up_s", seconds_since(head->started_ns, now_ns));
        json_open_list(&json, "ranks");
        for (size_t i = first; i < job_end(ranks, first); i++) {
            put_rank(&json, &ranks->all[i], now_ns);
        }
        json_close_list(&json);
        json_close_item(&json);
    }
    json_close_list(&json);
    json_text(&json, "problem", ranks->problem[0] ? ranks->problem : NULL);
    json_end(&json);
}
