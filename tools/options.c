/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of a command from its table. One thread; keeps no state. */
#include "tools/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const struct option_set *set)
{
    printf("%s: %s\n\n", set->command, set->summary);
    for (size_t i = 0; i < set->n; i++) {
        const struct option *option = &set->options[i];
        char left[40];

        (void)snprintf(left, sizeof left, "--%s %s", option->name,
                       option->value_name ? option->value_name : "");
        printf("  %-22s %s\n", left, option->help);
    }
    printf("  %-22s %s\n\nExample: %s\n", "--help", "show this text", set->example);
}

static void reject_word(const struct option_set *set, const char *word)
{
    (void)fprintf(stderr, "%s: unknown option '%s'; accepted:", set->command, word);
    for (size_t i = 0; i < set->n; i++) {
        (void)fprintf(stderr, " --%s", set->options[i].name);
    }
    (void)fprintf(stderr, " --help\n");
}

static bool parse_bytes(const char *text, size_t *bytes)
{
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0}, {"Ki", 10}, {"Mi", 20}, {"Gi", 30}};
    char *end;
    unsigned long long count;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    count = strtoull(text, &end, 10);
    if (errno != 0 || count == 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].suffix) == 0 && count <= (SIZE_MAX >> units[i].shift)) {
            *bytes = (size_t)count << units[i].shift;
            return true;
        }
    }
    return false;
}

static bool store_value(const struct option_set *set, const struct option *option,
                        const char *value)
{
    if (!value || value[0] == '\0') {
        (void)fprintf(stderr, "%s: --%s needs a value: %s\n", set->command, option->name,
                      option->value_name);
        return false;
    }
    if (option->kind == OPTION_TEXT) {
        *(const char **)option->target = value;
        return true;
    }
    if (!parse_bytes(value, option->target)) {
        (void)fprintf(stderr,
                      "%s: --%s %s is not a size; use a whole number from 1, with Ki, Mi or Gi "
                      "behind it if you like\n",
                      set->command, option->name, value);
        return false;
    }
    return true;
}

/* The option that word ("--name" or "--name=value") asks for, or NULL. */
static const struct option *find_option(const struct option_set *set, const char *word)
{
    size_t length;

    if (strncmp(word, "--", 2) != 0) {
        return NULL;
    }
    length = strcspn(word + 2, "=");
    for (size_t i = 0; i < set->n; i++) {
        if (strlen(set->options[i].name) == length &&
            memcmp(set->options[i].name, word + 2, length) == 0) {
            return &set->options[i];
        }
    }
    return NULL;
}

enum option_result options_read(const struct option_set *set, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct option *option = find_option(set, argv[i]);
        const char *equals = strchr(argv[i], '=');

        if (strcmp(argv[i], "--help") == 0) {
            print_help(set);
            return OPTIONS_HELP;
        }
        if (!option) {
            reject_word(set, argv[i]);
            return OPTIONS_BAD;
        }
        if (option->kind == OPTION_FLAG) {
            if (equals) {
                (void)fprintf(stderr, "%s: --%s takes no value\n", set->command, option->name);
                return OPTIONS_BAD;
            }
            *(bool *)option->target = true;
            continue;
        }
        /* argv[argc] is NULL, which store_value reports as a missing value. */
        if (!store_value(set, option, equals ? equals + 1 : argv[++i])) {
            return OPTIONS_BAD;
        }
    }
    return OPTIONS_OK;
}
