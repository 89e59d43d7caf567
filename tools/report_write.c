/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the page of a report: the embedded files, and the run as JSON between them. Every text
 * from a trace file passes through json_string, and the page puts it into text nodes. One thread.
 */
#include "tools/report_write.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/json.h"
#include "tools/report_page.h"

/* The chart of steps has at most this many points. */
#define POINTS_MAX 400

static void put_number(FILE *to, const char *key, double value)
{
    (void)fprintf(to, "\"%s\":%.10g", key, isfinite(value) ? value : 0);
}

static void put_text(FILE *to, const char *key, const char *text)
{
    (void)fprintf(to, "\"%s\":", key);
    json_string(to, text);
}

/* ---- the job ---- */

static bool is_new_host(const struct trace_set *set, size_t member)
{
    for (size_t i = 0; i < member; i++) {
        if (set->members[i].machine == set->members[member].machine) {
            return false;
        }
    }
    return true;
}

static void put_hosts(FILE *to, const struct trace_set *set)
{
    const char *separator = "";

    (void)fputs("\"hosts\":[", to);
    for (size_t i = 0; i < set->n; i++) {
        if (is_new_host(set, i)) {
            (void)fputs(separator, to);
            json_string(to, set->members[i].file.head.host);
            separator = ",";
        }
    }
    (void)fputs("],", to);
}

/* Ranks of the world without a file; of many, the first ones. */
static void put_missing(FILE *to, const struct trace_set *set)
{
    size_t at = 0;
    size_t n = 0;

    (void)fputs("\"missing\":[", to);
    for (int rank = 0; rank < set->members[0].file.head.world && n < 20; rank++) {
        while (at < set->n && set->members[at].file.head.rank < rank) {
            at++;
        }
        if (at == set->n || set->members[at].file.head.rank != rank) {
            (void)fprintf(to, n++ == 0 ? "%d" : ",%d", rank);
        }
    }
    (void)fputs("],", to);
}

static void put_job(FILE *to, const struct report_run *run, const struct headline *headline)
{
    const struct tally__trace_head *head = &run->set->members[0].file.head;
    int64_t start = (int64_t)((uint64_t)head->realtime_minus_monotonic_ns + head->opened_ns);

    (void)fputs("\"job\":{", to);
    put_text(to, "program", head->program);
    (void)fprintf(to, ",\"world\":%d,", head->world);
    put_text(to, "backend", head->backend);
    (void)fputc(',', to);
    put_hosts(to, run->set);
    put_missing(to, run->set);
    put_text(to, "tally", head->tally_version);
    (void)fprintf(to, ",\"n_ddps\":%u,\"ddp\":%u,\"start\":%" PRId64, run->n_ddps, run->ddp,
                  start / 1000000000);
    (void)fprintf(
        to,
        ",\"n_steps\":%zu,\"first_step\":%" PRIu64 ",\"last_step\":%" PRIu64 ",\"skipped\":%zu}",
        run->n_steps, run->n_steps ? run->steps[0].step : 0,
        run->n_steps ? run->steps[run->n_steps - 1].step : 0, headline ? headline->n_skipped : 0);
}

/* ---- headline and steps ---- */

static void put_headline(FILE *to, const struct report_run *run, const struct headline *headline)
{
    struct advice advice[ADVICE_MAX];
    size_t n = report_advise(run, headline, advice);

    (void)fprintf(to, ",\n\"headline\":{\"n_steps\":%zu,", headline->n_steps);
    put_number(to, "step", headline->step_ns);
    (void)fputc(',', to);
    put_number(to, "p95", headline->p95_ns);
    (void)fputc(',', to);
    put_number(to, "compute", headline->compute_ns);
    (void)fputc(',', to);
    put_number(to, "exposed", headline->exposed_ns);
    (void)fputc(',', to);
    put_number(to, "optimizer", headline->optimizer_ns);
    if (headline->straggler >= 0) {
        (void)fprintf(to, ",\"straggler\":{\"rank\":%d,", headline->straggler);
        put_number(to, "waited", headline->straggler_ns);
        (void)fputc('}', to);
    } else {
        (void)fputs(",\"straggler\":null", to);
    }
    (void)fputs(",\"advice\":[", to);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(to, "%s[\"%s\",", i == 0 ? "" : ",", advice[i].kind);
        json_string(to, advice[i].text);
        (void)fputc(']', to);
    }
    (void)fputs("]}", to);
}

