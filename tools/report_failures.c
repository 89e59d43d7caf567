/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a report about failures: which ranks had arrived, and what each did last. */
#include <inttypes.h>
#include <string.h>
#include <tally.h>

#include "tools/json.h"
#include "tools/report_write.h"

/* The last event of a rank in words; "" if nothing is known. */
static void describe_last(const struct report_run *run, int rank, uint64_t failed_ns, char *text,
                          size_t room)
{
    static const char *const names[] = {
#define NAME_OF(name, words) words,
        TALLY__TRACE_EVENT_LIST(NAME_OF)
#undef NAME_OF
    };
    const struct rank_figures *figures;
    uint64_t last_ns;
    char what[64];
    char time[24];

    text[0] = '\0';
    if (rank < 0 || (size_t)rank >= run->n_ranks ||
        run->ranks[rank].last.kind == TALLY__EVENT_NONE) {
        return;
    }
    figures = &run->ranks[rank];
    last_ns = trace_set_time(&run->set->members[figures->last_member], figures->last.end_ns);
    if (figures->last.kind == TALLY__EVENT_GRAD_READY) {
        (void)snprintf(what, sizeof what, "gradient of parameter %d ready", figures->last.peer);
    } else if (figures->last.bucket != TALLY__NO_BUCKET) {
        (void)snprintf(what, sizeof what, "%s of bucket %d", names[figures->last.kind],
                       figures->last.bucket);
    } else {
        (void)snprintf(what, sizeof what, "%s", names[figures->last.kind]);
    }
    (void)snprintf(text, room, "%s, step %u, %s before", what, figures->last.step,
                   report_time(failed_ns > last_ns ? (double)(failed_ns - last_ns) : 0, time));
}

static void put_line(const struct report_run *run, FILE *to, const struct tally__trace_line *line,
                     uint64_t failed_ns)
{
    static const char *const states[] = {"missing", "arrived", "left", "dead"};
    char last[160];

    describe_last(run, line->rank, failed_ns, last, sizeof last);
    (void)fprintf(to, "{\"rank\":%d,\"state\":\"%s\",\"words\":", line->rank,
                  line->state < sizeof states / sizeof states[0] ? states[line->state] : "unknown");
    json_string(to, line->doing);
    (void)fputs(",\"last\":", to);
    json_string(to, last);
    (void)fputc('}', to);
}

static bool says_same(const struct report_failure *a, const struct report_failure *b)
{
    return a->error.status == b->error.status && a->error.step == b->error.step &&
           strcmp(a->error.text, b->error.text) == 0;
}

/* Ranks that wrote the same text as an earlier one are listed with it. */
static void put_same(const struct report_run *run, FILE *to, size_t failure)
{
    const char *separator = "";

    (void)fputs(",\"also\":[", to);
    for (size_t i = failure + 1; i < run->n_failures; i++) {
        if (says_same(&run->failures[failure], &run->failures[i])) {
            (void)fprintf(to, "%s%d", separator,
                          run->set->members[run->failures[i].member].file.head.rank);
            separator = ",";
        }
    }
    (void)fputs("]", to);
}

static bool is_repeated(const struct report_run *run, size_t failure)
{
    for (size_t i = 0; i < failure; i++) {
        if (says_same(&run->failures[i], &run->failures[failure])) {
            return true;
        }
    }
    return false;
}

static void put_failure(const struct report_run *run, FILE *to, size_t i)
{
    const struct report_failure *failure = &run->failures[i];
    const struct trace_member *member = &run->set->members[failure->member];
    uint64_t failed_ns = trace_set_time(member, failure->error.at_ns);

    (void)fprintf(to, "{\"rank\":%d,\"step\":%" PRIu64 ",\"status\":", member->file.head.rank,
                  failure->error.step);
    json_string(to, tally_status_name(failure->error.status));
    (void)fputs(",\"text\":", to);
    json_string(to, failure->error.text);
    put_same(run, to, i);
    (void)fputs(",\"lines\":[", to);
    for (size_t l = 0; l < failure->n_lines; l++) {
        (void)fputs(l == 0 ? "" : ",\n", to);
        put_line(run, to, &failure->lines[l], failed_ns);
    }
    (void)fputs("]}", to);
}

void report_write_failures(const struct report_run *run, FILE *to)
{
    const char *separator = "";

    (void)fputs(",\n\"post\":[", to);
    for (size_t i = 0; i < run->n_failures; i++) {
        if (!is_repeated(run, i)) {
            (void)fputs(separator, to);
            put_failure(run, to, i);
            separator = ",\n";
        }
    }
    (void)fputc(']', to);
}
