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
#define AS_GOOD 0.01 /* accuracy that a hook may lose against the first */
#define AS_FAST 1.03 /* times the shortest step: smaller differences are noise */

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
    "  --data FILE     the images (default: digits.csv in the source tree)\n"
    "  --json          one JSON object per line instead of the table\n"
    "  --help          show this text\n\n"
    "Example: tally run -n 2 build/examples/05_digits allreduce int8 powersgd:rank=2,start=10\n";

static int count(const char *text, int *n)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (*end != '\0' || value < 1 || value > DIGITS_MAX_STEPS) {
        fprintf(stderr, "05_digits: --steps %s is not a number from 1 to %d\n", text,
                DIGITS_MAX_STEPS);
        return -1;
    }
    *n = (int)value;
    return 0;
}

int digits_options(int argc, char **argv, struct digits_options *options)
{
    static const char *const usual[] = {"allreduce",
                                        "bf16",
                                        "int8",
                                        "quantize_per_channel",
                                        "powersgd:rank=4,start=20",
                                        "bf16(powersgd:rank=4,start=20)",
                                        "noop"};

    options->n_steps = 400;
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
            if (count(argv[++i], &options->n_steps) != 0) {
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
    if (options->n_runs == 0) {
        options->n_runs = sizeof usual / sizeof *usual;
        for (int i = 0; i < options->n_runs; i++) {
            options->runs[i].hook = usual[i];
        }
    }
    return 0;
}

void digits_progress(int done, int total)
{
    char bar[BAR + 1] = "";

    if (!isatty(STDERR_FILENO)) {
        return;
    }
    for (int i = 0; i < BAR; i++) {
        bar[i] = i < done * BAR / total ? '#' : '.';
    }
    if (done < total) {
        fprintf(stderr, "\r\033[Ktraining %s %d of %d steps", bar, done, total);
    } else {
        fprintf(stderr, "\r\033[K");
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

static int is_good(const struct digits_run *run, const struct digits_run *first)
{
    return run->agree && run->accuracy >= first->accuracy - AS_GOOD;
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

static void print_verdict(const struct verdict *verdict, const char *first)
{
    const struct digits_run *fastest = verdict->fastest, *leanest = verdict->leanest;

    if (fastest == NULL || leanest == NULL) {
        printf("\nNo hook left all ranks with the same network: the figures favour none.\n");
        return;
    }
    printf("\nThe figures favour %s here: of the hooks within %g point of %s's\n"
           "accuracy, none has steps more than %.0f %% shorter.\n",
           fastest->hook, 100 * AS_GOOD, first, 100 * (AS_FAST - 1));
    if (verdict->bits_per_s > 0) {
        printf("%s sends %.1f times less, for %.3f ms more a step: it would win\n"
               "where ranks are linked by less than about %.2g Gbit/s.\n",
               leanest->hook, fastest->bytes / leanest->bytes,
               1e3 * (leanest->step_s - fastest->step_s), verdict->bits_per_s / 1e9);
    } else if (leanest != fastest) {
        printf("%s sends %.1f times less, in steps as short.\n", leanest->hook,
               fastest->bytes / leanest->bytes);
    }
}

static void print_table(const struct digits_run *runs, int n, int n_ranks)
{
    printf("%-32s %8s %8s %9s %11s %11s\n", "hook", "accuracy", "loss", "ms/step", "exposed ms",
           "bytes/step");
    for (const struct digits_run *run = runs; run < runs + n; run++) {
        printf("%-32s %7.2f%% %8.4f %9.3f %11.3f %11.0f%s\n", run->hook, 100 * run->accuracy,
               run->loss, 1e3 * run->step_s, 1e3 * run->exposed_s, run->bytes,
               run->agree ? "" : "  ranks differ");
    }
    if (n_ranks > 1) {
        const struct verdict verdict = judge(runs, n);
        print_verdict(&verdict, runs->hook);
    } else {
        printf("\nA single rank sends nothing: start several with tally run -n 2.\n");
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
