/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of a command, given its table. One thread; no state. */
#include "tools/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/lists.h"

#define SECONDS_MAX 1e8

static const char *dashes(const struct option *option)
{
    return option->name[1] == '\0' ? "-" : "--";
}

static void print_help(const struct option_set *set)
{
    printf("%s: %s\n\n", set->command, set->summary);
    if (!strstr(set->summary, "usage: ")) {
        printf("usage: %s [OPTION...]\n\n", set->command);
    }
    for (size_t i = 0; i < set->n; i++) {
        const struct option *option = &set->options[i];
        char left[40];

        (void)snprintf(left, sizeof left, "%s%s %s", dashes(option), option->name,
                       option->value_name ? option->value_name : "");
        printf("  %-22s %s\n", left, option->help);
    }
    printf("  %-22s %s\n\nExample: %s\n", "--help", "show this text", set->example);
}

static void reject_word(const struct option_set *set, const char *word)
{
    (void)fprintf(stderr, "%s: unknown option '%s'; accepted:", set->command, word);
    for (size_t i = 0; i < set->n; i++) {
        (void)fprintf(stderr, " %s%s", dashes(&set->options[i]), set->options[i].name);
    }
    (void)fprintf(stderr, " --help\n");
}

static bool parse_bytes(const char *text, size_t *bytes)
{
    return size_read(&text, bytes) && *text == '\0';
}

static bool parse_count(const char *text, struct option_count *count)
{
    char *end;
    unsigned long long value;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < count->min || value > count->max) {
        return false;
    }
    count->value = (size_t)value;
    return true;
}

static bool parse_seconds(const char *text, double *seconds)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value > 0) || value > SECONDS_MAX) {
        return false;
    }
    *seconds = value;
    return true;
}

static bool add_text(const char *text, struct option_texts *texts)
{
    if (texts->n == OPTION_MAX_TEXTS) {
        return false;
    }
    texts->values[texts->n++] = text;
    return true;
}

/* Stores the value of an option; false, without a message, if it is not acceptable. */
static bool parse_value(const struct option *option, const char *value)
{
    switch (option->kind) {
    case OPTION_FLAG:
        return false;
    case OPTION_TEXT:
        *(const char **)option->target = value;
        return true;
    case OPTION_TEXTS:
        return add_text(value, option->target);
    case OPTION_BYTES:
        return parse_bytes(value, option->target);
    case OPTION_COUNT:
        return parse_count(value, option->target);
    case OPTION_SECONDS:
        return parse_seconds(value, option->target);
    }
    return false;
}

static void reject_value(const struct option_set *set, const struct option *option,
                         const char *value)
{
    (void)fprintf(stderr, "%s: %s%s %s is ", set->command, dashes(option), option->name, value);
    if (option->kind == OPTION_COUNT) {
        const struct option_count *count = option->target;

        (void)fprintf(stderr, "not accepted; use a whole number from %zu to %zu\n", count->min,
                      count->max);
    } else if (option->kind == OPTION_TEXTS) {
        (void)fprintf(stderr, "one too many; at most %d are accepted\n", OPTION_MAX_TEXTS);
    } else if (option->kind == OPTION_SECONDS) {
        (void)fprintf(stderr, "not a time; use seconds above 0, at most %.0f\n", SECONDS_MAX);
    } else {
        (void)fprintf(stderr,
                      "not a size; use a whole number from 1, with an optional suffix Ki, Mi "
                      "or Gi\n");
    }
}

static bool store_value(const struct option_set *set, const struct option *option,
                        const char *value)
{
    if (option->kind == OPTION_FLAG) {
        if (value) {
            (void)fprintf(stderr, "%s: %s%s takes no value\n", set->command, dashes(option),
                          option->name);
            return false;
        }
        *(bool *)option->target = true;
        return true;
    }
    if (!value || value[0] == '\0') {
        (void)fprintf(stderr, "%s: %s%s needs a value: %s\n", set->command, dashes(option),
                      option->name, option->value_name);
        return false;
    }
    if (!parse_value(option, value)) {
        reject_value(set, option, value);
        return false;
    }
    return true;
}

/* Whether word is the option; *attached is the value that is part of the word, or NULL. */
static bool is_asked(const struct option *option, const char *word, const char **attached)
{
    const char *dash = dashes(option);
    size_t length = strlen(dash);
    const char *behind;

    if (strncmp(word, dash, length) != 0 ||
        strncmp(word + length, option->name, strlen(option->name)) != 0) {
        return false;
    }
    behind = word + length + strlen(option->name);
    if (*behind == '\0') {
        *attached = NULL;
        return true;
    }
    if (*behind == '=') {
        *attached = behind + 1;
        return true;
    }
    *attached = behind;
    return length == 1;
}

/* Returns the option that word names, or NULL. */
static const struct option *find_option(const struct option_set *set, const char *word,
                                        const char **attached)
{
    for (size_t i = 0; i < set->n; i++) {
        if (is_asked(&set->options[i], word, attached)) {
            return &set->options[i];
        }
    }
    return NULL;
}

/* Reads the option in argv[*next] and its value, and moves *next past them. */
static enum option_result read_one(const struct option_set *set, char **argv, int *next)
{
    const char *word = argv[(*next)++];
    const char *value;
    const struct option *option;

    if (strcmp(word, "--help") == 0) {
        print_help(set);
        return OPTIONS_HELP;
    }
    option = find_option(set, word, &value);
    if (!option) {
        reject_word(set, word);
        return OPTIONS_BAD;
    }
    /* After the last word comes NULL, which store_value reports as a missing value. */
    if (!value && option->kind != OPTION_FLAG) {
        value = argv[*next];
        *next += value != NULL;
    }
    return store_value(set, option, value) ? OPTIONS_OK : OPTIONS_BAD;
}

enum option_result options_read(const struct option_set *set, int argc, char **argv)
{
    enum option_result result = OPTIONS_OK;

    for (int next = 1; next < argc && result == OPTIONS_OK;) {
        result = read_one(set, argv, &next);
    }
    return result;
}

enum option_result options_read_before(const struct option_set *set, int argc, char **argv,
                                       char ***rest)
{
    int next = 1;

    while (next < argc && argv[next][0] == '-') {
        enum option_result result;

        if (strcmp(argv[next], "--") == 0) {
            next++;
            break;
        }
        result = read_one(set, argv, &next);
        if (result != OPTIONS_OK) {
            return result;
        }
    }
    *rest = argv + next;
    return OPTIONS_OK;
}

enum option_result options_read_words(const struct option_set *set, int argc, char **argv,
                                      size_t *n)
{
    bool only_words = false;

    *n = 0;
    for (int next = 1; next < argc;) {
        enum option_result result;

        if (only_words || argv[next][0] != '-') {
            argv[(*n)++] = argv[next++];
        } else if (strcmp(argv[next], "--") == 0) {
            only_words = true;
            next++;
        } else {
            result = read_one(set, argv, &next);
            if (result != OPTIONS_OK) {
                return result;
            }
        }
    }
    return OPTIONS_OK;
}

enum option_result options_read_files(const struct option_set *set, int argc, char **argv,
                                      const char *files, size_t *n)
{
    enum option_result result = options_read_words(set, argc, argv, n);

    if (result == OPTIONS_OK && *n == 0) {
        (void)fprintf(stderr, "%s: expected %s; see %s --help\n", set->command, files,
                      set->command);
        return OPTIONS_BAD;
    }
    return result;
}
