/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows as it is written. */
#ifndef TALLY_STATE_GROWING_TEXT_H
#define TALLY_STATE_GROWING_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Starts zeroed. Once memory has run out, is_lost is set, with the thread's error text, and
 * nothing more is added. */
struct tally__growing {
    char *text; /* ends in NUL; NULL while it is empty */
    size_t n;
    size_t room;
    bool is_lost;
};

void tally__grow(struct tally__growing *growing, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tally__grow_bytes(struct tally__growing *growing, const char *bytes, size_t n);
void tally__grow_free(struct tally__growing *growing);

#endif
