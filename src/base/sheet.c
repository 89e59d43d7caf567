/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a text into limited room, and counts the bytes that did not fit. Keeps no state. */
#include "base/sheet.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

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
