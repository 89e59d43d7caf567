/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tally run`: starts a program as the ranks of one job, and starts it again after a failure if the
 * user wants that. Reads the command line and counts the attempts; run_job.c does the rest. One
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/options.h"
#include "tools/run_job.h"

#define MAX_RANKS 4096
#define MAX_RESTARTS 1000000
/* In addition to those for the output of the ranks. */
#define N_OTHER_FILES 64

struct request {
    struct option_count n;
    struct option_count max_restarts;
    double timeout_s; /* 0: not given */
    bool bind;
    bool prefix;
    char **command;
};

static enum option_result read_request(int argc, char **argv, struct request *request)
{
    const struct option options[] = {
        {"n", OPTION_COUNT, &request->n, "N", "number of ranks, 1 to 4096"},
        {"timeout", OPTION_SECONDS, &request->timeout_s, "S",
         "seconds an operation waits for another rank; sets TALLY_TIMEOUT"},
        {"max-restarts", OPTION_COUNT, &request->max_restarts, "R",
         "start a failed job again, up to R times (0); TALLY_ATTEMPT counts them"},
        {"bind", OPTION_FLAG, &request->bind, NULL, "pin each rank to its own cores"},
        {"prefix", OPTION_FLAG, &request->prefix, NULL, "put [rank] before every line of output"},
    };
    const struct option_set set = {
        "tally run",
        "starts a program as N ranks on this machine\n\n"
        "usage: tally run -n N [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n"
        "Exits with the status of the first rank that fails (128 + signal if one killed it), and\n"
        "ends the others. Rank 0 reads standard input; it is empty for the others. OMP_NUM_THREADS "
        "and\n"
        "OPENBLAS_NUM_THREADS are set to each rank's share of the CPUs, unless they are set.",
        "tally run -n 4 --prefix ./train --epochs 3", options, sizeof options / sizeof options[0]};
    enum option_result result = options_read_before(&set, argc, argv, &request->command);

    if (result != OPTIONS_OK) {
        return result;
    }
    if (request->n.value == 0) {
        (void)fprintf(stderr, "tally run: -n is missing; give the number of ranks, %zu to %zu\n",
                      request->n.min, request->n.max);
        return OPTIONS_BAD;
    }
    if (!request->command[0]) {
        (void)fprintf(stderr, "tally run: no program to run; give one, with its arguments, after "
                              "the options\n");
        return OPTIONS_BAD;
    }
    return OPTIONS_OK;
}

/* If a standard file is closed, one of our pipes would get its number. */
static bool open_standard_files(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0;
}

/* Allows two pipes per rank. If that fails, the first rank without pipes reports it. */
static void raise_file_limit(const struct run_plan *plan)
{
    rlim_t wanted = N_OTHER_FILES + 2 * (rlim_t)plan->n_ranks;
    struct rlimit files = plan->files;

    if (plan->prefix && files.rlim_cur < wanted) {
        files.rlim_cur = wanted < files.rlim_max ? wanted : files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static bool prepare(const struct request *request, struct run_plan *plan)
{
    char seconds[40];

    if (request->timeout_s > 0) {
        (void)snprintf(seconds, sizeof seconds, "%.15g", request->timeout_s);
        if (setenv("TALLY_TIMEOUT", seconds, 1) != 0) {
            return false;
        }
    }
    if (!open_standard_files() || getrlimit(RLIMIT_NOFILE, &plan->files) != 0 ||
        !run_leftovers_adopt(&plan->leftovers)) {
        return false;
    }
    raise_file_limit(plan);
    return run_signals_open(&plan->signals);
}

static int run_attempts(struct run_plan *plan, size_t max_restarts)
{
    struct run_result result = run_job(plan, 0);

    for (size_t attempt = 1; result.may_restart && attempt <= max_restarts; attempt++) {
        (void)fprintf(stderr, "tally run: restarting the job (%zu of at most %zu)\n", attempt,
                      max_restarts);
        result = run_job(plan, (int)attempt);
    }
    return result.exit_code;
}

int cmd_run(int argc, char **argv)
{
    struct request request = {.n = {.min = 1, .max = MAX_RANKS},
                              .max_restarts = {.min = 0, .max = MAX_RESTARTS}};
    enum option_result parsed = read_request(argc, argv, &request);
    struct run_binding *binding = NULL;
    struct run_plan plan = {0};
    const char *problem;
    int exit_code = EXIT_FAILED;

    if (parsed != OPTIONS_OK) {
        return parsed == OPTIONS_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    plan.n_ranks = (int)request.n.value;
    plan.prefix = request.prefix;
    plan.command = request.command;
    if (request.bind) {
        binding = run_binding_create(plan.n_ranks, &problem);
        if (!binding) {
            (void)fprintf(stderr, "tally run: cannot pin ranks (--bind): %s\n", problem);
            return EXIT_FAILED;
        }
        plan.binding = binding;
    }
    if (prepare(&request, &plan)) {
        exit_code = run_attempts(&plan, request.max_restarts.value);
        run_signals_close(&plan.signals);
    } else {
        (void)fprintf(stderr, "tally run: cannot prepare the job: %s\n", strerror(errno));
    }
    run_leftovers_free(&plan.leftovers);
    run_binding_free(binding);
    return exit_code;
}
