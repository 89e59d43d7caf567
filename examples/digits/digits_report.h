/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of 05_digits.c, and the report of its runs. */
#ifndef TALLY_EXAMPLES_DIGITS_REPORT_H
#define TALLY_EXAMPLES_DIGITS_REPORT_H

enum { DIGITS_MAX_STEPS = 10000, DIGITS_MAX_RUNS = 16 };

/* One training run with one hook. */
struct digits_run {
    const char *hook;
    double accuracy; /* on the test images, 0..1 */
    double loss;     /* on the test images, mean over the ranks */
    int agree;       /* this rank's loss is equal to the mean */
    double bytes;    /* that a rank sends in a step, on average */
    double each_step_s[DIGITS_MAX_STEPS], each_exposed_s[DIGITS_MAX_STEPS];
    double step_s, exposed_s; /* their medians, set by digits_report */
};

struct digits_options {
    struct digits_run runs[DIGITS_MAX_RUNS]; /* with only the hook set */
    int n_runs;
    int n_steps;
    int json;
    const char *data; /* path of digits.csv */
};

/* Reads the command line into options, which must be zero. On failure prints an error and returns
 * -1; exits after the help. */
int digits_options(int argc, char **argv, struct digits_options *options);

/* Shows a progress bar on a terminal, and removes it at the end; elsewhere does nothing. */
void digits_progress(int done, int total);

/* Prints the runs and the hook that they favour, as a table or as JSON, one object per line. Sorts
 * the times of the steps. */
void digits_report(struct digits_options *options, int n_ranks);

#endif
