/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a text from left to right: words, marks, a name with its options. Reports mistakes with
 * their column, writes canonical names, and describes rows for lists and help. Letters and digits
 * are ASCII in every locale. Knows rows, not what they make. Any thread enters.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/sheet.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/text.h"

/* ---- words and marks ---- */

/* A run of letters, digits and "_.+-"; may be empty. */
struct word {
    size_t at;
    char text[TALLY__MAX_TEXT + 1];
};

static bool is_of_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_.+-", c));
}

static void skip_blanks(struct tally__scan *scan)
{
    while (scan->text[scan->at] == ' ' || scan->text[scan->at] == '\t') {
        scan->at++;
    }
}

static void scan_word(struct tally__scan *scan, struct word *word)
{
    size_t length = 0;

    skip_blanks(scan);
    word->at = scan->at;
    while (is_of_word(scan->text[scan->at])) {
        assert(length < TALLY__MAX_TEXT);
        word->text[length++] = scan->text[scan->at++];
    }
    word->text[length] = '\0';
}

bool tally__scan_mark(struct tally__scan *scan, char mark)
{
    skip_blanks(scan);
    if (scan->text[scan->at] != mark) {
        return false;
    }
    scan->at++;
    return true;
}

static bool is_over(struct tally__scan *scan)
{
    skip_blanks(scan);
    return scan->text[scan->at] == '\0';
}

/* Copies text for a message: characters that are not printable ASCII become '?'. */
static void quote(char *quoted, size_t bytes, const char *text)
{
    size_t i;

    for (i = 0; i + 1 < bytes && text[i] != '\0'; i++) {
        quoted[i] = text[i];
        if (text[i] < ' ' || text[i] > '~') {
            quoted[i] = '?';
        }
    }
    quoted[i] = '\0';
}

void tally__list_name(struct tally__list *list, const char *name)
{
    tally__list_add(list->text, sizeof list->text, "%s", name);
}

static struct tally__list names_of(const struct tally__rows *rows)
{
    struct tally__list list = {""};

    for (size_t k = 0; k < rows->n; k++) {
        tally__list_name(&list, rows->row[k]->name);
    }
    return list;
}

static struct tally__list options_of(const struct tally__row *row)
{
    struct tally__list list = {""};

    for (size_t i = 0; i < row->n_options; i++) {
        tally__list_name(&list, row->options[i].name);
    }
    return list;
}

/* ---- mistakes ---- */

