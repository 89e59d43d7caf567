/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally bench profile`: writes a profile for `tally plan`, and prints what the engine in bench/
 * has measured, beside the forecast from the profile, as a table or as JSON lines. One thread,
 * because the engine forks.
 */
#include "tools/bench_profile.h"

#include <stdio.h>
#include <tally.h>

#include "bench/profile_bench.h"
#include "tools/bench_ranks.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

#define NAME "tally bench profile"
#define MB 1000000

/* The options as given, not parsed yet. */
struct words {
    const char *ranks;
    const char *file;
    struct option_count mb;
    struct option_count bucket_mb;
    struct option_count backward_ms;
    struct option_count n_steps;
    struct option_texts hooks;
    bool is_timed;
    bool as_json;
};

static enum option_result read_words(int argc, char **argv, struct words *words)
{
    const struct option options[] = {
        {"json", OPTION_FLAG, &words->as_json, NULL, "one JSON object per line"},
        {"o", OPTION_TEXT, &words->file, "FILE", "write the profile, for `tally plan`"},
        {"ranks", OPTION_TEXT, &words->ranks, "N", "number of ranks (2; under mpirun: its ranks)"},
        {"mb", OPTION_COUNT, &words->mb, "N", "gradients, in millions of bytes of fp32 (100)"},
        {"bucket-mb", OPTION_COUNT, &words->bucket_mb, "M",
         "cap of a bucket, in millions of bytes; 0: tally's default (0)"},
        {"backward-ms", OPTION_COUNT, &words->backward_ms, "MS",
         "length of the backward pass (100)"},
        {"timed", OPTION_FLAG, &words->is_timed, NULL,
         "backward sleeps instead of computing: it leaves its CPU to the lanes"},
        {"hook", OPTION_TEXTS, &words->hooks, "TEXT",
         "a hook besides allreduce; may be repeated (bf16, int8, powersgd:start=0)"},
        {"steps", OPTION_COUNT, &words->n_steps, "N", "steps to time for each figure (15)"},
    };
    const struct option_set set = {
        NAME,
        "takes a profile of a training step between processes: backward\n"
        "alone, and what it loses to lanes beside it; a small message; the rate of the line;\n"
        "CPU time, bytes and error of each hook. step_ms is the measured step of each hook,\n"
        "forecast_ms what the profile gives for it. Under mpirun its ranks are measured over\n"
        "MPI: take the profile on two of the hosts that you have, and plan for others.",
        NAME " --mb 100 --backward-ms 100 -o run.json --json", options,
        sizeof options / sizeof options[0]};

    return options_read(&set, argc, argv);
}

static void print_json(const struct profile_bench *bench, const struct profile_result *result,
                       const struct profile_row *row)
{
    struct json json = json_begin(stdout);

    json_text(&json, "hook", row->hook);
    json_count(&json, "ranks", (size_t)bench->ranks);
    json_real(&json, "hosts", result->hosts);
    json_count(&json, "mb", bench->bytes / MB);
    json_count(&json, "steps", bench->n_steps);
    json_text(&json, "backward", bench->is_timed ? "timed" : "computes");
    json_real(&json, "backward_ms", result->backward_ms);
    json_real(&json, "gbit", result->gbit);
    json_real(&json, "latency_us", result->latency_us);
    json_real(&json, "cpu_share", result->cpu_share);
    json_real(&json, "step_ms", row->step_ms);
    json_real(&json, "forecast_ms", row->forecast_ms);
    json_count(&json, "wire_bytes", (size_t)row->wire_bytes);
    json_real(&json, "error", row->error);
    json_end(&json);
}

static void print_table(const struct profile_bench *bench, const struct profile_result *result)
{
    printf("%d ranks on %.0f host%s, %zu MB of gradients, backward %.1f ms (%s); %.3g Gbit/s, %.1f "
           "us;\nbackward loses %.2f of the CPU time of lanes; medians of %zu steps\n",
           bench->ranks, result->hosts, result->hosts > 1 ? "s" : "", bench->bytes / MB,
           result->backward_ms, bench->is_timed ? "timed" : "computes", result->gbit,
           result->latency_us, result->cpu_share, bench->n_steps);
    printf("%-28s %10s %12s %12s %10s\n", "hook", "step ms", "forecast ms", "wire bytes", "error");
    for (size_t h = 0; h < result->n; h++) {
        const struct profile_row *row = &result->rows[h];

        printf("%-28s %10.2f %12.2f %12llu %10.1e\n", row->hook, row->step_ms, row->forecast_ms,
               row->wire_bytes, row->error);
    }
}

static void print_all_json(const struct profile_bench *bench, const struct profile_result *result)
{
    for (size_t h = 0; h < result->n; h++) {
        print_json(bench, result, &result->rows[h]);
    }
}

/* allreduce, and the hooks that were given. False, with a message, if one is not a hook. */
static bool name_hooks(const struct option_texts *given, const char **names, size_t *n)
{
    static const char *const usual[] = {"bf16", "int8", "powersgd:start=0"};
    size_t n_more = given->n > 0 ? given->n : sizeof usual / sizeof usual[0];

    names[0] = "allreduce";
    for (size_t i = 0; i < n_more; i++) {
        const char *name = given->n > 0 ? given->values[i] : usual[i];
        tally_hook *hook;

        if (i + 1 == PROFILE_MAX_HOOKS) {
            (void)fprintf(stderr, NAME ": --hook %s is one too many; at most %d are accepted\n",
                          name, PROFILE_MAX_HOOKS - 1);
            return false;
        }
        if (tally_hook_parse(name, &hook) != TALLY_OK) {
            (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
            return false;
        }
        tally_hook_free(hook);
        names[i + 1] = name;
    }
    *n = n_more + 1;
    return true;
}

static int measure(const struct profile_bench *bench, bool as_json)
{
    struct profile_result result;
    int status = profile_bench_run(bench, &result);

    if (status != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
        return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    if (bench->launch.rank == 0) {
        (as_json ? print_all_json : print_table)(bench, &result);
    }
    return EXIT_DONE;
}

int bench_profile(int argc, char **argv)
{
    struct words words = {.mb = {1, 100000, 100},
                          .bucket_mb = {0, 100000, 0},
                          .backward_ms = {1, 10000, 100},
                          .n_steps = {1, PROFILE_MAX_STEPS, 15}};
    enum option_result parsed = read_words(argc, argv, &words);
    const char *names[PROFILE_MAX_HOOKS];
    struct bench_ranks ranks;
    size_t n_hooks;
    int done;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (!name_hooks(&words.hooks, names, &n_hooks)) {
        return EXIT_USAGE;
    }
    done = bench_ranks_read(NAME, words.ranks, &ranks);
    if (done == EXIT_DONE) {
        const struct profile_bench bench = {.ranks = (int)ranks.numbers.values[0],
                                            .launch = ranks.launch,
                                            .bytes = words.mb.value * MB,
                                            .bucket_bytes = words.bucket_mb.value * MB,
                                            .backward_ms = (double)words.backward_ms.value,
                                            .is_timed = words.is_timed,
                                            .n_steps = words.n_steps.value,
                                            .hooks = names,
                                            .n_hooks = n_hooks,
                                            .file = words.file};

        done = measure(&bench, words.as_json);
    }
    return done;
}
