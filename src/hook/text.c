/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks by text: the grammar, what is wrong with a text, and canonical names. A text is read to its
 * end before the first hook is made, and then they are made from the inside out. Any thread enters.
 */
#include "hook/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "hook/hook.h"

#define PLAIN "allreduce"

struct kinds {
    const struct tally__hook_kind *const *row;
    size_t n;
};

/* A hook as its text describes it. */
struct level {
    size_t at;        /* of its name in the text */
    bool has_options; /* in the text */
    const struct tally__hook_kind *kind;
    double values[TALLY__MAX_HOOK_OPTIONS];
};

/* Hooks inside one another, the outermost first; one more than a text may have, for PLAIN. */
struct chain {
    size_t n;
    struct level level[TALLY__MAX_HOOK_DEPTH + 1];
};

/* "a, b, c", for messages; cut where it is full. */
struct list {
    char text[512];
};

static void add_to_list(struct list *list, const char *name)
{
    size_t length = strlen(list->text);

    (void)snprintf(list->text + length, sizeof list->text - length, "%s%s", length ? ", " : "",
                   name);
}

static struct list names_of(const struct kinds *kinds, bool only_wrappers)
{
    struct list list = {""};

    for (size_t k = 0; k < kinds->n; k++) {
        if (kinds->row[k]->wraps || !only_wrappers) {
            add_to_list(&list, kinds->row[k]->name);
        }
    }
    return list;
}

static struct list options_of(const struct tally__hook_kind *kind)
{
    struct list list = {""};

    for (size_t i = 0; i < kind->n_options; i++) {
        add_to_list(&list, kind->options[i].name);
    }
    return list;
}

/* ---- reading ---- */