void tally__say_at(const struct tally__scan *scan, size_t at, const char *format, ...)
{
    char quoted[TALLY__MAX_TEXT + 1];
    char what[TALLY__ERROR_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    quote(quoted, sizeof quoted, scan->text);
    (void)tally__fail(TALLY_ARG, "%s '%s': column %zu: %s", scan->rows->word, quoted, at + 1, what);
}

static int fail_too_long(const struct tally__rows *rows, const char *text)
{
    char quoted[41];

    quote(quoted, sizeof quoted, text);
    return tally__fail(TALLY_ARG, "%s '%s...': has more than %d characters", rows->word, quoted,
                       TALLY__MAX_TEXT);
}

int tally__text_check(const char *function, const struct tally__rows *rows, const char *text)
{
    if (!text) {
        return tally__fail(TALLY_ARG, "%s: text is NULL", function);
    }
    return strlen(text) > TALLY__MAX_TEXT ? fail_too_long(rows, text) : TALLY_OK;
}

/* ---- reading ---- */

static const struct tally__row *find_row(const struct tally__rows *rows, const char *name)
{
    for (size_t k = 0; k < rows->n; k++) {
        if (strcmp(rows->row[k]->name, name) == 0) {
            return rows->row[k];
        }
    }
    return NULL;
}

/* Sets all options to their fallbacks. */
static int start_setting(const struct tally__rows *rows, const struct tally__row *row,
                         struct tally__setting *setting)
{
    *setting = (struct tally__setting){.row = row};
    for (size_t i = 0; i < row->n_options; i++) {
        const struct tally__option *option = &row->options[i];

        if (!tally__option_read(option, option->fallback, &setting->values[i])) {
            return tally__fail(TALLY_INTERNAL, "%s %s: the fallback %s=%s is not accepted",
                               rows->word, row->name, option->name, option->fallback);
        }
    }
    return TALLY_OK;
}

static int read_name(struct tally__scan *scan, struct tally__setting *setting)
{
    struct word name;
    const struct tally__row *row;

    scan_word(scan, &name);
    if (name.text[0] == '\0') {
        return TALLY__FAIL_AT(scan, name.at, "expected the name of %s; available: %s",
                              scan->rows->a_word, names_of(scan->rows).text);
    }
    row = find_row(scan->rows, name.text);
    if (!row) {
        return TALLY__FAIL_AT(scan, name.at, "no %s '%s'; available: %s", scan->rows->word,
                              name.text, names_of(scan->rows).text);
    }
    TRY(start_setting(scan->rows, row, setting));
    setting->at = name.at;
    return TALLY_OK;
}

/* Reads the name of an option that was not given before, and "="; returns its index in the row. */
static int read_key(struct tally__scan *scan, const struct tally__row *row, const bool *given,
                    size_t *index)
{
    struct word key;
    size_t i = 0;

    scan_word(scan, &key);
    while (i < row->n_options && strcmp(row->options[i].name, key.text) != 0) {
        i++;
    }
    if (key.text[0] == '\0') {
        return TALLY__FAIL_AT(scan, key.at, "expected an option of %s; available: %s", row->name,
                              options_of(row).text);
    }
    if (i == row->n_options) {
        return TALLY__FAIL_AT(scan, key.at, "no option '%s' of %s; available: %s", key.text,
                              row->name, options_of(row).text);
    }
    if (given[i]) {
        return TALLY__FAIL_AT(scan, key.at, "%s is given twice", key.text);
    }
    if (!tally__scan_mark(scan, '=')) {
        return TALLY__FAIL_AT(scan, scan->at, "expected '=' and the value of %s: %s", key.text,
                              row->options[i].accepts);
    }
    *index = i;
    return TALLY_OK;
}

/* A TEXT value: printable characters up to a ',' or ')' outside of brackets. */
static void scan_text(struct tally__scan *scan, struct word *word)
{
    size_t length = 0;
    int depth = 0;

    skip_blanks(scan);
    word->at = scan->at;
    for (char c = scan->text[scan->at]; c > ' ' && c <= '~'; c = scan->text[++scan->at]) {
        if (depth == 0 && (c == ',' || c == ')')) {
            break;
        }
        depth += (c == '(') - (c == ')');
        assert(length < TALLY__MAX_TEXT);
        word->text[length++] = c;
    }
    word->text[length] = '\0';
}

/* Keeps the text of option i, and has values[i] say where. */
static void keep_text(struct tally__setting *setting, size_t i, const char *text)
{
    size_t bytes = strlen(text) + 1;

    assert(setting->n_texts + bytes <= sizeof setting->texts);
    memcpy(setting->texts + setting->n_texts, text, bytes);
    setting->values[i] = (double)(1 + setting->n_texts);
    setting->n_texts += bytes;
}

static int read_text(struct tally__scan *scan, struct tally__setting *setting, size_t i)
{
    const struct tally__option *option = &setting->row->options[i];
    struct word word;

    scan_text(scan, &word);
    if (word.text[0] == '\0') {
        return TALLY__FAIL_AT(scan, word.at, "expected the value of %s: %s", option->name,
                              option->accepts);
    }
    if (!tally__option_read(option, word.text, &setting->values[i])) {
        keep_text(setting, i, word.text);
    }
    return TALLY_OK;
}

const char *tally__setting_text(const struct tally__setting *setting, size_t i)
{
    size_t at = (size_t)setting->values[i];

    assert(setting->row->options[i].type == TALLY__OPTION_TEXT);
    return at > 0 ? setting->texts + at - 1 : setting->row->options[i].fallback;
}

static int read_value(struct tally__scan *scan, const struct tally__option *option, double *value)
{
    struct word word;

    scan_word(scan, &word);
    if (word.text[0] == '\0') {
        return TALLY__FAIL_AT(scan, word.at, "expected the value of %s: %s", option->name,
                              option->accepts);
    }
    if (!tally__option_read(option, word.text, value)) {
        return TALLY__FAIL_AT(scan, word.at, "%s takes %s, not '%s'", option->name, option->accepts,
                              word.text);
    }
    return TALLY_OK;
}

static int read_options(struct tally__scan *scan, struct tally__setting *setting)
{
    const struct tally__row *row = setting->row;
    bool given[TALLY__MAX_OPTIONS] = {false};

    if (row->n_options == 0) {
        return TALLY__FAIL_AT(scan, scan->at - 1, "%s has no options", row->name);
    }
    do {
        size_t i;

        TRY(read_key(scan, row, given, &i));
        given[i] = true;
        TRY(row->options[i].type == TALLY__OPTION_TEXT
                ? read_text(scan, setting, i)
                : read_value(scan, &row->options[i], &setting->values[i]));
    } while (tally__scan_mark(scan, ','));
    return TALLY_OK;
}

int tally__setting_read(struct tally__scan *scan, struct tally__setting *setting)
{
    TRY(read_name(scan, setting));
    setting->has_options = tally__scan_mark(scan, ':');
    return setting->has_options ? read_options(scan, setting) : TALLY_OK;
}

struct tally__list tally__setting_marks(const struct tally__setting *setting)
{
    struct tally__list list = {""};

    if (setting->has_options) {
        tally__list_name(&list, "','");
    } else if (setting->row->n_options > 0) {
        tally__list_name(&list, "':'");
    }
    return list;
}

int tally__scan_end(struct tally__scan *scan, const struct tally__list *accepted)
{
    struct tally__list list = *accepted;

    if (is_over(scan)) {
        return TALLY_OK;
    }
    tally__list_name(&list, "the end");
    return TALLY__FAIL_AT(scan, scan->at, "accepted here: %s", list.text);
}

/* ---- canonical names ---- */

void tally__name_add(struct tally__name *name, const char *part)
{
    size_t length = strlen(part);

    name->too_long = name->too_long || length >= sizeof name->text - name->length;
    if (name->too_long) {
        return;
    }
    memcpy(name->text + name->length, part, length + 1);
    name->length += length;
}

int tally__name_add_setting(struct tally__name *name, const struct tally__rows *rows,
                            const struct tally__setting *setting)
{
    const struct tally__row *row = setting->row;
    struct tally__setting plain;
    const char *mark = ":";

    assert(row->n_options <= TALLY__MAX_OPTIONS);
    TRY(start_setting(rows, row, &plain));
    tally__name_add(name, row->name);
    for (size_t i = 0; i < row->n_options; i++) {
        char value[TALLY__MAX_OPTION_VALUE];

        if (setting->values[i] == plain.values[i]) {
            continue;
        }
        tally__option_write(&row->options[i], setting->values[i], value);
        tally__name_add(name, mark);
        tally__name_add(name, row->options[i].name);
        tally__name_add(name, "=");
        tally__name_add(name, row->options[i].type == TALLY__OPTION_TEXT
                                  ? tally__setting_text(setting, i)
                                  : value);
        mark = ",";
    }
    return TALLY_OK;
}

int tally__name_check(const struct tally__name *name, const struct tally__rows *rows)
{
    return name->too_long ? fail_too_long(rows, name->text) : TALLY_OK;
}

/* ---- lists of rows ---- */

static int check_index(const char *function, const char *what, size_t index, size_t n)
{
    return index < n
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "%s: %s %zu is not below %zu", function, what, index, n);
}

int tally__row_at(const char *function, const struct tally__rows *rows, size_t index,
                  const struct tally__row **row)
{
    TRY(check_index(function, rows->word, index, rows->n));
    *row = rows->row[index];
    return TALLY_OK;
}

int tally__describe_option(const char *function, const struct tally__rows *rows, size_t index,
                           size_t option, tally_hook_option *described)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_hook_option, help);
    const struct tally__row *row;
    tally_hook_option answer;

    TRY(tally__answer_check(kind, function, described));
    TRY(tally__row_at(function, rows, index, &row));
    TRY(check_index(function, "option", option, row->n_options));
    answer = (tally_hook_option){.name = row->options[option].name,
                                 .accepts = row->options[option].accepts,
                                 .fallback = row->options[option].fallback,
                                 .help = row->options[option].help};
    tally__sized_write(kind, &answer, described);
    return TALLY_OK;
}
