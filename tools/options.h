/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command-line options: one table per command. A value is the next word, or follows '=' or, for a
 * one-letter option, the letter: "--bytes 4Ki", "--bytes=4Ki", "-n 4", "-n4". Every mistake gives
 * one line on stderr that names it and what is accepted.
 */
#ifndef TALLY_TOOLS_OPTIONS_H
#define TALLY_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum option_kind {
    OPTION_FLAG,    /* bool: present or not */
    OPTION_TEXT,    /* const char *: any text */
    OPTION_TEXTS,   /* struct option_texts: any text; the option may be repeated */
    OPTION_BYTES,   /* size_t: a count with an optional suffix Ki, Mi or Gi; at least 1 */
    OPTION_COUNT,   /* struct option_count: a whole number within a range */
    OPTION_SECONDS, /* double: above 0, at most 1e8 */
};

/* The target of an OPTION_COUNT. Without the option, value does not change. */
struct option_count {
    size_t min;
    size_t max;
    size_t value;
};

#define OPTION_MAX_TEXTS 64

/* The target of an OPTION_TEXTS: all values, in order. */
struct option_texts {
    const char *values[OPTION_MAX_TEXTS];
    size_t n;
};

struct option {
    const char *name; /* without its dashes: two for a word, one for a letter */
    enum option_kind kind;
    void *target;
    const char *value_name; /* for the help: "BYTES" */
    const char *help;
};

struct option_set {
    const char *command; /* "tally bench num" */
    const char *summary; /* its purpose; with a line "usage: ..." if it takes more than options */
    const char *example; /* an example of a command line */
    const struct option *options;
    size_t n;
};

enum option_result {
    OPTIONS_OK,
    OPTIONS_HELP, /* --help was given; the help has been printed */
    OPTIONS_BAD,  /* a message has been printed */
};

/* Reads argv[1..]; any other word is a mistake. */
enum option_result options_read(const struct option_set *set, int argc, char **argv);

/*
 * The same, but the options end before the first word without a dash, or after "--"; the rest is
 * another program's command line. *rest points to that part of argv, which ends in NULL.
 */
enum option_result options_read_before(const struct option_set *set, int argc, char **argv,
                                       char ***rest);

/*
 * The same for a command that takes words and options in any order, such as file names. Afterwards
 * argv[0] to argv[*n - 1] are the words; all words after "--" are among them.
 */
enum option_result options_read_words(const struct option_set *set, int argc, char **argv,
                                      size_t *n);

/* The same for a command that needs at least one word; files is the name of such words. */
enum option_result options_read_files(const struct option_set *set, int argc, char **argv,
                                      const char *files, size_t *n);

#endif
