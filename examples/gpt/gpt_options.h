/* SPDX-License-Identifier: Apache-2.0 */
/* What 06_gpt can be told on its command line. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

struct gpt_options {
    const char *text, *hook, *optimizer, *mixed, *checkpoint;
    long layers, heads, width, context, batch, steps, seed, every, sample;
    long zero, start, group, period, crash_at;
    double lr, clip;
};

extern struct gpt_options gpt_options;

/* Sets them. Otherwise says on stderr what there is, and returns -1. */
int gpt_options_parse(int argc, char **argv);

/* Says so on stderr, and returns -1. */
int gpt_complain(const char *what, const char *why);

#endif
