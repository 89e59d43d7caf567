/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is written piece by piece into limited room, and lists in messages. Any thread, one
 * at a time per text. */
#ifndef TALLY_BASE_SHEET_H
#define TALLY_BASE_SHEET_H

#include <stddef.h>

struct tally__sheet {
    char *text;
    size_t room;
    size_t n; /* bytes written, and those that did not fit */
};

/* Adds to the text as printf does. */
void tally__sheet_put(struct tally__sheet *sheet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds an entry to a list: "a, b". A list without room for another entry ends with ", ...". */
void tally__list_add(char *list, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
