/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of options: from text to double and back. "0.5" is a half in every locale. Any thread
 * enters.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Above 2^53 not every whole number is a double. */
#define MAX_COUNT (1ull << 53)

/*
 * Sets the C locale for the calling thread, until leave_c_locale. The C locale is built into the C
 * library: selecting it allocates nothing.
 */
static locale_t enter_c_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static void leave_c_locale(locale_t before)
{
    freelocale(uselocale(before));
}

/* The end of the digits at text. */
static const char *behind_digits(const char *text)
{
    return text + strspn(text, "0123456789");
}

/* The number is ["-"] digits ["." digits] ["e" ["+" | "-"] digits]; strtod accepts more. */
static bool is_decimal(const char *text)
{
    const char *start = text + (*text == '-');
    const char *end = behind_digits(start);

    if (end == start) {
        return false;
    }
    if (*end == '.') {
        start = end + 1;
        end = behind_digits(start);
        if (end == start) {
            return false;
        }
    }
    if (*end == 'e' || *end == 'E') {
        start = end + 1;
        start += *start == '+' || *start == '-';
        end = behind_digits(start);
        if (end == start) {
            return false;
        }
    }
    return *end == '\0';
}

static bool read_real(const char *text, double *value)
{
    locale_t before;

    if (!is_decimal(text)) {
        return false;
    }
    before = enter_c_locale();
    /* 0 is written in one way: without a sign. */
    *value = strtod(text, NULL) + 0.0;
    leave_c_locale(before);
    return isfinite(*value);
}

static bool read_count(const char *text, double *value)
{
    unsigned long long count = 0;

    for (const char *digit = text; *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9') {
            return false;
        }
        count = count * 10 + (unsigned)(*digit - '0');
        if (count > MAX_COUNT) {
            return false;
        }
    }
    *value = (double)count;
    return text[0] != '\0';
}

/* The word at an index of a list such as "a|b"; its length is 0 after the end. */
static const char *word_at(const char *list, size_t index, size_t *length)
{
    for (; index > 0 && *list != '\0'; index--) {
        list += strcspn(list, "|");
        list += *list == '|';
    }
    *length = strcspn(list, "|");
    return list;
}

bool tally__find_word(const char *list, const char *text, size_t *index)
{
    size_t length;

    for (*index = 0;; (*index)++) {
        const char *word = word_at(list, *index, &length);

        if (length == 0 || (strlen(text) == length && memcmp(word, text, length) == 0)) {
            return length > 0;
        }
    }
}

bool tally__option_read(const struct tally__option *option, const char *text, double *value)
{
    bool read = false;
    size_t index;

    switch (option->type) {
    case TALLY__OPTION_CHOICE:
        read = tally__find_word(option->accepts, text, &index);
        *value = read ? (double)index : *value;
        return read;
    case TALLY__OPTION_TEXT:
        *value = 0;
        return strcmp(text, option->fallback) == 0;
    case TALLY__OPTION_COUNT:
        read = read_count(text, value);
        break;
    case TALLY__OPTION_REAL:
        read = read_real(text, value);
        break;
    }
    return read && *value >= option->min && *value <= option->max &&
           (option->unit == 0 || fmod(*value, option->unit) == 0);
}

/* Writes the fewest digits, from 15 up, that give the same number when read again. */
static void write_real(double value, char text[TALLY__MAX_OPTION_VALUE])
{
    locale_t before = enter_c_locale();

    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, TALLY__MAX_OPTION_VALUE, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    leave_c_locale(before);
}

void tally__option_write(const struct tally__option *option, double value,
                         char text[TALLY__MAX_OPTION_VALUE])
{
    const char *word;
    size_t length;

    switch (option->type) {
    case TALLY__OPTION_CHOICE:
        word = word_at(option->accepts, (size_t)value, &length);
        (void)snprintf(text, TALLY__MAX_OPTION_VALUE, "%.*s", (int)length, word);
        return;
    case TALLY__OPTION_COUNT:
        (void)snprintf(text, TALLY__MAX_OPTION_VALUE, "%.0f", value);
        return;
    case TALLY__OPTION_REAL:
        write_real(value, text);
        return;
    case TALLY__OPTION_TEXT: /* the setting has it */
        text[0] = '\0';
        return;
    }
}
