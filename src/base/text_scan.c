/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a text from left to right: words, marks, blanks. Does not know their meaning. Letters and
 * digits are ASCII in every locale. Also lists for messages. Any thread enters.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

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

void tally__scan_word(struct tally__scan *scan, struct tally__word *word)
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

bool tally__scan_is_over(struct tally__scan *scan)
{
    skip_blanks(scan);
    return scan->text[scan->at] == '\0';
}

void tally__quote(char *quoted, size_t bytes, const char *text)
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

void tally__list_add(struct tally__list *list, const char *name)
{
    size_t length = strlen(list->text);

    (void)snprintf(list->text + length, sizeof list->text - length, "%s%s", length ? ", " : "",
                   name);
}
