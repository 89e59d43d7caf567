/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lists. One thread; no state. */
#include "tools/lists.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RANGE_FACTOR 4

bool size_read(const char **text, size_t *size)
{
    static const char units[] = "KMG";
    unsigned shift = 0;
    const char *unit;
    char *end;
    unsigned long long count;

    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    errno = 0;
    count = strtoull(*text, &end, 10);
    unit = *end ? strchr(units, *end) : NULL;
    if (unit && end[1] == 'i') {
        shift = 10 * (unsigned)(unit - units + 1);
        end += 2;
    }
    if (errno != 0 || count == 0 || count > (SIZE_MAX >> shift)) {
        return false;
    }
    *size = (size_t)count << shift;
    *text = end;
    return true;
}

static bool append(struct size_list *list, size_t value)
{
    if (list->n == LIST_MAX) {
        return false;
    }
    list->values[list->n++] = value;
    return true;
}

/* Reads one item: a size or a range. */
static bool read_item(const char **text, struct size_list *list)
{
    size_t from;
    size_t to;

    if (!size_read(text, &from)) {
        return false;
    }
    if (strncmp(*text, "..", 2) != 0) {
        return append(list, from);
    }
    *text += 2;
    if (!size_read(text, &to) || to < from) {
        return false;
    }
    for (size_t size = from; size < to; size *= RANGE_FACTOR) {
        if (!append(list, size)) {
            return false;
        }
        if (size > to / RANGE_FACTOR) {
            break;
        }
    }
    return append(list, to);
}

bool size_list_read(const char *text, struct size_list *list)
{
    list->n = 0;
    while (read_item(&text, list)) {
        if (*text == '\0') {
            return true;
        }
        if (*text++ != ',') {
            return false;
        }
    }
    return false;
}

bool real_list_read(const char *text, double least, double most, struct real_list *list)
{
    list->n = 0;
    while (list->n < LIST_MAX && isdigit((unsigned char)*text)) {
        char *end;
        double value = strtod(text, &end);

        if (!(value >= least) || value > most || memchr(text, 'x', (size_t)(end - text))) {
            return false;
        }
        list->values[list->n++] = value;
        if (*end == '\0') {
            return true;
        }
        text = end + 1;
        if (*end != ',') {
            return false;
        }
    }
    return false;
}

bool name_list_read(const char *text, const char *const *names, size_t n, bool *chosen,
                    const char **unknown, int *length)
{
    for (;;) {
        size_t here = strcspn(text, ",");
        bool known = false;

        for (size_t i = 0; i < n; i++) {
            if (strlen(names[i]) == here && memcmp(names[i], text, here) == 0) {
                chosen[i] = true;
                known = true;
            }
        }
        if (!known) {
            *unknown = text;
            *length = (int)here;
            return false;
        }
        if (text[here] == '\0') {
            return true;
        }
        text += here + 1;
    }
}

static bool read_whole(const char **text, uint64_t *value)
{
    char *end;

    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    errno = 0;
    *value = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

bool range_read(const char *text, uint64_t *first, uint64_t *last)
{
    if (!read_whole(&text, first)) {
        return false;
    }
    *last = *first;
    if (strncmp(text, "..", 2) == 0) {
        text += 2;
        if (!read_whole(&text, last)) {
            return false;
        }
    }
    return *text == '\0' && *first <= *last;
}