/* One number of each point: the mean, or the largest, of its steps. */
static void put_points(FILE *to, const struct report_run *run, size_t per, const char *key)
{
    (void)fprintf(to, ",\"%s\":[", key);
    for (size_t first = 0; first < run->n_steps; first += per) {
        size_t end = first + per < run->n_steps ? first + per : run->n_steps;
        double value = 0;

        for (size_t i = first; i < end; i++) {
            const struct step_mean *step = &run->steps[i];
            double n = (double)(end - first);

            if (strcmp(key, "max") == 0) {
                value = step->step_ns > value ? step->step_ns : value;
            } else {
                value += (strcmp(key, "compute") == 0   ? step->compute_ns
                          : strcmp(key, "exposed") == 0 ? step->exposed_ns
                                                        : step->optimizer_ns) /
                         n;
            }
        }
        (void)fprintf(to, first == 0 ? "%.0f" : ",%.0f", value);
    }
    (void)fputc(']', to);
}

static void put_series(FILE *to, const struct report_run *run)
{
    size_t per = (run->n_steps + POINTS_MAX - 1) / POINTS_MAX;

    (void)fprintf(to, ",\n\"series\":{\"per\":%zu,\"first\":[", per);
    for (size_t first = 0; first < run->n_steps; first += per) {
        (void)fprintf(to, first == 0 ? "%" PRIu64 : ",%" PRIu64, run->steps[first].step);
    }
    (void)fputc(']', to);
    put_points(to, run, per, "compute");
    put_points(to, run, per, "exposed");
    put_points(to, run, per, "optimizer");
    put_points(to, run, per, "max");
    (void)fputc('}', to);
}

/* ---- timelines ---- */

/* Six numbers: kind, begin from the begin of the step, length, bucket, bytes, peer. Cut at the
 * edges of what is shown. */
static void put_span(FILE *to, const struct shown_step *shown, const struct trace_member *member,
                     const struct tally__trace_event *span)
{
    uint64_t begin = trace_set_time(member, span->begin_ns);
    uint64_t end = trace_set_time(member, span->end_ns);

    begin = begin < shown->begin_ns ? shown->begin_ns : begin;
    end = end > shown->end_ns ? shown->end_ns : end;
    end = end < begin ? begin : end;
    (void)fprintf(to, "%d,%" PRIu64 ",%" PRIu64 ",%d,%.0f,%d", span->kind, begin - shown->begin_ns,
                  end - begin, span->bucket == TALLY__NO_BUCKET ? -1 : span->bucket,
                  (double)span->bytes, span->peer);
}

static void put_shown_rank(FILE *to, const struct report_run *run, const struct shown_step *shown,
                           const struct shown_rank *rank)
{
    (void)fprintf(to, "{\"rank\":%d,\"threads\":[", rank->rank);
    for (size_t t = 0; t < rank->n_threads; t++) {
        (void)fputs(t == 0 ? "{" : ",{", to);
        put_text(to, "name", rank->threads[t].name);
        (void)fputs(",\"events\":[", to);
        for (size_t i = 0; i < rank->threads[t].n; i++) {
            (void)fputs(i == 0 ? "" : ",", to);
            put_span(to, shown, &run->set->members[rank->member], &rank->threads[t].spans[i]);
        }
        (void)fputs("]}", to);
    }
    (void)fputs("]}", to);
}

static void put_shown_note(FILE *to, const struct report_run *run, const struct shown_step *shown)
{
    uint64_t uncertainty = trace_set_uncertainty(run->set);
    char note[200] = "";
    char time[24];
    size_t used = 0;

    if (run->set->n_machines > 1 && uncertainty == UINT64_MAX) {
        used = (size_t)snprintf(note, sizeof note,
                                "Clocks of the machines are compared by their wall clocks only. ");
    } else if (run->set->n_machines > 1) {
        used = (size_t)snprintf(note, sizeof note, "Clocks of the machines agree within %s. ",
                                report_time((double)uncertainty, time));
    }
    if (shown->n_left_out > 0) {
        (void)snprintf(note + used, sizeof note - used, "%zu more ranks are not shown.",
                       shown->n_left_out);
    }
    put_text(to, "note", note);
}

