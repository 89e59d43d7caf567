/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the heap; no other file of the library calls malloc or free. Tests link a file that
 * defines the same functions, counts and fails; memory.o of the archive then stays out.
 */
#ifndef TALLY_BASE_MEMORY_H
#define TALLY_BASE_MEMORY_H

#include <stddef.h>
#include <string.h>

/* Every block starts on a cache line, which is also the widest vector. */
#define TALLY__CACHE_LINE 64

/* The smallest page of any machine, and a huge page. */
#define TALLY__PAGE_BYTES ((size_t)4096)
#define TALLY__HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Rounds up to whole cache lines. Wraps around near SIZE_MAX. */
static inline size_t tally__to_cache_line(size_t bytes)
{
    return (bytes + TALLY__CACHE_LINE - 1) / TALLY__CACHE_LINE * TALLY__CACHE_LINE;
}

/*
 * Allocates bytes of zeroed memory, aligned to a cache line; a block of 0 bytes is valid. NULL when
 * there is not enough: the error text then says how much was needed for what, and the caller
 * returns TALLY_NOMEM.
 */
void *tally__alloc(size_t bytes, const char *what);

/* As tally__alloc, but the bytes are not zeroed: for a block that is written at once. */
void *tally__alloc_unset(size_t bytes, const char *what);

/* As tally__alloc for an array; also NULL when count * size overflows. */
void *tally__alloc_array(size_t count, size_t size, const char *what);

/* A copy of a text, in memory of tally__alloc. */
static inline char *tally__alloc_text(const char *text, const char *what)
{
    size_t bytes = strlen(text) + 1;
    char *copy = tally__alloc(bytes, what);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* Frees a block. NULL is accepted. */
void tally__free(void *block);

#endif
