/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects chosen by a text, such as hooks and optimizers:
 *
 *     name [":" option {"," option}]        option   key "=" value
 *
 * Each kind is one row: a const table with its name and its options. text_value.c reads
 * and writes the values of options; text_read.c reads a text, reports mistakes, writes canonical
 * names, and describes rows. The folder that lists the rows decides what a row makes and what else
 * its text may contain.
 */
#ifndef TALLY_BASE_TEXT_H
#define TALLY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "tally.h"

/* Longest text, and longest canonical name. */
#define TALLY__MAX_TEXT 200
#define TALLY__MAX_OPTIONS 12

/*
 * An option. Its value is a double: the number itself, or the index of the word in accepts. COUNT
 * takes whole numbers, REAL any number, both within min..max; unit, if not 0, is the divisor of a
 * valid COUNT. CHOICE takes one word of accepts, such as "two_phase|gather". TEXT takes any
 * printable characters without blanks, up to a ',' or ')' outside of brackets; its value says where
 * the setting has the text (tally__setting_text).
 */
enum tally__option_type {
    TALLY__OPTION_COUNT,
    TALLY__OPTION_REAL,
    TALLY__OPTION_CHOICE,
    TALLY__OPTION_TEXT
};

struct tally__option {
    const char *name;
    enum tally__option_type type;
    double min;
    double max;
    double unit;
    const char *accepts;  /* for help: the words, or range and unit */
    const char *fallback; /* one of the accepted values */
    const char *help;
};

#define TALLY__COUNT_OPTION(option, least, most, range, value, text)                              \
    {                                                                                             \
        .name = option, .type = TALLY__OPTION_COUNT, .min = least, .max = most, .accepts = range, \
        .fallback = value, .help = text                                                           \
    }
#define TALLY__REAL_OPTION(option, least, most, range, value, text)                              \
    {                                                                                            \
        .name = option, .type = TALLY__OPTION_REAL, .min = least, .max = most, .accepts = range, \
        .fallback = value, .help = text                                                          \
    }
#define TALLY__CHOICE_OPTION(option, words, value, text)                                   \
    {                                                                                      \
        .name = option, .type = TALLY__OPTION_CHOICE, .accepts = words, .fallback = value, \
        .help = text                                                                       \
    }

#define TALLY__TEXT_OPTION(option, range, value, text)                                   \
    {                                                                                    \
        .name = option, .type = TALLY__OPTION_TEXT, .accepts = range, .fallback = value, \
        .help = text                                                                     \
    }

/* A row. It is the first member of a larger row: of a hook, or of an optimizer. */
struct tally__row {
    const char *name;
    const char *help;
    size_t n_options;
    const struct tally__option *options;
};

/* A list of rows, and the word for one in messages. */
struct tally__rows {
    const char *word;   /* "hook" */
    const char *a_word; /* "a hook" */
    const struct tally__row *const *row;
    size_t n;
};

/* ---- describing rows ---- */
/* Row number index, or one of its options. Errors: ARG naming the function. */
int tally__row_at(const char *function, const struct tally__rows *rows, size_t index,
                  const struct tally__row **row);
int tally__describe_option(const char *function, const struct tally__rows *rows, size_t index,
                           size_t option, tally_hook_option *described);

/* ---- reading from left to right ---- */

struct tally__scan {
    const struct tally__rows *rows;
    const char *text; /* at most TALLY__MAX_TEXT characters */
    size_t at;        /* the next character */
};

/* Skips blanks, and consumes mark if it is the next character. */
bool tally__scan_mark(struct tally__scan *scan, char mark);

/* A list in a message (base/sheet.h). */
struct tally__list {
    char text[512];
};
void tally__list_name(struct tally__list *list, const char *name);

/* ---- values of options ---- */

/* Whether text is a word of a list such as "a|b", and at which index. */
bool tally__find_word(const char *list, const char *text, size_t *index);

/* Reads text as a value of option; false if it is not one. Independent of the locale. A TEXT option
 * accepts its fallback, with the value 0. */
bool tally__option_read(const struct tally__option *option, const char *text, double *value);

/* The canonical text of a value: reading it gives value again. */
#define TALLY__MAX_OPTION_VALUE 64
void tally__option_write(const struct tally__option *option, double value,
                         char text[TALLY__MAX_OPTION_VALUE]);

/* ---- a name and its options ---- */

/* A row and the values of its options, as read from a text. */
struct tally__setting {
    size_t at;        /* the position of its name in the text */
    bool has_options; /* the text gives options */
    const struct tally__row *row;
    double values[TALLY__MAX_OPTIONS];
    char texts[TALLY__MAX_TEXT + TALLY__MAX_OPTIONS]; /* of TEXT options, each with its NUL */
    size_t n_texts;                                   /* characters */
};

/* The text of option i, which is a TEXT option. */
const char *tally__setting_text(const struct tally__setting *setting, size_t i);

/* Checks that text is not NULL and not too long. Errors: ARG; for NULL it names function. */
int tally__text_check(const char *function, const struct tally__rows *rows, const char *text);

/* Reads a name and its options; options that are not given have their fallbacks. Errors: ARG with
 * the column and the accepted values; INTERNAL for a row with an invalid fallback. */
int tally__setting_read(struct tally__scan *scan, struct tally__setting *setting);

/* The marks, ':' or ',', that could continue the setting. */
struct tally__list tally__setting_marks(const struct tally__setting *setting);

/* Checks that the text ends here; accepted lists what else could follow, for the message. Errors:
 * ARG. */
int tally__scan_end(struct tally__scan *scan, const struct tally__list *accepted);

/* Records an error text about a position in the text, on one line. */
void tally__say_at(const struct tally__scan *scan, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As tally__say_at, with status ARG, which static analysis can see. */
#define TALLY__FAIL_AT(...) (tally__say_at(__VA_ARGS__), TALLY_ARG)

/* ---- canonical names ---- */

/* A name under construction; too_long once something did not fit. */
struct tally__name {
    size_t length;
    bool too_long;
    char text[TALLY__MAX_TEXT + 1];
};

void tally__name_add(struct tally__name *name, const char *part);

/* Adds the setting's canonical name: only options that differ from their fallbacks, in the row's
 * order. */
int tally__name_add_setting(struct tally__name *name, const struct tally__rows *rows,
                            const struct tally__setting *setting);

/* Errors: ARG when the name is too long. */
int tally__name_check(const struct tally__name *name, const struct tally__rows *rows);

#endif
