/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges in use of a rank's file: first fit, by pages. Not thread-safe. */
#ifndef TALLY_COMM_EXTENTS_H
#define TALLY_COMM_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally__extent {
    uint64_t offset;
    uint64_t bytes;
    bool is_marked;
};

struct tally__extents {
    struct tally__extent *used; /* sorted by offset */
    size_t n;
    size_t capacity;
    uint64_t limit;
};

/* Finds bytes (a multiple of the page) aligned to align and marks them used. Errors: NOMEM. */
int tally__extents_take(struct tally__extents *extents, uint64_t bytes, uint64_t align,
                        uint64_t *offset);

/* Whether an extent starts at offset. */
bool tally__extents_has(const struct tally__extents *extents, uint64_t offset);

/* Removes the extent that starts at offset; returns its bytes, 0 when there is none. */
uint64_t tally__extents_give(struct tally__extents *extents, uint64_t offset);

/* Marks the extent that contains offset, until it is removed; whether a range lies in a marked
 * extent. */
void tally__extents_mark(struct tally__extents *extents, uint64_t offset);
bool tally__extents_is_marked(const struct tally__extents *extents, uint64_t offset,
                              uint64_t bytes);

#endif
