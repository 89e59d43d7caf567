/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form of hooks, inside: reading a text from left to right (text_scan.c), the values of
 * options (text_value.c), and hooks from a list of kinds (text.c).
 */
#ifndef TALLY_HOOK_TEXT_H
#define TALLY_HOOK_TEXT_H

#include "hook/kind.h"

/* Longest text, and longest canonical name: both fit in messages, and ranks compare names. */
#define TALLY__MAX_HOOK_TEXT 200
/* Most hooks inside one another. */
#define TALLY__MAX_HOOK_DEPTH 8

/* ---- reading from left to right ---- */

struct tally__scan {
    const char *text; /* at most TALLY__MAX_HOOK_TEXT characters */
    size_t at;        /* the next one to read */
};

/* A run of letters, digits and "_.+-"; empty where there is none. */
struct tally__word {
    size_t at;
    char text[TALLY__MAX_HOOK_TEXT + 1];
};

/* All skip blanks first. mark is true, and behind the mark, if it is the next character. */
void tally__scan_word(struct tally__scan *scan, struct tally__word *word);
bool tally__scan_mark(struct tally__scan *scan, char mark);
bool tally__scan_at_end(struct tally__scan *scan);

/* Copies text as a message shows it: what is not printable ASCII becomes '?'. */
void tally__quote(char *quoted, size_t bytes, const char *text);

/* ---- values of options ---- */

/* Reads text as a value of option; false when it is none. The locale does not matter. */
bool tally__option_read(const struct tally__hook_option *option, const char *text, double *value);

/* The one text of a value that stands in canonical names: reading it gives value again. */
#define TALLY__MAX_OPTION_VALUE 64
void tally__option_write(const struct tally__hook_option *option, double value,
                         char text[TALLY__MAX_OPTION_VALUE]);

/* ---- hooks of a list of kinds: tally_hook_parse and tally_hook_wrap, with the list given ---- */

int tally__hook_parse_in(const struct tally__hook_kind *const *kinds, size_t n_kinds,
                         const char *text, tally_hook **hook);
int tally__hook_wrap_in(const struct tally__hook_kind *const *kinds, size_t n_kinds,
                        const char *text, tally_hook *inner, tally_hook **hook);

#endif
