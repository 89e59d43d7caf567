/* SPDX-License-Identifier: Apache-2.0 */
/* `tally bench`: prints the results of the engines in bench/ as a table or as JSON lines. */
#include <stdio.h>
#include <tally.h>

#include "bench/kernel_bench.h"
#include "tools/bench_checkpoint.h"
#include "tools/bench_collective.h"
#include "tools/bench_events.h"
#include "tools/bench_hooks.h"
#include "tools/bench_lowrank.h"
#include "tools/bench_profile.h"
#include "tools/bench_step.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/options.h"

static void print_kernel_json(const struct kernel_result *result, void *user)
{
    struct json json = json_begin(stdout);

    (void)user;
    json_text(&json, "kernel", result->kernel);
    json_text(&json, "isa", result->isa);
    json_count(&json, "bytes", result->bytes);
    json_real(&json, "us", result->us);
    json_real(&json, "gbps", result->gbps);
    json_real(&json, "memcpy_us", result->memcpy_us);
    json_real(&json, "memcpy_ratio", result->memcpy_ratio);
    json_real(&json, "goal", result->goal);
    json_end(&json);
}

static void print_kernel_row(const struct kernel_result *result, void *user)
{
    size_t *n_missed = user;
    bool missed = result->best && result->memcpy_ratio > result->goal;

    printf("%-30s %-7s %10.1f %8.1f %8.2f %6.2f%s\n", result->kernel, result->isa, result->us,
           result->gbps, result->memcpy_ratio, result->goal, missed ? "  missed" : "");
    *n_missed += missed;
}

static int bench_num(int argc, char **argv)
{
    bool as_json = false;
    size_t n_missed = 0;
    struct kernel_bench bench = {.data_bytes = (size_t)16 << 20, .user = &n_missed};
    const struct option options[] = {
        {"json", OPTION_FLAG, &as_json, NULL, "one JSON object per line"},
        {"bytes", OPTION_BYTES, &bench.data_bytes, "BYTES", "size of one fp32 array (16Mi)"},
        {"kernel", OPTION_TEXT, &bench.kernel, "NAME", "measure only this kernel"},
    };
    const struct option_set set = {
        "tally bench num",
        "times every kernel and instruction set against a memcpy of (bytes read + written) / 2",
        "tally bench num --bytes 1Mi --kernel sum_f32 --json", options, 3};
    enum option_result parsed = options_read(&set, argc, argv);
    int status;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    bench.report = as_json ? print_kernel_json : print_kernel_row;
    if (!as_json) {
        printf("%-30s %-7s %10s %8s %8s %6s\n", "kernel", "isa", "us", "GB/s", "memcpy x", "goal");
    }
    status = kernel_bench_run(&bench);
    if (status != TALLY_OK) {
        (void)fprintf(stderr, "tally bench num: %s\n", tally_last_error());
        return status == TALLY_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    if (!as_json) {
        printf("%zu of the best kernels miss their goal\n", n_missed);
    }
    return EXIT_DONE;
}

int cmd_bench(int argc, char **argv)
{
    static const struct command benches[] = {
        {"num", "the arithmetic kernels against memcpy", bench_num},
        {"lowrank", "low-rank products against plain passes and a BLAS", bench_lowrank},
        {"collective", "collectives between processes against copies and MPI", bench_collective},
        {"step", "training steps, with and without overlap", bench_step},
        {"events", "what an event in memory costs in a step", bench_events},
        {"checkpoint", "saving and loading against plain writes to the disk", bench_checkpoint},
        {"hooks", "what hooks cost and what they do to the mean", bench_hooks},
        {"profile", "a profile of a training step, for `tally plan`", bench_profile},
    };
    static const struct command_set set = {"tally bench", "tally bench hooks --ranks 2 --mb 100",
                                           benches, sizeof benches / sizeof benches[0]};

    return command_dispatch(&set, argc, argv);
}
