/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows as it is written. One thread at a time enters with a text. */
#include "state/growing_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Makes room for n bytes and a NUL. */
static bool reserve(struct tally__growing *growing, size_t n)
{
    size_t room = growing->room ? growing->room : 256;
    char *text;

    if (growing->is_lost || growing->n + n < growing->room) {
        return !growing->is_lost;
    }
    while (room <= growing->n + n) {
        room *= 2;
    }
    text = tally__alloc(room, "a text");
    if (!text) {
        growing->is_lost = true;
        return false;
    }
    if (growing->text) {
        memcpy(text, growing->text, growing->n);
    }
    tally__free(growing->text);
    growing->text = text;
    growing->room = room;
    return true;
}

void tally__grow_bytes(struct tally__growing *growing, const char *bytes, size_t n)
{
    if (reserve(growing, n)) {
        memcpy(growing->text + growing->n, bytes, n);
        growing->n += n;
        growing->text[growing->n] = '\0';
    }
}

void tally__grow(struct tally__growing *growing, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0 && reserve(growing, (size_t)n)) {
        va_start(args, format);
        (void)vsnprintf(growing->text + growing->n, (size_t)n + 1, format, args);
        va_end(args);
        growing->n += (size_t)n;
    }
}

void tally__grow_free(struct tally__growing *growing)
{
    tally__free(growing->text);
    *growing = (struct tally__growing){0};
}
