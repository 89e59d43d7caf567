/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strikes ranks at random moments and looks at the others: they must fail in time, blame the right
 * rank, refuse what comes later, and leave nothing behind.
 *
 *   test_fault_trials [--trials N] [--seed S] [--only N] [--workers N]
 *
 * A trial depends on the seed and its number only (and on what the machine does meanwhile):
 * --seed S --only N runs it again, and again with --trials N.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/fault_trial.h"

struct options {
    int n_trials;
    int n_workers;
    int only; /* -1: all */
    uint64_t seed;
};

/* One in seven is a stop: they take as long as their timeout. */
static enum fault_blow blow_of(int number)
{
    static const enum fault_blow deaths[] = {
        FAULT_BLOW_KILL, FAULT_BLOW_EXIT,  FAULT_BLOW_KILL, FAULT_BLOW_ABORT, FAULT_BLOW_FORK,
        FAULT_BLOW_KILL, FAULT_BLOW_CLOSE, FAULT_BLOW_EXEC, FAULT_BLOW_KILL,  FAULT_BLOW_SEGV};
    int n_deaths = (int)(sizeof deaths / sizeof deaths[0]);

    if (number % 7 == 6) {
        return number / 7 % 2 ? FAULT_BLOW_STOP : FAULT_BLOW_PAUSE;
    }
    return deaths[(number - number / 7) % n_deaths];
}

static void run_one(const struct options *options, int number, const char *folder,
                    struct fault_outcome *outcome)
{
    int drawn = options->only < 0 ? number : options->only;
    uint64_t state = options->seed * UINT64_C(1000003) + (uint64_t)drawn;
    struct fault_trial trial = {.number = number, .blow = blow_of(drawn), .folder = folder};

    trial.seed = (uint64_t)fault_random(&state, 1u << 30) << 30 | fault_random(&state, 1u << 30);
    fault_trial_run(&trial, outcome);
}

/* Every n-th trial, in a separate process, so that leftovers can be traced to it. */
static int work(const struct options *options, int worker, struct fault_outcome *outcomes)
{
    char folder[] = "/tmp/tally-fault-XXXXXX";

    if (!mkdtemp(folder)) {
        perror("test_fault_trials: mkdtemp");
        return 1;
    }
    (void)fault_private_dev_shm("64k");
    fault_leftovers_begin();
    for (int i = worker; i < options->n_trials; i += options->n_workers) {
        run_one(options, i, folder, &outcomes[i]);
        if (!outcomes[i].is_passed) {
            printf("FAILED %s\n", outcomes[i].text);
            (void)fflush(stdout);
        }
    }
    /* It is empty, or a socket was left. */
    if (rmdir(folder) != 0) {
        printf("FAILED %s is not empty\n", folder);
        return 1;
    }
    return 0;
}

static bool run_workers(const struct options *options, struct fault_outcome *outcomes)
{
    bool all_well = true;
    int status;

    (void)fflush(stdout);
    for (int w = 0; w < options->n_workers; w++) {
        pid_t pid = fork();

        if (pid == 0) {
            exit(work(options, w, outcomes));
        }
        all_well = all_well && pid > 0;
    }
    while (wait(&status) > 0) {
        all_well = all_well && status == 0;
    }
    return all_well;
}

static bool summarise(const struct options *options, const struct fault_outcome *outcomes)
{
    int n_passed = 0;
    double slowest_ms[2] = {0, 0};
    int n_of[2] = {0, 0};
    uint64_t n_done = 0;

    for (int i = 0; i < options->n_trials; i++) {
        int is_stop = fault_blow_is_stop(blow_of(options->only < 0 ? i : options->only));
        double ms = (double)outcomes[i].detection_ns / (double)FAULT_NS_PER_MS;

        n_passed += outcomes[i].is_passed;
        n_of[is_stop]++;
        n_done += outcomes[i].n_done;
        slowest_ms[is_stop] = ms > slowest_ms[is_stop] ? ms : slowest_ms[is_stop];
    }
    printf(
        "%d trials (seed %llu): %d deaths, known to all after at most %.0f ms; %d stops, at most "
        "%.0f ms after the deadline; %llu collectives; %d passed, %d failed\n",
        options->n_trials, (unsigned long long)options->seed, n_of[0], slowest_ms[0], n_of[1],
        slowest_ms[1], (unsigned long long)n_done, n_passed, options->n_trials - n_passed);
    return n_passed == options->n_trials;
}

static bool parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i += 2) {
        char *end = NULL;
        unsigned long long number = i + 1 < argc ? strtoull(argv[i + 1], &end, 10) : 0;

        if (!end || *end != '\0' || end == argv[i + 1]) {
            return false;
        }
        if (strcmp(argv[i], "--trials") == 0) {
            options->n_trials = (int)number;
        } else if (strcmp(argv[i], "--seed") == 0) {
            options->seed = number;
        } else if (strcmp(argv[i], "--only") == 0) {
            options->only = (int)number;
        } else if (strcmp(argv[i], "--workers") == 0) {
            options->n_workers = (int)number;
        } else {
            return false;
        }
    }
    return options->n_trials > 0 && options->n_workers > 0;
}

int main(int argc, char **argv)
{
    struct options options = {.n_trials = 210, .n_workers = 4, .only = -1, .seed = 1};
    struct fault_outcome *outcomes;
    bool is_well;

    if (!parse(argc, argv, &options)) {
        (void)fprintf(stderr, "usage: test_fault_trials [--trials N] [--seed S] [--only N] "
                              "[--workers N]\n");
        return 2;
    }
    outcomes = fault_shared_alloc((size_t)options.n_trials * sizeof *outcomes);
    is_well = run_workers(&options, outcomes);
    is_well = summarise(&options, outcomes) && is_well;
    fault_shared_free(outcomes, (size_t)options.n_trials * sizeof *outcomes);
    return is_well ? 0 : 1;
}
