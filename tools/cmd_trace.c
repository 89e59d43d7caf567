/* SPDX-License-Identifier: Apache-2.0 */
/* `tally trace`: merges the trace files of all ranks into one file for a trace viewer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tally.h>

#include "tools/command.h"
#include "tools/lists.h"
#include "tools/options.h"
#include "tools/trace_json.h"

#define NAME "tally trace"

/* False after a message. */
static bool has_events(const struct trace_cut *cut, const struct trace_written *written)
{
    if (written->n_spans > 0) {
        return true;
    }
    if (written->first_step == 0) {
        (void)fprintf(stderr, NAME ": the files have no events\n");
    } else {
        (void)fprintf(stderr,
                      NAME ": the files have no step from %" PRIu64 " to %" PRIu64
                           "; they have steps %" PRIu64 " to %" PRIu64 "\n",
                      cut->first, cut->last, written->first_step, written->last_step);
    }
    return false;
}

static int write_trace(char **paths, size_t n, const struct trace_cut *cut, const char *output)
{
    struct trace_set set;
    struct trace_written written;
    FILE *to = NULL;
    bool good = trace_set_open(&set, NAME, paths, n, false);

    if (good) {
        to = trace_set_create(&set, output);
        good = to != NULL;
    }
    if (good) {
        good = trace_json_write(&set, cut, to, &written) && has_events(cut, &written);
        good = trace_set_close(&set, to, output, good);
    }
    if (good) {
        printf("%s: %" PRIu64 " events of %zu of %d ranks; open it in ui.perfetto.dev\n", output,
               written.n_events, set.n, set.members[0].file.head.world);
    }
    if (good && written.n_lost > 0) {
        printf("%" PRIu64 " events were lost: ranks overwrote them before they were written\n",
               written.n_lost);
    }
    trace_set_free(&set);
    return good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_trace(int argc, char **argv)
{
    const char *output = "trace.json";
    const char *steps = NULL;
    struct trace_cut cut = {0, UINT64_MAX};
    const struct option options[] = {
        {"o", OPTION_TEXT, &output, "FILE", "write to this file (trace.json)"},
        {"steps", OPTION_TEXT, &steps, "A..B", "only the steps A to B (all that the files have)"},
    };
    const struct option_set set = {
        NAME,
        "merges the trace files of a job, one per rank, for a trace viewer\n\n"
        "usage: " NAME " FILE... [OPTION...]\n\n"
        "Writes one file of Chrome trace JSON, with a track for each thread of each rank. Open it\n"
        "in ui.perfetto.dev or chrome://tracing. TALLY_TRACE=FILE makes a job write trace files.",
        NAME " trace.[0-9]* -o trace.json --steps 100..110", options, 2};
    size_t n;
    enum option_result parsed = options_read_files(&set, argc, argv, "trace files", &n);

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (steps && !range_read(steps, &cut.first, &cut.last)) {
        (void)fprintf(stderr,
                      NAME ": --steps %s is not a range of steps; use A..B, with A at most B\n",
                      steps);
        return EXIT_USAGE;
    }
    return write_trace(argv, n, &cut, output);
}
