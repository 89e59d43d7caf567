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
    int agree;       /* all ranks came to the same loss */
    double step_s;   /* medians over the steps */
    double exposed_s;
    double bytes; /* a rank sends in a step, on average */
};

struct digits_options {
    struct digits_run runs[DIGITS_MAX_RUNS]; /* with hooks and nothing else yet */
    int n_runs;
    int n_steps;
    int json;
    const char *data; /* path of digits.csv */
};

/* Reads the command line. Prints what is wrong and returns -1; exits after the help. */
int digits_options(int argc, char **argv, struct digits_options *options);

/* Shows how far a run is, on a terminal; nothing elsewhere. done == total wipes it out. */
void digits_progress(const char *hook, int done, int total);

/* Sorts the values. */
double digits_median(double *values, int n);

/* The runs, and which hook they speak for: a table, or JSON, one object per line. */
void digits_report(const struct digits_options *options, int n_ranks);

#endif
