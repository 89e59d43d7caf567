/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and describes the environment variables of env_list.h. Stateless. Any thread enters, as
 * long as no thread changes the environment meanwhile.
 */
#include "base/env.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "base/text.h"

struct env_entry;

union env_value {
    struct {
        int index;
        const char *word;
    } choice;
    int count;
    double seconds;
    const char *text;
};

/* Reads text as one kind of value; the fallback of an entry always passes. */
typedef int env_parse(const struct env_entry *entry, const char *text, union env_value *value);

struct env_entry {
    const char *name;
    env_parse *parse;
    const char *accepts;
    const char *fallback;
    const char *help;
};

static int reject(const struct env_entry *entry, const char *text)
{
    return tally__fail(TALLY_ARG, "%s=%s is not accepted: use %s", entry->name, text,
                       entry->accepts);
}

static int parse_CHOICE(const struct env_entry *entry, const char *text, union env_value *value)
{
    size_t index;

    if (!tally__find_word(entry->accepts, text, &index)) {
        return reject(entry, text);
    }
    value->choice.index = (int)index;
    value->choice.word = text;
    return TALLY_OK;
}

static int parse_COUNT(const struct env_entry *entry, const char *text, union env_value *value)
{
    char *end;
    long count;

    errno = 0;
    count = strtol(text, &end, 10);
    if (end == text || *end != '\0' || count < 0) {
        return reject(entry, text);
    }
    if (errno != 0 || count > INT_MAX) {
        return tally__fail(TALLY_ARG, "%s=%s is not accepted: use %s up to %d", entry->name, text,
                           entry->accepts, INT_MAX);
    }
    value->count = (int)count;
    return TALLY_OK;
}

static int parse_SECONDS(const struct env_entry *entry, const char *text, union env_value *value)
{
    /* The program may have a locale whose numbers have a comma. */
    static const struct tally__option real = {.type = TALLY__OPTION_REAL,
                                              .max = TALLY__SECONDS_MAX};
    double seconds;

    if (!tally__option_read(&real, text, &seconds) || !(seconds > 0)) {
        return reject(entry, text);
    }
    value->seconds = seconds;
    return TALLY_OK;
}

static int parse_TEXT(const struct env_entry *entry, const char *text, union env_value *value)
{
    (void)entry;
    value->text = text;
    return TALLY_OK;
}

static const struct env_entry entries[] = {
#define ENV_ENTRY(id, name, kind, accepts, fallback, help) \
    {name, parse_##kind, accepts, fallback, help},
    TALLY__ENV_LIST(ENV_ENTRY)
#undef ENV_ENTRY
};

/* The variable's text, or NULL when it is unset or empty. */
static const char *text_of(const struct env_entry *entry)
{
    const char *text = getenv(entry->name);

    return text && *text != '\0' ? text : NULL;
}

static int parse(enum tally__env_id id, union env_value *value)
{
    const struct env_entry *entry = &entries[id];
    const char *text = text_of(entry);

    return entry->parse(entry, text ? text : entry->fallback, value);
}

bool tally__env_is_set(enum tally__env_id id)
{
    return text_of(&entries[id]) != NULL;
}

int tally__env_choice(enum tally__env_id id, const char **word)
{
    union env_value value;

    TRY(parse(id, &value));
    *word = value.choice.word;
    return TALLY_OK;
}

int tally__env_choice_index(enum tally__env_id id, int *index)
{
    union env_value value;

    TRY(parse(id, &value));
    *index = value.choice.index;
    return TALLY_OK;
}

int tally__env_count(enum tally__env_id id, int *count)
{
    union env_value value;

    TRY(parse(id, &value));
    *count = value.count;
    return TALLY_OK;
}

int tally__env_seconds(enum tally__env_id id, double *seconds)
{
    union env_value value;

    TRY(parse(id, &value));
    *seconds = value.seconds;
    return TALLY_OK;
}

const char *tally__env_text(enum tally__env_id id)
{
    const char *text = text_of(&entries[id]);

    return text ? text : entries[id].fallback;
}

size_t tally_env_count(void)
{
    return TALLY__ENV_COUNT;
}

int tally_env_get(size_t index, tally_env_var *var)
{
    const struct tally__sized *kind = TALLY__SIZED(tally_env_var, value);
    const struct env_entry *entry;
    tally_env_var answer;

    TRY(tally__answer_check(kind, "tally_env_get", var));
    if (index >= TALLY__ENV_COUNT) {
        return tally__fail(TALLY_ARG, "tally_env_get: index %zu is not below %d", index,
                           TALLY__ENV_COUNT);
    }
    entry = &entries[index];
    answer = (tally_env_var){.name = entry->name,
                             .type = entry->accepts,
                             .fallback = entry->fallback,
                             .help = entry->help,
                             .value = text_of(entry)};
    tally__sized_write(kind, &answer, var);
    return TALLY_OK;
}

int tally_env_check(void)
{
    for (int id = 0; id < TALLY__ENV_COUNT; id++) {
        union env_value unused;

        /* Variables of other programs are checked only when they are used. */
        if (tally__env_is_set((enum tally__env_id)id) &&
            strncmp(entries[id].name, "TALLY_", strlen("TALLY_")) == 0) {
            TRY(parse((enum tally__env_id)id, &unused));
        }
    }
    return TALLY_OK;
}
