/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of 06_gpt. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

struct gpt_options {
    const char *text, *hook, *optimizer, *mixed, *checkpoint;
    long layers, heads, width, context, batch, steps, seed, every, sample;
    long zero, start, group, period, crash_at;
    double lr, clip;
};

extern struct gpt_options gpt_options;

/* Sets gpt_options. On failure prints an error or the options to stderr and returns -1. */
int gpt_options_parse(int argc, char **argv);

/* Prints "what: why" to stderr, and returns -1. */
int gpt_complain(const char *what, const char *why);

#endif
