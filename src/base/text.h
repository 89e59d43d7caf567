/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Things that are chosen by a text, hooks and optimizers:
 *
 *     name [":" option {"," option}]        option   key "=" value
 *
 * Each is one row, a const table with its name and its options. Here is what a row says and how it
 * is described (text_describe.c), how a text is read from left to right (text_scan.c), the values
 * of options (text_value.c), what is wrong with a text, and the one form of it that is the thing's
 * canonical name (text_read.c). What a thing is made of, and what else may stand in its text, is up
 * to who has the rows.
 */
#ifndef TALLY_BASE_TEXT_H
#define TALLY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "tally.h"

/* Longest text, and longest canonical name: both fit in messages, and ranks compare names. */
#define TALLY__MAX_TEXT 200
#define TALLY__MAX_OPTIONS 12

/*
 * An option. Its value is a double: the number itself, or the place of the word in accepts.
 * COUNT takes whole numbers, REAL any, both within min..max; unit, if not 0, is what a COUNT must
 * be a multiple of. CHOICE takes one word of accepts, "two_phase|gather".
 */
enum tally__option_type { TALLY__OPTION_COUNT, TALLY__OPTION_REAL, TALLY__OPTION_CHOICE };

struct tally__option {
    const char *name;
    enum tally__option_type type;
    double min;
    double max;
    double unit;
    const char *accepts;  /* what lists say: the words, or range and unit in words */
    const char *fallback; /* one of the values accepted */
    const char *help;
};

/* A row: the first member of what its owner adds to it. */
struct tally__row {
    const char *name;
    const char *help;
    size_t n_options;
    const struct tally__option *options;
};

/* A list of rows, and what they are called in messages. */
struct tally__rows {
    const char *word;   /* "hook" */
    const char *a_word; /* "a hook" */
    const struct tally__row *const *row;
    size_t n;
};

/* ---- what a list has ---- */
/* Row number index; one of its options. Errors: ARG naming the function. */
int tally__row_at(const char *function, const struct tally__rows *rows, size_t index,
                  const struct tally__row **row);
int tally__describe_option(const char *function, const struct tally__rows *rows, size_t index,
                           size_t option, tally_hook_option *described);

/* ---- reading from left to right ---- */

struct tally__scan {
    const struct tally__rows *rows;
    const char *text; /* at most TALLY__MAX_TEXT characters */
    size_t at;        /* the next one to read */
};

/* A run of letters, digits and "_.+-"; empty where there is none. */
struct tally__word {
    size_t at;
    char text[TALLY__MAX_TEXT + 1];
};

/* All skip blanks first. mark is true, and behind the mark, if it is the next character. */
void tally__scan_word(struct tally__scan *scan, struct tally__word *word);
bool tally__scan_mark(struct tally__scan *scan, char mark);
bool tally__scan_is_over(struct tally__scan *scan);

/* Copies text as a message shows it: what is not printable ASCII becomes '?'. */
void tally__quote(char *quoted, size_t bytes, const char *text);

/* "a, b, c", for messages; cut where it is full. */
struct tally__list {
    char text[512];
};
void tally__list_add(struct tally__list *list, const char *name);

/* ---- values of options ---- */

/* Reads text as a value of option; false when it is none. The locale does not matter. */
bool tally__option_read(const struct tally__option *option, const char *text, double *value);

/* The one text of a value that stands in canonical names: reading it gives value again. */
#define TALLY__MAX_OPTION_VALUE 64
void tally__option_write(const struct tally__option *option, double value,
                         char text[TALLY__MAX_OPTION_VALUE]);

/* ---- a name and its options ---- */

/* A row and the values of its options, as a text has them. */
struct tally__setting {
    size_t at;        /* of its name in the text */
    bool has_options; /* in the text */
    const struct tally__row *row;
    double values[TALLY__MAX_OPTIONS];
};

/* Whether there is a text, and it is not too long. Errors: ARG, naming function for a NULL. */
int tally__text_check(const char *function, const struct tally__rows *rows, const char *text);

/* Reads a name and its options; what is not given has its fallback. Errors: ARG pointing at the
 * column, with what would be accepted there; INTERNAL for a row with a wrong fallback. */
int tally__setting_read(struct tally__scan *scan, struct tally__setting *setting);

/* The marks, of ':' and ',', that might have stood behind it. */
struct tally__list tally__setting_marks(const struct tally__setting *setting);

/* Nothing may follow; what else might have, for the message. Errors: ARG. */
int tally__scan_end(struct tally__scan *scan, const struct tally__list *accepted);

/* Says what is wrong with the text at a position, all on one line: ARG. */
void tally__say_at(const struct tally__scan *scan, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with its status, which the analyser, too, sees is not OK. */
#define TALLY__FAIL_AT(...) (tally__say_at(__VA_ARGS__), TALLY_ARG)

/* ---- canonical names ---- */

/* A name while it grows; too_long once something did not fit. */
struct tally__name {
    size_t length;
    bool too_long;
    char text[TALLY__MAX_TEXT + 1];
};

void tally__name_add(struct tally__name *name, const char *part);

/* The setting's own: with those options only that differ from their fallbacks, in the row's order.
 */
int tally__name_add_setting(struct tally__name *name, const struct tally__rows *rows,
                            const struct tally__setting *setting);

/* Errors: ARG when it has become too long. */
int tally__name_check(const struct tally__name *name, const struct tally__rows *rows);

#endif