/* Says what is wrong with the text at a position, all on one line. */
__attribute__((format(printf, 3, 4))) static void say_at(const struct tally__scan *scan, size_t at,
                                                         const char *format, ...)
{
    char quoted[TALLY__MAX_HOOK_TEXT + 1];
    char what[TALLY__ERROR_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    tally__quote(quoted, sizeof quoted, scan->text);
    (void)tally__fail(TALLY_ARG, "hook '%s': column %zu: %s", quoted, at + 1, what);
}

/* say_at with its status, which the analyser, too, sees is not OK. */
#define FAIL_AT(...) (say_at(__VA_ARGS__), TALLY_ARG)

static const struct tally__hook_kind *find_kind(const struct kinds *kinds, const char *name)
{
    for (size_t k = 0; k < kinds->n; k++) {
        if (strcmp(kinds->row[k]->name, name) == 0) {
            return kinds->row[k];
        }
    }
    return NULL;
}

static int start_level(struct level *level, const struct tally__hook_kind *kind)
{
    *level = (struct level){.kind = kind};
    for (size_t i = 0; i < kind->n_options; i++) {
        const struct tally__hook_option *option = &kind->options[i];

        if (!tally__option_read(option, option->fallback, &level->values[i])) {
            return tally__fail(TALLY_INTERNAL, "hook %s: the fallback %s=%s is not accepted",
                               kind->name, option->name, option->fallback);
        }
    }
    return TALLY_OK;
}

static int read_name(struct tally__scan *scan, const struct kinds *kinds, struct level *level)
{
    struct tally__word name;
    const struct tally__hook_kind *kind;

    tally__scan_word(scan, &name);
    if (name.text[0] == '\0') {
        return FAIL_AT(scan, name.at, "here goes the name of a hook; there are %s",
                       names_of(kinds, false).text);
    }
    kind = find_kind(kinds, name.text);
    if (!kind) {
        return FAIL_AT(scan, name.at, "no hook '%s'; there are %s", name.text,
                       names_of(kinds, false).text);
    }
    TRY(start_level(level, kind));
    level->at = name.at;
    return TALLY_OK;
}

/* The name of an option, not given before, and "=": which of the kind's options it is. */
static int read_key(struct tally__scan *scan, const struct tally__hook_kind *kind,
                    const bool *given, size_t *index)
{
    struct tally__word key;
    size_t i = 0;

    tally__scan_word(scan, &key);
    while (i < kind->n_options && strcmp(kind->options[i].name, key.text) != 0) {
        i++;
    }
    if (key.text[0] == '\0') {
        return FAIL_AT(scan, key.at, "here goes an option of %s; there are %s", kind->name,
                       options_of(kind).text);
    }
    if (i == kind->n_options) {
        return FAIL_AT(scan, key.at, "no option '%s' of %s; there are %s", key.text, kind->name,
                       options_of(kind).text);
    }
    if (given[i]) {
        return FAIL_AT(scan, key.at, "%s is given twice", key.text);
    }
    if (!tally__scan_mark(scan, '=')) {
        return FAIL_AT(scan, scan->at, "here goes '=' and the value of %s: %s", key.text,
                       kind->options[i].accepts);
    }
    *index = i;
    return TALLY_OK;
}

static int read_value(struct tally__scan *scan, const struct tally__hook_option *option,
                      double *value)
{
    struct tally__word word;

    tally__scan_word(scan, &word);
    if (word.text[0] == '\0') {
        return FAIL_AT(scan, word.at, "here goes the value of %s: %s", option->name,
                       option->accepts);
    }
    if (!tally__option_read(option, word.text, value)) {
        return FAIL_AT(scan, word.at, "%s takes %s, not '%s'", option->name, option->accepts,
                       word.text);
    }
    return TALLY_OK;
}

static int read_options(struct tally__scan *scan, struct level *level)
{
    const struct tally__hook_kind *kind = level->kind;
    bool given[TALLY__MAX_HOOK_OPTIONS] = {false};

    if (kind->n_options == 0) {
        return FAIL_AT(scan, scan->at - 1, "%s has no options", kind->name);
    }
    do {
        size_t i;

        TRY(read_key(scan, kind, given, &i));
        given[i] = true;
        TRY(read_value(scan, &kind->options[i], &level->values[i]));
    } while (tally__scan_mark(scan, ','));
    return TALLY_OK;
}

static int read_level(struct tally__scan *scan, const struct kinds *kinds, struct level *level)
{
    TRY(read_name(scan, kinds, level));
    level->has_options = tally__scan_mark(scan, ':');
    return level->has_options ? read_options(scan, level) : TALLY_OK;
}

/* Whether a bracket opens another level. */
static int read_bracket(struct tally__scan *scan, const struct kinds *kinds,
                        const struct chain *chain, bool *opened)
{
    const struct tally__hook_kind *kind = chain->level[chain->n - 1].kind;

    *opened = tally__scan_mark(scan, '(');
    if (*opened && !kind->wraps) {
        return FAIL_AT(scan, scan->at - 1, "%s takes no hook in brackets; wrappers are %s",
                       kind->name, names_of(kinds, true).text);
    }
    if (*opened && chain->n == TALLY__MAX_HOOK_DEPTH) {
        return FAIL_AT(scan, scan->at - 1, "more than %d hooks inside one another",
                       TALLY__MAX_HOOK_DEPTH);
    }
    return TALLY_OK;
}

/* What may stand behind the options, or the lack of them, but a bracket that closes. */
static struct list marks_behind(const struct level *level, bool brackets)
{
    struct list list = {""};

    if (level->has_options) {
        add_to_list(&list, "','");
    } else if (level->kind->n_options > 0) {
        add_to_list(&list, "':'");
    }
    if (level->kind->wraps && brackets) {
        add_to_list(&list, "'('");
    }
    return list;
}

/* The brackets of all levels but the first, and the end; another bracket only if brackets. */
static int read_end(struct tally__scan *scan, const struct chain *chain, bool brackets)
{
    struct list accepted = marks_behind(&chain->level[chain->n - 1], brackets);

    for (size_t k = 1; k < chain->n; k++) {
        if (!tally__scan_mark(scan, ')')) {
            add_to_list(&accepted, "')'");
            return FAIL_AT(scan, scan->at, "accepted here: %s", accepted.text);
        }
        accepted = (struct list){""};
    }
    if (!tally__scan_at_end(scan)) {
        add_to_list(&accepted, "the end");
        return FAIL_AT(scan, scan->at, "accepted here: %s", accepted.text);
    }
    return TALLY_OK;
}

static int read_chain(struct tally__scan *scan, const struct kinds *kinds, struct chain *chain)
{
    bool opened;

    chain->n = 0;
    do {
        TRY(read_level(scan, kinds, &chain->level[chain->n++]));
        TRY(read_bracket(scan, kinds, chain, &opened));
    } while (opened);
    return read_end(scan, chain, true);
}

/* ---- making ---- */

static int fail_too_long(const char *text)
{
    char quoted[41];

    tally__quote(quoted, sizeof quoted, text);
    return tally__fail(TALLY_ARG, "hook '%s...': has more than %d characters", quoted,
                       TALLY__MAX_HOOK_TEXT);
}

/* A canonical name while it grows; too_long once something did not fit. */
struct name {
    size_t length;
    bool too_long;
    char text[TALLY__MAX_HOOK_TEXT + 1];
};

static void add_to_name(struct name *name, const char *part)
{
    size_t length = strlen(part);

    name->too_long = name->too_long || length >= sizeof name->text - name->length;
    if (name->too_long) {
        return;
    }
    memcpy(name->text + name->length, part, length + 1);
    name->length += length;
}

static int add_options(struct name *name, const struct level *level)
{
    struct level plain;
    const char *mark = ":";

    TRY(start_level(&plain, level->kind));
    for (size_t i = 0; i < level->kind->n_options; i++) {
        char value[TALLY__MAX_OPTION_VALUE];

        if (level->values[i] == plain.values[i]) {
            continue;
        }
        tally__option_write(&level->kind->options[i], level->values[i], value);
        add_to_name(name, mark);
        add_to_name(name, level->kind->options[i].name);
        add_to_name(name, "=");
        add_to_name(name, value);
        mark = ",";
    }
    return TALLY_OK;
}

static int name_level(const struct level *level, const tally_hook *inner, struct name *name)
{
    *name = (struct name){.length = 0};
    add_to_name(name, level->kind->name);
    TRY(add_options(name, level));
    if (inner && strcmp(inner->table.name, PLAIN) != 0) {
        add_to_name(name, "(");
        add_to_name(name, inner->table.name);
        add_to_name(name, ")");
    }
    return name->too_long ? fail_too_long(name->text) : TALLY_OK;
}

static int make_level(const struct level *level, tally_hook *inner, tally_hook **hook)
{
    struct name name;
    int rc;

    TRY(name_level(level, inner, &name));
    rc = level->kind->make(name.text, level->values, inner, hook);
    return rc == TALLY_ARG ? tally__fail(rc, "hook '%s': %s", name.text, tally_last_error()) : rc;
}

/* From the inside out, around made, whose hold passes to the chain; NULL for none. */
static int make_chain(const struct chain *chain, tally_hook *made, tally_hook **hook)
{
    for (size_t k = chain->n; k-- > 0;) {
        tally_hook *outer = NULL;
        int rc = make_level(&chain->level[k], made, &outer);

        tally_hook_free(made);
        TRY(rc);
        made = outer;
    }
    *hook = made;
    return TALLY_OK;
}

static int check_arguments(const char *function, const char *text, tally_hook *const *hook)
{
    if (!text || !hook) {
        return tally__fail(TALLY_ARG, "%s: %s is NULL", function, text ? "hook" : "text");
    }
    return strlen(text) > TALLY__MAX_HOOK_TEXT ? fail_too_long(text) : TALLY_OK;
}

int tally__hook_parse_in(const struct tally__hook_kind *const *kinds, size_t n_kinds,
                         const char *text, tally_hook **hook)
{
    const struct kinds all = {kinds, n_kinds};
    struct tally__scan scan = {.text = text};
    struct tally__scan plain = {.text = PLAIN};
    struct chain chain;

    TRY(check_arguments("tally_hook_parse", text, hook));
    TRY(read_chain(&scan, &all, &chain));
    if (chain.level[chain.n - 1].kind->wraps) {
        TRY(read_name(&plain, &all, &chain.level[chain.n++]));
    }
    return make_chain(&chain, NULL, hook);
}

int tally__hook_wrap_in(const struct tally__hook_kind *const *kinds, size_t n_kinds,
                        const char *text, tally_hook *inner, tally_hook **hook)
{
    const struct kinds all = {kinds, n_kinds};
    struct tally__scan scan = {.text = text};
    struct chain chain = {.n = 1};
    struct level *level = &chain.level[0];

    TRY(check_arguments("tally_hook_wrap", text, hook));
    if (!inner) {
        return tally__fail(TALLY_ARG, "tally_hook_wrap: inner is NULL");
    }
    TRY(read_level(&scan, &all, level));
    if (!level->kind->wraps) {
        return FAIL_AT(&scan, level->at, "%s is no wrapper; wrappers are %s", level->kind->name,
                       names_of(&all, true).text);
    }
    TRY(read_end(&scan, &chain, false));
    tally__hook_hold(inner);
    return make_chain(&chain, inner, hook);
}

int tally_hook_parse(const char *text, tally_hook **hook)
{
    return tally__hook_parse_in(tally__hook_kinds, tally__n_hook_kinds, text, hook);
}

int tally_hook_wrap(const char *text, tally_hook *inner, tally_hook **hook)
{
    return tally__hook_wrap_in(tally__hook_kinds, tally__n_hook_kinds, text, inner, hook);
}