static void put_shown(FILE *to, const struct report_run *run)
{
    (void)fputs(",\n\"steps\":[", to);
    for (size_t s = 0; s < run->n_shown; s++) {
        const struct shown_step *shown = &run->shown[s];

        (void)fputs(s == 0 ? "{" : ",\n{", to);
        put_text(to, "label", shown->label);
        if (shown->step != 0) {
            (void)fprintf(to, ",\"step\":%" PRIu64, shown->step);
        } else {
            (void)fputs(",\"step\":null", to);
        }
        (void)fprintf(to, ",\"length\":%" PRIu64 ",",
                      shown->end_ns > shown->begin_ns ? shown->end_ns - shown->begin_ns : 1);
        put_shown_note(to, run, shown);
        (void)fputs(",\"ranks\":[", to);
        for (size_t r = 0; r < shown->n_ranks; r++) {
            (void)fputs(r == 0 ? "" : ",", to);
            put_shown_rank(to, run, shown, &shown->ranks[r]);
        }
        (void)fputs("]}", to);
    }
    (void)fputc(']', to);
}

/* ---- tables ---- */

static void put_ranks(FILE *to, const struct report_run *run)
{
    size_t member = 0;

    (void)fputs(",\n\"ranks\":[", to);
    for (size_t r = 0; r < run->n_ranks && run->n_ranks > 1; r++) {
        const struct rank_figures *rank = &run->ranks[r];
        double n = rank->n_steps > 0 ? (double)rank->n_steps : 1;
        double witnesses = rank->n_witnesses > 0 ? (double)rank->n_witnesses : 1;
        bool has_file;

        while (member < run->set->n && (size_t)run->set->members[member].file.head.rank < r) {
            member++;
        }
        has_file = member < run->set->n && (size_t)run->set->members[member].file.head.rank == r;
        (void)fprintf(to, "%s{\"rank\":%zu,", r == 0 ? "" : ",\n", r);
        put_text(to, "host", has_file ? run->set->members[member].file.head.host : "");
        (void)fprintf(to,
                      ",\"step\":%.0f,\"compute\":%.0f,\"exposed\":%.0f,\"optimizer\":%.0f,"
                      "\"n_last\":%.0f,\"n_rounds\":%.0f,\"waited\":%.0f,\"computes\":%.0f,"
                      "\"lane\":%.0f,\"link\":%.0f}",
                      rank->step_ns / n, rank->compute_ns / n, rank->exposed_ns / n,
                      rank->optimizer_ns / n, rank->n_last, rank->n_rounds, rank_waited_ns(rank),
                      rank->computes_ns / witnesses, rank->lane_ns / witnesses,
                      rank->link_ns / witnesses);
    }
    (void)fputc(']', to);
}

static void put_buckets(FILE *to, const struct report_run *run)
{
    (void)fputs(",\n\"buckets\":[", to);
    for (size_t b = 0; b < run->n_buckets; b++) {
        const struct bucket_figures *bucket = &run->buckets[b];
        double n = bucket->n > 0 ? bucket->n : 1;

        (void)fprintf(to, "%s{\"bucket\":%zu,", b == 0 ? "" : ",\n", b);
        put_text(to, "name", bucket->name);
        (void)fputc(',', to);
        put_text(to, "hook", run->hook);
        (void)fprintf(to,
                      ",\"n_params\":%u,\"bytes\":%" PRIu64
                      ",\"n\":%.0f,\"wire\":%.0f,\"ready\":%.0f,\"exchange\":%.0f,"
                      "\"waiting\":%.0f,\"exposed\":%.0f}",
                      bucket->n_params, bucket->bytes, bucket->n, bucket->wire_bytes / n,
                      bucket->ready_ns / n, bucket->exchange_ns / n, bucket->waiting_ns / n,
                      bucket->exposed_ns / n);
    }
    (void)fputc(']', to);
}

