/* SPDX-License-Identifier: Apache-2.0 */
/* Options that take several values in one word: "2,4,8", "1Ki..128Mi", "4Ki,64Ki". */
#ifndef TALLY_TOOLS_LISTS_H
#define TALLY_TOOLS_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a whole number from 1 on, with an optional suffix Ki, Mi or Gi, and moves *text past it.
 * False if there is none. */
bool size_read(const char **text, size_t *size);

#define LIST_MAX 64

struct size_list {
    size_t values[LIST_MAX];
    size_t n;
};

/*
 * Reads sizes, as size_read does, separated by commas. A..B stands for A, 4A, 16A, ... up to B, and
 * B itself. False if the text is anything else or has more
 * than LIST_MAX values.
 */
bool size_list_read(const char *text, struct size_list *list);

struct real_list {
    double values[LIST_MAX];
    size_t n;
};

/* Reads numbers from least to most, separated by commas, such as "0.1,1,10"; least is above 0.
 * False if the text is anything else or has more than LIST_MAX values. */
bool real_list_read(const char *text, double least, double most, struct real_list *list);

/* Reads a range "A..B" of whole numbers, or one number as A and B. False if B is below A, or if the
 * text is anything else. */
bool range_read(const char *text, uint64_t *first, uint64_t *last);

/*
 * Reads names separated by commas: sets chosen[i] for each names[i] that occurs. False if a name is
 * unknown or empty; *unknown then points to it, and *length is its length.
 */
bool name_list_read(const char *text, const char *const *names, size_t n, bool *chosen,
                    const char **unknown, int *length);

#endif
