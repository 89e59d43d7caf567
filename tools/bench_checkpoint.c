/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally bench checkpoint`: prints the results of the engine in bench/ as a small table or as a
 * JSON line. One thread, because the engine forks.
 */
#include "tools/bench_checkpoint.h"

#include <stdio.h>
#include <tally.h>

#include "bench/checkpoint_bench.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

#define NAME "tally bench checkpoint"
#define MB 1000000

/* Goals: bytes per second by those of plain writes; copies that an asynchronous save takes; growth
 * of the steps during the write. */
#define SPEED_GOAL 0.8
#define COPY_GOAL 1.5
#define GROWTH_GOAL 0.05

static void print_json(const struct checkpoint_bench *bench, const struct checkpoint_result *result)
{
    struct json json = json_begin(stdout);

    json_count(&json, "ranks", (size_t)bench->ranks);
    json_count(&json, "mb", bench->bytes / MB);
    json_count(&json, "params", bench->n_params);
    json_flag(&json, "shard", bench->shard != 0);
    json_count(&json, "cpus", (size_t)result->cpus);
    json_count(&json, "rounds", bench->n_rounds);
    json_count(&json, "bytes", result->bytes);
    json_real(&json, "plain_ms", result->plain_ms);
    json_real(&json, "save_ms", result->save_ms);
    json_real(&json, "load_ms", result->load_ms);
    json_real(&json, "save_over_plain", result->save_over_plain);
    json_real(&json, "load_over_plain", result->load_over_plain);
    json_count(&json, "copied_bytes", result->copied_bytes);
    json_real(&json, "copy_ms", result->copy_ms);
    json_real(&json, "take_ms", result->take_ms);
    json_real(&json, "take_over_copy", result->take_over_copy);
    json_real(&json, "step_ms", result->step_ms);
    json_real(&json, "during_ms", result->during_ms);
    json_real(&json, "during_growth", result->during_growth);
    json_real(&json, "beside_ms", result->beside_ms);
    json_real(&json, "beside_growth", result->beside_growth);
    json_end(&json);
}

static void print_table(const struct checkpoint_bench *bench,
                        const struct checkpoint_result *result)
{
    double mb = (double)result->bytes / MB;

    printf("%d rank%s, %zu MB of parameters with AdamW%s: a checkpoint has %.0f MB; medians of %zu "
           "rounds, in ms\n",
           bench->ranks, bench->ranks == 1 ? "" : "s", bench->bytes / MB,
           bench->shard ? ", sharded" : "", mb, bench->n_rounds);
    printf("  %-36s %9.1f   %.0f MB/s\n", "write and fsync of the same bytes", result->plain_ms,
           1e3 * mb / result->plain_ms);
    printf("  %-36s %9.1f   %.0f MB/s, %.2f of that (goal: %.1f)\n", "tally_checkpoint_save",
           result->save_ms, 1e3 * mb / result->save_ms, result->save_over_plain, SPEED_GOAL);
    printf("  %-36s %9.1f   %.0f MB/s, %.2f of that (goal: %.1f)\n", "tally_checkpoint_load",
           result->load_ms, 1e3 * mb / result->load_ms, result->load_over_plain, SPEED_GOAL);
    printf("  %-36s %9.1f\n", "memcpy of what a rank copies", result->copy_ms);
    printf("  %-36s %9.1f   %.2f copies (goal: %.1f)\n", "save with async, the call",
           result->take_ms, result->take_over_copy, COPY_GOAL);
    printf("  %-36s %9.1f\n", "step", result->step_ms);
    printf("  %-36s %9.1f   %+.0f %% (goal with a spare CPU: %.0f %%)\n", "step during the write",
           result->during_ms, 100 * result->during_growth, 100 * GROWTH_GOAL);
    printf("  %-36s %9.1f   %+.0f %%\n", "step during plain writes", result->beside_ms,
           100 * result->beside_growth);
    if (result->cpus <= bench->ranks) {
        printf("%d CPU%s for %d rank%s: none is spare, so the write takes its time from the "
               "steps.\n",
               result->cpus, result->cpus == 1 ? "" : "s", bench->ranks,
               bench->ranks == 1 ? "" : "s");
    }
}

int bench_checkpoint(int argc, char **argv)
{
    struct option_count ranks = {1, 64, 2};
    struct option_count mb = {1, 100000, 100};
    struct option_count n_params = {1, 1000000, 100};
    struct option_count backward_ms = {0, 10000, 50};
    struct option_count n_rounds = {1, CHECKPOINT_MAX_ROUNDS, 5};
    const char *directory = ".";
    bool as_json = false;
    bool shard = false;
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "as a JSON object"},
        {"ranks", OPTION_COUNT, &ranks, "N", "number of ranks (2)"},
        {"mb", OPTION_COUNT, &mb, "N", "parameters, in millions of bytes of fp32 (100)"},
        {"params", OPTION_COUNT, &n_params, "N", "parameters, of equal size (100)"},
        {"shard", OPTION_FLAG, &shard, NULL, "the optimizer is sharded"},
        {"backward-ms", OPTION_COUNT, &backward_ms, "MS", "length of the backward pass (50)"},
        {"rounds", OPTION_COUNT, &n_rounds, "N", "repetitions of every side (5)"},
        {"directory", OPTION_TEXT, &directory, "DIR", "where to write (.)"},
    };
    const struct option_set set = {
        NAME,
        "times checkpoints of a model with AdamW. plain_ms is plain\n"
        "writes with fsync: every rank as many bytes and files as it has in a checkpoint;\n"
        "save_ms and load_ms are the two calls, take_ms is a save with async, and copy_ms a\n"
        "memcpy of as many bytes as that copies. step_ms is a training step, during_ms one\n"
        "while a checkpoint is being written, beside_ms one while plain writes go on. What is\n"
        "loaded is checked.",
        NAME " --ranks 2 --mb 100 --json", options, sizeof options / sizeof options[0]};
    enum option_result parsed = options_read(&set, argc, argv);
    struct checkpoint_bench bench;
    struct checkpoint_result result;
    int status;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    bench = (struct checkpoint_bench){.ranks = (int)ranks.value,
                                      .bytes = mb.value * MB,
                                      .n_params = n_params.value,
                                      .shard = shard,
                                      .backward_ms = (double)backward_ms.value,
                                      .n_rounds = n_rounds.value,
                                      .directory = directory};
    status = checkpoint_bench_run(&bench, &result);
    if (status != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
        return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    (as_json ? print_json : print_table)(&bench, &result);
    return EXIT_DONE;
}
