/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally bench hooks`: prints the results of the engine in bench/ as a table or as JSON lines. One
 * thread, because the engine forks.
 */
#include "tools/bench_hooks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "bench/hooks_bench.h"
#include "tools/bench_ranks.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

#define NAME "tally bench hooks"
#define MB 1000000

/* Goals for the time of a step, in plain steps, with two ranks and 100 MB or more. */
#define GOAL_RANKS 2
#define GOAL_BYTES ((size_t)100 * MB)

static const struct {
    const char *hook;
    double goal;
} goals[] = {
    {"fp16", 2},   {"bf16", 2}, {"quantize_per_tensor", 2}, {"quantize_per_channel", 2},
    {"int8", 3.5},
};

/* The options as given, not parsed yet. */
struct words {
    const char *ranks;
    struct option_count mb;
    struct option_count bucket_mb;
    struct option_count n_steps;
    struct option_texts hooks;
    bool as_json;
    char all_hooks[OPTION_MAX_TEXTS][64]; /* the target of hooks if none is given */
};

/* NaN if there is none. */
static double goal_of(const struct hooks_bench *bench)
{
    for (size_t i = 0; i < sizeof goals / sizeof goals[0]; i++) {
        if (bench->ranks == GOAL_RANKS && bench->bytes >= GOAL_BYTES &&
            strcmp(goals[i].hook, bench->hook) == 0) {
            return goals[i].goal;
        }
    }
    return (double)NAN;
}

static void print_json(const struct hooks_bench *bench, const struct hooks_result *result)
{
    struct json json = json_begin(stdout);

    json_text(&json, "hook", bench->hook);
    json_count(&json, "ranks", (size_t)bench->ranks);
    json_count(&json, "mb", bench->bytes / MB);
    json_count(&json, "steps", bench->n_steps);
    json_real(&json, "ms", result->ms);
    json_real(&json, "plain_ms", result->plain_ms);
    json_real(&json, "plain_ratio", result->plain_ratio);
    json_real(&json, "goal", goal_of(bench));
    json_count(&json, "wire_bytes", (size_t)result->wire_bytes);
    json_count(&json, "host_bytes", (size_t)result->host_bytes);
    json_real(&json, "rel_error", result->error.all);
    json_real(&json, "worst_error", result->error.worst);
    json_end(&json);
}

static void print_header(const struct hooks_bench *bench)
{
    printf("%d rank%s, %zu MB of gradients as views; medians of %zu steps\n", bench->ranks,
           bench->ranks == 1 ? "" : "s", bench->bytes / MB, bench->n_steps);
    printf("%-28s %9s %9s %8s %6s %11s %11s %11s %11s\n", "hook", "ms", "plain ms", "plain x",
           "goal", "wire bytes", "host bytes", "rel error", "worst param");
}

static void print_row(const struct hooks_bench *bench, const struct hooks_result *result)
{
    double goal = goal_of(bench);

    printf("%-28s %9.3f %9.3f %8.2f ", bench->hook, result->ms, result->plain_ms,
           result->plain_ratio);
    if (isfinite(goal)) {
        printf("%6.2f", goal);
    } else {
        printf("%6s", "-");
    }
    printf(" %11llu %11llu %11.2e %11.2e%s\n", result->wire_bytes, result->host_bytes,
           result->error.all, result->error.worst, result->plain_ratio > goal ? "  missed" : "");
}

static enum option_result read_words(int argc, char **argv, struct words *words)
{
    const struct option options[] = {
        {"json", OPTION_FLAG, &words->as_json, NULL, "one JSON object per line"},
        {"ranks", OPTION_TEXT, &words->ranks, "LIST",
         "numbers of ranks, such as 2,8 (2; under mpirun: its ranks)"},
        {"mb", OPTION_COUNT, &words->mb, "N", "gradients, in millions of bytes of fp32 (100)"},
        {"hook", OPTION_TEXTS, &words->hooks, "TEXT",
         "a hook, see `tally hooks`; may be repeated (all, from the first step on)"},
        {"bucket-mb", OPTION_COUNT, &words->bucket_mb, "M",
         "cap of a bucket, in millions of bytes; 0: tally's default (0)"},
        {"steps", OPTION_COUNT, &words->n_steps, "N",
         "steps to time, by up to three teams of processes (15)"},
    };
    const struct option_set set = {
        NAME,
        "times training steps without a backward pass between processes,\n"
        "with every hook and, in turn, with the plain all-reduce: plain_ratio is ms /\n"
        "plain_ms. Layers have scales from 1e-2 to 1, and 1 % of the elements are ten times\n"
        "larger. rel_error is the relative L2 error of the mean in the first step, before any\n"
        "error feedback, and worst_error is the largest one of a parameter. The bench fails\n"
        "if ranks end with different bits, or with a larger error than the hook should have.\n"
        "Ranks are bound to CPUs if there are enough. Under mpirun its ranks are measured\n"
        "over MPI.",
        NAME " --ranks 2 --mb 100 --hook int8 --hook \"fp16:saturate=1\" --json", options,
        sizeof options / sizeof options[0]};

    return options_read(&set, argc, argv);
}

/* Whether hook number index has the option for uncompressed first steps. */
static bool starts_later(size_t index, const tally_hook_info *info)
{
    bool found = false;

    for (size_t i = 0; i < info->n_options && !found; i++) {
        tally_hook_option option = {.size = sizeof option};

        found = tally_hook_describe_option(index, i, &option) == TALLY_OK &&
                strcmp(option.name, "start") == 0;
    }
    return found;
}

/* Lists all hooks with their default options, except that they start at the first step. */
static void name_all_hooks(struct words *words)
{
    struct option_texts *hooks = &words->hooks;

    for (size_t i = 0; i < tally_hook_count() && hooks->n < OPTION_MAX_TEXTS; i++) {
        tally_hook_info info = {.size = sizeof info};
        char *text = words->all_hooks[hooks->n];

        if (tally_hook_describe(i, &info) == TALLY_OK) {
            (void)snprintf(text, sizeof words->all_hooks[0], "%s%s", info.name,
                           starts_later(i, &info) ? ":start=0" : "");
            hooks->values[hooks->n++] = text;
        }
    }
}

/* Checks the texts of the hooks; prints an error and returns false if one is not a hook. */
static bool check_hooks(const struct option_texts *hooks)
{
    for (size_t i = 0; i < hooks->n; i++) {
        tally_hook *hook;

        if (tally_hook_parse(hooks->values[i], &hook) != TALLY_OK) {
            (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
            return false;
        }
        tally_hook_free(hook);
    }
    return true;
}

/* Runs every hook with this number of ranks; the bench is complete except for the hook. */
static int measure_hooks(struct hooks_bench bench, const struct words *words)
{
    for (size_t i = 0; i < words->hooks.n; i++) {
        struct hooks_result result;
        int status;

        bench.hook = words->hooks.values[i];
        status = hooks_bench_run(&bench, &result);
        if (status != TALLY_OK) {
            (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
            return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
        }
        if (bench.launch.rank > 0) {
            continue;
        }
        if (i == 0 && !words->as_json) {
            print_header(&bench);
        }
        (words->as_json ? print_json : print_row)(&bench, &result);
        (void)fflush(stdout);
    }
    return EXIT_DONE;
}

int bench_hooks(int argc, char **argv)
{
    struct words words = {
        .mb = {1, 100000, 100}, .bucket_mb = {0, 100000, 0}, .n_steps = {1, HOOKS_MAX_STEPS, 15}};
    enum option_result parsed = read_words(argc, argv, &words);
    struct bench_ranks ranks;
    int done;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (words.hooks.n == 0) {
        name_all_hooks(&words);
    }
    if (!check_hooks(&words.hooks)) {
        return EXIT_USAGE;
    }
    done = bench_ranks_read(NAME, words.ranks, &ranks);
    for (size_t i = 0; done == EXIT_DONE && i < ranks.numbers.n; i++) {
        const struct hooks_bench bench = {.ranks = (int)ranks.numbers.values[i],
                                          .launch = ranks.launch,
                                          .bytes = words.mb.value * MB,
                                          .bucket_bytes = words.bucket_mb.value * MB,
                                          .n_steps = words.n_steps.value};

        done = measure_hooks(bench, &words);
    }
    return done;
}
