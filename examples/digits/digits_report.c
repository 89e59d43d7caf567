/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of 05_digits.c, and the report of its runs with the hook that they favour.
 * Independent of ranks. One thread. */
#include "examples/digits/digits_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "examples/digits/digits.csv"
#endif

#define BAR 30       /* characters */
#define AS_GOOD 0.02 /* accuracy that a hook may lose against the first */
#define AS_FAST 1.10 /* times the shortest step: smaller differences are noise */

/* Of the runs that are as accurate as the first: the first of the fastest, and the one that sends
 * least. */
struct verdict {
    const struct digits_run *fastest, *leanest;
    double bits_per_s; /* below this speed of the link the second wins; 0: never, or always */
};

static const char help[] =
    "05_digits: trains a network to read digits, with each of several hooks\n\n"
    "usage: tally run -n N 05_digits [OPTION...] [HOOK...]\n\n"
    "  --steps N       steps of each training run (400)\n"
    "  --period N      with postlocal: average parameters every N steps (4)\n"
    "  --seed N        of the initial weights and of the batches (1)\n"
    "  --data FILE     the images (default: digits.csv in the source tree)\n"
    "  --json          one JSON object per line instead of the table\n"
    "  --help          show this text\n\n"
    "Example: tally run -n 2 build/examples/05_digits allreduce int8 powersgd:rank=2,start=10\n";

/* Reads the value of an option: a number of steps, or a seed. */
static int count(const char *option, const char *text, int *n)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (*end != '\0' || value < 1 || value > DIGITS_MAX_STEPS) {
        fprintf(stderr, "05_digits: %s %s is not a number from 1 to %d\n", option, text,
                DIGITS_MAX_STEPS);
        return -1;
    }
    *n = (int)value;
    return 0;
}

/* Post-local SGD needs an averager, whose warm-up is the hook's start (by default 1000 steps). */
static void set_averages(struct digits_run *run, int period)
{
    if (strncmp(run->hook, "postlocal", strlen("postlocal")) == 0) {
        const char *start = strstr(run->hook, "start=");

        run->warmup = start ? (int)strtol(start + strlen("start="), NULL, 10) : 1000;
        run->period = period;
    }
}

int digits_options(int argc, char **argv, struct digits_options *options)
{
    static const char *const usual[] = {
        "allreduce",          "bf16", "int8", "powersgd:rank=4,start=20", "auto",
        "postlocal:start=40", "noop"};
    int period = 4;

    options->n_steps = 400;
    options->seed = 1;
    options->data = DIGITS_CSV;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            (void)fputs(help, stdout);
            exit(0);
        } else if (strcmp(argv[i], "--json") == 0) {
            options->json = 1;
        } else if (strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
            options->data = argv[++i];
        } else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
            if (count("--steps", argv[++i], &options->n_steps) != 0) {
                return -1;
            }
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            if (count("--seed", argv[++i], &options->seed) != 0) {
                return -1;
            }
        } else if (strcmp(argv[i], "--period") == 0 && i + 1 < argc) {
            if (count("--period", argv[++i], &period) != 0) {
                return -1;
            }
        } else if (argv[i][0] == '-' || options->n_runs == DIGITS_MAX_RUNS) {
            fprintf(stderr,
                    "05_digits: '%s' is not an option, needs a value, or is one hook too many; see "
                    "--help\n",
                    argv[i]);
            return -1;
        } else {
            options->runs[options->n_runs++].hook = argv[i];
        }
    }
    for (size_t i = 0; options->n_runs == 0 && i < sizeof usual / sizeof *usual; i++) {
        options->runs[i].hook = usual[i];
    }
    options->n_runs = options->n_runs ? options->n_runs : (int)(sizeof usual / sizeof *usual);
    for (int i = 0; i < options->n_runs; i++) {
        set_averages(&options->runs[i], period);
    }
    return 0;
}