/* The choices of the hook auto, if they are of these buckets. Times in nanoseconds, as all. */
static void put_choices(FILE *to, const struct report_run *run)
{
    const struct report_choices *choices = run->choices;

    if (!choices || choices->head.generation != run->generation) {
        (void)fputs(",\n\"choices\":null", to);
        return;
    }
    (void)fprintf(
        to, ",\n\"choices\":{\"step\":%" PRIu64 ",\"settled\":%s,\"cap_bytes\":%" PRIu64 ",",
        choices->head.step, choices->head.is_settled ? "true" : "false", choices->head.cap_bytes);
    put_number(to, "cap_gain", choices->head.cap_gain);
    (void)fputs(",\"rows\":[", to);
    for (uint32_t b = 0; b < choices->head.n; b++) {
        const struct tally__trace_choice *row = &choices->rows[b];

        (void)fprintf(to, "%s{\"bucket\":%u,", b == 0 ? "" : ",\n", b);
        put_text(to, "hook", row->hook);
        (void)fputc(',', to);
        put_text(to, "runner_up", row->runner_up);
        (void)fprintf(to, ",\"predicted\":%.0f,\"measured\":%.0f,\"runner_up_time\":%.0f,",
                      1e9 * row->predicted_s, 1e9 * row->measured_s, 1e9 * row->runner_up_s);
        put_number(to, "error", row->error);
        (void)fputc(',', to);
        put_text(to, "reason", row->reason);
        (void)fputc('}', to);
    }
    (void)fputs("]}", to);
}

static void put_error(FILE *to, const char *key, double error)
{
    if (error >= 0) {
        put_number(to, key, error);
    } else {
        (void)fprintf(to, "\"%s\":null", key);
    }
}

static void put_bytes(FILE *to, const struct headline *headline)
{
    (void)fputs(",\n\"bytes\":{", to);
    put_number(to, "wire", headline->wire_bytes);
    (void)fputc(',', to);
    put_number(to, "plain", headline->plain_bytes);
    (void)fputc(',', to);
    put_error(to, "error", headline->error);
    (void)fputc(',', to);
    put_error(to, "error_max", headline->error_max);
    (void)fputc('}', to);
}

static void put_notes(FILE *to, const struct report_run *run)
{
    (void)fputs(",\n\"notes\":[", to);
    for (size_t i = 0; i < run->n_notes; i++) {
        (void)fputs(i == 0 ? "[" : ",[", to);
        json_string(to, run->notes[i].key);
        (void)fputc(',', to);
        json_string(to, run->notes[i].value);
        (void)fputc(']', to);
    }
    (void)fputc(']', to);
}

static void put_kinds(FILE *to)
{
    static const char *const names[] = {
#define NAME_OF(name, text) #name,
        TALLY__TRACE_EVENT_LIST(NAME_OF)
#undef NAME_OF
    };

    (void)fputs(",\n\"kinds\":[", to);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)fprintf(to, i == 0 ? "\"%s\"" : ",\"%s\"", names[i]);
    }
    (void)fputc(']', to);
}

/* ---- the page ---- */

static void put_data(FILE *to, const struct report_run *run, const struct headline *headline)
{
    (void)fputc('{', to);
    put_job(to, run, headline);
    if (headline) {
        put_headline(to, run, headline);
        put_series(to, run);
        put_bytes(to, headline);
    } else {
        (void)fputs(",\n\"headline\":null,\"series\":null,\"bytes\":null", to);
    }
    put_kinds(to);
    put_shown(to, run);
    put_ranks(to, run);
    put_buckets(to, run);
    put_choices(to, run);
    put_notes(to, run);
    report_write_failures(run, to);
    (void)fputc('}', to);
}

void report_write(const struct report_run *run, const struct headline *headline, FILE *to)
{
    static const struct {
        const char *mark;
        const char *texts[3];
    } parts[] = {
        {"@CSS@", {report_page_css}},
        {"@DATA@", {NULL}},
        {"@JS@", {report_page_js, report_steps_js, report_timeline_js}},
    };
    const char *rest = report_page_html;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *mark = strstr(rest, parts[i].mark);

        if (!mark) {
            break;
        }
        (void)fwrite(rest, 1, (size_t)(mark - rest), to);
        for (size_t t = 0; t < 3 && parts[i].texts[t]; t++) {
            (void)fputs(parts[i].texts[t], to);
        }
        if (!parts[i].texts[0]) {
            put_data(to, run, headline);
        }
        rest = mark + strlen(parts[i].mark);
    }
    (void)fputs(rest, to);
}
