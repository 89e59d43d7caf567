/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options: a table per command. Long options only; a value follows as the next word
 * or after '='. Every mistake gets one line on stderr that names it and what would be accepted.
 */
#ifndef TALLY_TOOLS_OPTIONS_H
#define TALLY_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
    OPTION_FLAG,  /* bool: present or not */
    OPTION_TEXT,  /* const char *: any text */
    OPTION_BYTES, /* size_t: a count with an optional suffix Ki, Mi or Gi; at least 1 */
};

struct option {
    const char *name; /* without the dashes */
    enum option_kind kind;
    void *target;
    const char *value_name; /* for the help: "BYTES" */
    const char *help;
};

struct option_set {
    const char *command; /* "tally bench num" */
    const char *summary; /* what it does */
    const char *example; /* a command line that works */
    const struct option *options;
    size_t n;
};

enum option_result {
    OPTIONS_OK,
    OPTIONS_HELP, /* --help was given; the help has been printed */
    OPTIONS_BAD,  /* a message has been printed */
};

/* Reads argv[1..]; words that are no options are mistakes. */
enum option_result options_read(const struct option_set *set, int argc, char **argv);

#endif