void digits_progress(const struct digits_options *options, int rank, int before, int done)
{
    const char *hooks = options->n_runs == 1 ? "hook" : "hooks";
    int total = options->n_steps;
    char bar[BAR + 1] = "";

    if (rank != 0) {
        return;
    }
    if (!isatty(STDERR_FILENO)) {
        if (!options->json && 4 * done / total > 4 * before / total) {
            fprintf(stderr, "training with %d %s: %d of %d steps\n", options->n_runs, hooks, done,
                    total);
        }
        return;
    }
    for (int i = 0; i < BAR; i++) {
        bar[i] = i < done * BAR / total ? '#' : '.';
    }
    fprintf(stderr, "\r\033[K");
    if (done < total) {
        fprintf(stderr, "training with %d %s %s %d of %d steps", options->n_runs, hooks, bar, done,
                total);
    }
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

/* Post-local SGD is left out: its ranks train apart, which costs accuracy in longer training. */
static int is_good(const struct digits_run *run, const struct digits_run *first)
{
    return run->agree && run->period == 0 && run->accuracy >= first->accuracy - AS_GOOD;
}

static struct verdict judge(const struct digits_run *runs, int n)
{
    struct verdict verdict = {NULL, NULL, 0};
    double shortest_s = INFINITY;

    for (const struct digits_run *run = runs; run < runs + n; run++) {
        if (is_good(run, runs)) {
            shortest_s = run->step_s < shortest_s ? run->step_s : shortest_s;
            if (verdict.leanest == NULL || run->bytes < verdict.leanest->bytes) {
                verdict.leanest = run;
            }
        }
    }
    for (const struct digits_run *run = runs; run < runs + n && !verdict.fastest; run++) {
        if (is_good(run, runs) && run->step_s <= AS_FAST * shortest_s) {
            verdict.fastest = run;
        }
    }
    if (verdict.fastest && verdict.leanest && verdict.leanest->step_s > verdict.fastest->step_s) {
        verdict.bits_per_s = 8 * (verdict.fastest->bytes - verdict.leanest->bytes) /
                             (verdict.leanest->step_s - verdict.fastest->step_s);
    }
    return verdict;
}

/* One sentence of advice. */
static void print_verdict(const struct verdict *verdict)
{
    const struct digits_run *fastest = verdict->fastest, *leanest = verdict->leanest;

    if (fastest == NULL || leanest == NULL) {
        printf("Advice: use none of these hooks; with all of them the ranks' networks differ.\n");
        return;
    }
    printf("Advice: use %s between ranks of this machine", fastest->hook);
    if (leanest == fastest) {
        printf(
            ":\nof the hooks that keep the ranks equal in each step it sends the least, and none\n"
            "is faster by more than a tenth.\n");
    } else if (verdict->bits_per_s > 0) {
        printf(", and\n%s over links below %.2g Gbit/s: it sends %.3g times less.\n", leanest->hook,
               verdict->bits_per_s / 1e9, fastest->bytes / leanest->bytes);
    } else {
        printf(", or\n%s, which sends %.1f times less in steps as short.\n", leanest->hook,
               fastest->bytes / leanest->bytes);
    }
}

static void print_table(const struct digits_run *runs, int n, int n_ranks)
{
    if (n_ranks > 1) {
        printf("Each of %d ranks trained with images of %s; tested with all ten digits:\n\n",
               n_ranks, n_ranks == 2 ? "five digits" : "some digits");
    }
    printf("%-25s %8s %8s %9s %11s %12s\n", "hook", "accuracy", "loss", "ms/step", "waiting ms",
           "bytes/step");
    for (const struct digits_run *run = runs; run < runs + n; run++) {
        printf("%-25s %7.1f%% %8.4f %9.3f %11.3f %12.0f\n", run->hook, 100 * run->accuracy,
               run->loss, 1e3 * run->step_s, 1e3 * run->exposed_s, run->bytes);
    }
    putchar('\n');
    if (n_ranks > 1) {
        const struct verdict verdict = judge(runs, n);
        print_verdict(&verdict);
    } else {
        printf("Advice: start several ranks (tally run -n 2); one alone sends nothing.\n");
    }
}

static void print_json(const struct digits_run *runs, int n, int n_ranks)
{
    for (const struct digits_run *run = runs; run < runs + n; run++) {
        printf("{\"hook\": \"%s\", \"ranks\": %d, \"accuracy\": %.6f, \"loss\": %.8g, "
               "\"ranks_agree\": %s, \"step_ms\": %.6f, \"exposed_ms\": %.6f, "
               "\"bytes_per_step\": %.1f}\n",
               run->hook, n_ranks, run->accuracy, run->loss, run->agree ? "true" : "false",
               1e3 * run->step_s, 1e3 * run->exposed_s, run->bytes);
    }
    if (n_ranks > 1) {
        const struct verdict verdict = judge(runs, n);
        printf("{\"favoured\": \"%s\", \"fewest_bytes\": \"%s\", \"below_gbit_per_s\": %.6g}\n",
               verdict.fastest ? verdict.fastest->hook : "",
               verdict.leanest ? verdict.leanest->hook : "", verdict.bits_per_s / 1e9);
    }
}

void digits_report(struct digits_options *options, int n_ranks)
{
    for (struct digits_run *run = options->runs; run < options->runs + options->n_runs; run++) {
        run->step_s = median(run->each_step_s, options->n_steps);
        run->exposed_s = median(run->each_exposed_s, options->n_steps);
    }
    if (options->json) {
        print_json(options->runs, options->n_runs, n_ranks);
    } else {
        print_table(options->runs, options->n_runs, n_ranks);
    }
}
