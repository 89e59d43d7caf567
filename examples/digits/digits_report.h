/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of 05_digits.c, and the report of its runs. */
#ifndef TALLY_EXAMPLES_DIGITS_REPORT_H
#define TALLY_EXAMPLES_DIGITS_REPORT_H

enum { DIGITS_MAX_STEPS = 10000, DIGITS_MAX_RUNS = 16 };

/* One training run with one hook. */
struct digits_run {
    const char *hook;
    int warmup, period; /* of post-local SGD; 0 with other hooks */
    double accuracy;    /* on the test images, 0..1, mean over the ranks */
    double loss;        /* on the test images, mean over the ranks */
    int agree;          /* this rank's loss is equal to the mean */
    double bytes;       /* that a rank sends in a step, on average */
    double each_step_s[DIGITS_MAX_STEPS], each_exposed_s[DIGITS_MAX_STEPS];
    double step_s, exposed_s; /* their medians, set by digits_report */
};

struct digits_options {
    struct digits_run runs[DIGITS_MAX_RUNS]; /* with only hook, warmup and period set */
    int n_runs;
    int n_steps;
    int seed;
    int json;
    const char *data; /* path of digits.csv */
};

/* Reads the command line into options, which must be zero. On failure prints an error and returns
 * -1; exits after the help. */
int digits_options(int argc, char **argv, struct digits_options *options);

/* On rank 0 shows how far the training is, after steps before..done-1: a bar on a terminal, which
 * it removes at the end; elsewhere a line after each quarter, and nothing with --json. */
void digits_progress(const struct digits_options *options, int rank, int before, int done);

/* Prints the runs, the hook that they favour, and the command to try next; with --json one object
 * per line. Sorts the times of the steps. */
void digits_report(struct digits_options *options, int n_ranks);

#endif
