/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a text into limited room, and counts the bytes that did not fit; writes lists in messages.
 * Keeps no state. */
#include "base/sheet.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void tally__sheet_put(struct tally__sheet *sheet, const char *format, ...)
{
    bool fits = sheet->n < sheet->room;
    va_list arguments;
    int n;

    va_start(arguments, format);
    n = vsnprintf(fits ? sheet->text + sheet->n : NULL, fits ? sheet->room - sheet->n : 0, format,
                  arguments);
    va_end(arguments);
    sheet->n += n > 0 ? (size_t)n : 0;
}

void tally__list_add(char *list, size_t room, const char *format, ...)
{
    static const char more[] = ", ...";
    size_t used = strlen(list);
    char entry[256];
    va_list arguments;
    bool fits;

    if (used >= strlen(more) && strcmp(list + used - strlen(more), more) == 0) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(entry, sizeof entry, format, arguments);
    va_end(arguments);
    fits = used + strlen(", ") + strlen(entry) + sizeof more <= room;
    (void)snprintf(list + used, room - used, "%s%s", used > 0 ? ", " : "", fits ? entry : "...");
}
