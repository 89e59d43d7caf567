/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally bench step`: prints the results of the engine in bench/ as a small table or as JSON lines.
 * One thread, because the engine forks.
 */
#include "tools/bench_step.h"

#include <math.h>
#include <stdio.h>
#include <tally.h>

#include "bench/step_bench.h"
#include "tools/bench_ranks.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

#define NAME "tally bench step"
#define MB 1000000

/* Goal for the step without a backward, in all-reduces, if gradients are views. */
#define GOAL 1.05

/* Goal for an update, in copies of the bytes that it reads and writes. */
#define TRAFFIC_GOAL 1.3

/* The options as given, not parsed yet. */
struct words {
    const char *ranks;
    const char *optimizer;
    struct option_count mb;
    struct option_count backward_ms;
    struct option_count n_params;
    struct option_count bucket_mb;
    struct option_count lanes;
    struct option_count n_steps;
    bool views;
    bool copies;
    bool as_json;
};

static void print_json(const struct step_bench *bench, const struct step_result *result)
{
    struct json json = json_begin(stdout);

    json_count(&json, "ranks", (size_t)bench->ranks);
    json_count(&json, "mb", bench->bytes / MB);
    json_real(&json, "backward_ms", bench->backward_ms);
    json_text(&json, "mode", bench->copies ? "copies" : "views");
    json_count(&json, "params", bench->n_params);
    json_count(&json, "lanes", (size_t)bench->lanes);
    json_count(&json, "cpus", (size_t)result->cpus);
    json_count(&json, "steps", bench->n_steps);
    json_real(&json, "step_ms", result->overlapped_ms);
    json_real(&json, "serial_ms", result->serial_ms);
    json_real(&json, "backward_alone_ms", result->backward_ms);
    json_real(&json, "comm_ms", result->comm_ms);
    json_real(&json, "exposed_ms", result->exposed_ms);
    json_real(&json, "overlap", result->overlap);
    json_real(&json, "backward_stretch", result->backward_stretch);
    json_real(&json, "allreduce_ms", result->all_reduce_ms);
    json_real(&json, "at_once_ms", result->at_once_ms);
    json_real(&json, "step_over_allreduce", result->step_over_allreduce);
    json_real(&json, "create_ms", result->create_ms);
    json_count(&json, "wire_bytes", (size_t)result->wire_bytes);
    if (bench->optimizer) {
        json_text(&json, "optimizer", bench->optimizer);
        json_real(&json, "on_call_ms", result->on_call_ms);
        json_real(&json, "behind_hook_ms", result->behind_ms);
        json_real(&json, "exposed_on_call_ms", result->exposed_on_call);
        json_real(&json, "exposed_behind_hook_ms", result->exposed_behind);
        json_real(&json, "exposed_ratio", result->exposed_ratio);
        json_real(&json, "behind_hook_in_wait_ms", result->in_wait_ms);
        json_real(&json, "update_ms", result->update_ms);
        json_real(&json, "update_over_traffic", result->update_over_traffic);
    }
    json_end(&json);
}

static void print_backward_rows(const struct step_result *result)
{
    printf("  %-36s %9.2f\n", "backward alone", result->backward_ms);
    printf("  %-36s %9.2f   communication: %.2f\n", "backward, then communication",
           result->serial_ms, result->comm_ms);
    printf("  %-36s %9.2f   in wait: %.2f; backward stretched %.2f times\n",
           "communication during backward", result->overlapped_ms, result->exposed_ms,
           result->backward_stretch);
    if (isfinite(result->overlap)) {
        printf("  %-36s %9.2f   1: all of it hidden\n", "overlap", result->overlap);
    } else {
        printf("  %-36s %9s   communication was lost in the noise\n", "overlap", "-");
    }
}

static void print_update_rows(const struct step_bench *bench, const struct step_result *result)
{
    printf("  %-36s %9.2f   the optimizer adds %.2f; its update alone: %.2f\n",
           "then the optimizer, on call", result->on_call_ms, result->exposed_on_call,
           result->update_ms);
    printf("  %-36s %9.2f   the optimizer adds %.2f", "the optimizer after the hook",
           result->behind_ms, result->exposed_behind);
    if (isfinite(result->exposed_ratio)) {
        printf(": %.2f of that", result->exposed_ratio);
    }
    printf("; in wait: %.2f", result->in_wait_ms);
    printf("\n  %-36s %9.2f   memcpies of the bytes it must move (goal: %.1f)\n", bench->optimizer,
           result->update_over_traffic, TRAFFIC_GOAL);
}

/* Explains why there is no overlap, if there is none to expect. */
static void print_honest_line(const struct step_bench *bench, const struct step_result *result)
{
    if (bench->lanes == 0) {
        printf("Without lanes all communication happens in wait: there is nothing to gain.\n");
    } else if (result->cpus <= bench->ranks && !bench->launch.is_launched) {
        printf("%d CPU%s for %d rank%s: none is spare. Communication over shared memory takes its "
               "time from\nbackward; without a spare core there is nothing to gain by overlap.\n",
               result->cpus, result->cpus == 1 ? "" : "s", bench->ranks,
               bench->ranks == 1 ? "" : "s");
    }
}

static void print_table(const struct step_bench *bench, const struct step_result *result)
{
    printf("%d rank%s, %zu MB in %zu gradients as %s, %d lane%s; medians of %zu steps, in ms\n",
           bench->ranks, bench->ranks == 1 ? "" : "s", bench->bytes / MB, bench->n_params,
           bench->copies ? "copies" : "views", bench->lanes, bench->lanes == 1 ? "" : "s",
           bench->n_steps);
    if (bench->backward_ms > 0) {
        print_backward_rows(result);
    }
    if (bench->optimizer) {
        print_update_rows(bench, result);
    }
    printf("  %-36s %9.2f\n", "all-reduce of the same bytes", result->all_reduce_ms);
    printf("  %-36s %9.2f   %.3f all-reduces", "step without a backward", result->at_once_ms,
           result->step_over_allreduce);
    if (!bench->copies) {
        printf(" (goal: %.2f)", GOAL);
    }
    printf("\n  %-36s %9.2f\n", "tally_ddp_create", result->create_ms);
    printf("  %-36s %9llu\n", "bytes sent by a rank in a step", result->wire_bytes);
    if (bench->backward_ms > 0) {
        print_honest_line(bench, result);
    }
}

static enum option_result read_words(int argc, char **argv, struct words *words)
{
    const struct option options[] = {
        {"json", OPTION_FLAG, &words->as_json, NULL, "one JSON object per line"},
        {"ranks", OPTION_TEXT, &words->ranks, "LIST",
         "numbers of ranks, such as 2,4 (2; under mpirun: its ranks)"},
        {"mb", OPTION_COUNT, &words->mb, "N", "gradients, in millions of bytes of fp32 (100)"},
        {"backward-ms", OPTION_COUNT, &words->backward_ms, "MS",
         "length of the backward pass; 0: only compare a step with an all-reduce (200)"},
        {"views", OPTION_FLAG, &words->views, NULL, "gradients live in the buckets (the default)"},
        {"copies", OPTION_FLAG, &words->copies, NULL, "gradients are copied in and out"},
        {"optimizer", OPTION_TEXT, &words->optimizer, "TEXT",
         "such as adamw: also time updates, on call and after the hook"},
        {"params", OPTION_COUNT, &words->n_params, "N", "parameters, of equal size (100)"},
        {"bucket-mb", OPTION_COUNT, &words->bucket_mb, "M",
         "cap of a bucket, in millions of bytes; 0: tally's default (0)"},
        {"lanes", OPTION_COUNT, &words->lanes, "L", "lane threads per rank (1)"},
        {"steps", OPTION_COUNT, &words->n_steps, "N",
         "steps to time on every side, by up to three teams of processes (15)"},
    };
    const struct option_set set = {
        NAME,
        "times a training step between processes. A synthetic backward pass\n"
        "computes over memory, without sleeping, and writes one gradient after the other. The\n"
        "sides take turns: announce each gradient when it is written (step_ms), announce all\n"
        "after backward (serial_ms), backward alone, announce gradients that are ready at\n"
        "once (at_once_ms), and one all-reduce of the same bytes (allreduce_ms). create_ms\n"
        "is the time of tally_ddp_create, which sends the parameters of rank 0 to all. Every\n"
        "element of every mean is checked. overlap is (serial - step) / (serial - backward\n"
        "alone): the part of the communication that backward hides. With --optimizer there\n"
        "are two more sides, updates after wait (on call) and updates on the lanes after the\n"
        "hook; exposed_..._ms is what each adds to a step, and both must give the same\n"
        "parameters. Ranks are bound to CPUs if there are enough. Under mpirun its ranks are\n"
        "measured over MPI.",
        NAME " --ranks 2 --mb 100 --backward-ms 200 --json", options,
        sizeof options / sizeof options[0]};

    return options_read(&set, argc, argv);
}

static bool check_words(const struct words *words)
{
    if (words->views && words->copies) {
        (void)fprintf(stderr, NAME ": give --views or --copies, not both\n");
        return false;
    }
    if (words->optimizer && words->backward_ms.value == 0) {
        (void)fprintf(stderr, NAME ": --optimizer needs a backward pass: --backward-ms is 0\n");
        return false;
    }
    return true;
}

static int measure(const struct step_bench *bench, bool as_json)
{
    struct step_result result;
    int status = step_bench_run(bench, &result);

    if (status != TALLY_OK) {
        (void)fprintf(stderr, NAME ": %s\n", tally_last_error());
        return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    if (bench->launch.rank == 0) {
        (as_json ? print_json : print_table)(bench, &result);
        (void)fflush(stdout);
    }
    return EXIT_DONE;
}

int bench_step(int argc, char **argv)
{
    struct words words = {.mb = {1, 100000, 100},
                          .backward_ms = {0, 10000, 200},
                          .n_params = {1, 1000000, 100},
                          .bucket_mb = {0, 100000, 0},
                          .lanes = {0, 64, 1},
                          .n_steps = {1, STEP_MAX_STEPS, 15}};
    enum option_result parsed = read_words(argc, argv, &words);
    struct bench_ranks ranks;
    int done;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    if (!check_words(&words)) {
        return EXIT_USAGE;
    }
    done = bench_ranks_read(NAME, words.ranks, &ranks);
    for (size_t i = 0; done == EXIT_DONE && i < ranks.numbers.n; i++) {
        const struct step_bench bench = {.ranks = (int)ranks.numbers.values[i],
                                         .launch = ranks.launch,
                                         .bytes = words.mb.value * MB,
                                         .n_params = words.n_params.value,
                                         .optimizer = words.optimizer,
                                         .backward_ms = (double)words.backward_ms.value,
                                         .copies = words.copies,
                                         .bucket_bytes = words.bucket_mb.value * MB,
                                         .lanes = (int)words.lanes.value,
                                         .n_steps = words.n_steps.value};

        done = measure(&bench, words.as_json);
    }
    return done;
}
