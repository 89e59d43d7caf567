/* SPDX-License-Identifier: Apache-2.0 */
/* What 05_digits.c is told on its command line, and what it shows of its runs. */
#ifndef TALLY_EXAMPLES_DIGITS_REPORT_H
#define TALLY_EXAMPLES_DIGITS_REPORT_H

enum { DIGITS_MAX_STEPS = 10000, DIGITS_MAX_RUNS = 16 };

/* One training run with one hook. */
struct digits_run {
    const char *hook;
    double accuracy; /* on the test images, 0..1 */
    double loss;     /* likewise, mean over the ranks */
    int agree;       /* it is this rank's own too */
    double bytes;    /* a rank sends in a step, on average */
    double each_step_s[DIGITS_MAX_STEPS], each_exposed_s[DIGITS_MAX_STEPS];
    double step_s, exposed_s; /* their medians: the report's to find */
};

struct digits_options {
    struct digits_run runs[DIGITS_MAX_RUNS]; /* with hooks and nothing else yet */
    int n_runs;
    int n_steps;
    int json;
    const char *data; /* path of digits.csv */
};

/* Reads the command line into options, all zero before. Prints what is wrong and returns -1; exits
 * after the help. */
int digits_options(int argc, char **argv, struct digits_options *options);

/* A bar of what is done, on a terminal; nothing elsewhere. It is gone when all is done. */
void digits_progress(int done, int total);

/* The runs, and which hook they speak for: a table, or JSON, one object per line. Sorts
 * the times of the steps. */
void digits_report(struct digits_options *options, int n_ranks);

#endif
