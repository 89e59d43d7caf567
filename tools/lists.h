/* SPDX-License-Identifier: Apache-2.0 */
/* Options with several values in one word: "2,4,8", "1Ki..128Mi", "4Ki,64Ki". */
#ifndef TALLY_TOOLS_LISTS_H
#define TALLY_TOOLS_LISTS_H

#include <stdbool.h>
#include <stddef.h>

#define LIST_MAX 64

struct size_list {
    size_t values[LIST_MAX];
    size_t n;
};

/*
 * Whole numbers from 1, with Ki, Mi or Gi behind them if you like, separated by commas. A..B stands
 * for A, 4A, 16A, ... up to B, and B itself. False when the text is anything else, or more than
 * LIST_MAX values.
 */
bool size_list_read(const char *text, struct size_list *list);

/*
 * Names separated by commas: sets chosen[i] for each names[i] that occurs. False, with the length
 * of the first unknown one from *unknown on, when there is one; an empty name is unknown too.
 */
bool name_list_read(const char *text, const char *const *names, size_t n, bool *chosen,
                    const char **unknown, int *length);

#endif
