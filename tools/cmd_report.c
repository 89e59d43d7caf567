/* SPDX-License-Identifier: Apache-2.0 */
/* `tally report`: a page about a run, or about the way it failed, from its trace files. */
#include <stdio.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/options.h"
#include "tools/report_write.h"

#define NAME "tally report"

/* The headline on the terminal too. */
static void print_headline(const char *output, const struct report_run *run,
                           const struct headline *headline)
{
    struct advice advice[ADVICE_MAX];
    size_t n = headline ? report_advise(run, headline, advice) : 0;
    char step[24];
    char compute[24];
    char exposed[24];
    char optimizer[24];

    if (headline) {
        printf("%zu step%s of %zu rank%s: %s per step = %s compute + %s exposed communication + "
               "%s optimizer\n",
               run->n_steps, run->n_steps == 1 ? "" : "s", run->n_ranks,
               run->n_ranks == 1 ? "" : "s", report_time(headline->step_ns, step),
               report_time(headline->compute_ns, compute),
               report_time(headline->exposed_ns, exposed),
               report_time(headline->optimizer_ns, optimizer));
    }
    for (size_t i = 0; i < run->n_failures; i++) {
        printf("rank %d failed: %s\n", run->set->members[run->failures[i].member].file.head.rank,
               run->failures[i].error.text);
    }
    for (size_t i = 0; i < n; i++) {
        printf("%s\n", advice[i].text);
    }
    printf("%s: open it in a browser\n", output);
}

static bool write_report(const struct report_run *run, const char *output)
{
    struct headline headline;
    bool has_steps = run->n_steps > 0 && report_headline(run, &headline);
    FILE *to;

    if (!has_steps && run->n_failures == 0) {
        (void)fprintf(stderr, NAME ": the files have no complete step\n");
        return false;
    }
    to = trace_set_create(run->set, output);
    if (!to) {
        return false;
    }
    report_write(run, has_steps ? &headline : NULL, to);
    if (!trace_set_close(run->set, to, output, true)) {
        return false;
    }
    print_headline(output, run, has_steps ? &headline : NULL);
    return true;
}

static int make_report(char **paths, size_t n, const char *output)
{
    struct trace_set set;
    struct report_run run = {0};
    bool good = trace_set_open(&set, NAME, paths, n, true);

    if (good) {
        good = report_gather(&run, &set) && report_choose(&run) && report_gather_spans(&run) &&
               write_report(&run, output);
        report_free(&run);
    }
    trace_set_free(&set);
    return good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_report(int argc, char **argv)
{
    const char *output = "report.html";
    const struct option options[] = {
        {"o", OPTION_TEXT, &output, "FILE", "write to this file (report.html)"},
    };
    const struct option_set set = {
        NAME,
        "makes a page about a run from its trace files, one per rank\n\n"
        "usage: " NAME " FILE... [OPTION...]\n\n"
        "The page shows where the time of a step goes, which rank is late, each bucket, and a\n"
        "timeline. It is one file and needs no network. TALLY_TRACE=FILE makes a job write trace\n"
        "files; with TALLY_REPORT_DIR=DIR a job that fails writes what it knows, and this\n"
        "command shows it.",
        NAME " trace.[0-9]* -o report.html", options, 1};
    size_t n;
    enum option_result parsed = options_read_files(&set, argc, argv, "trace files", &n);

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    return make_report(argv, n, output);
}
