/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench events`: prints the result of the engine in bench/ as a line or as JSON. */
#include "tools/bench_events.h"

#include <stdio.h>
#include <tally.h>

#include "bench/event_bench.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

#define NAME "tally bench events"

static void print_json(const struct event_bench *bench, const struct event_result *result)
{
    struct json json = json_begin(stdout);

    json_count(&json, "buckets", bench->n_buckets);
    json_real(&json, "events", result->n_events);
    json_real(&json, "off_us", result->off_us);
    json_real(&json, "on_us", result->on_us);
    json_real(&json, "event_ns", result->event_ns);
    json_end(&json);
}

int bench_events(int argc, char **argv)
{
    bool as_json = false;
    struct option_count n_buckets = {1, 1000, 20};
    struct option_count n_samples = {1, EVENT_MAX_SAMPLES, 501};
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "one JSON object"},
        {"buckets", OPTION_COUNT, &n_buckets, "N", "buckets of a step (20)"},
        {"samples", OPTION_COUNT, &n_samples, "N", "times to take 100 steps of each kind (501)"},
    };
    const struct option_set set = {
        NAME,
        "times steps of one rank with tiny buckets, with events in memory and without,\n"
        "in turn: what an event costs where it happens",
        NAME " --samples 1001 --json", options, sizeof options / sizeof options[0]};
    enum option_result parsed = options_read(&set, argc, argv);
    struct event_bench bench;
    struct event_result result = {0};

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    bench = (struct event_bench){.n_buckets = n_buckets.value, .n_samples = n_samples.value};
    if (event_bench_run(&bench, &result) != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
        return EXIT_FAILED;
    }
    if (as_json) {
        print_json(&bench, &result);
    } else {
        printf("a step of %zu buckets: %.2f us without events, %.2f us with %.0f of them: %.1f ns "
               "each\n",
               bench.n_buckets, result.off_us, result.on_us, result.n_events, result.event_ns);
    }
    return EXIT_DONE;
}
