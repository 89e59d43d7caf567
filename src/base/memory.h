/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door to the heap. No other file of the library calls malloc or free, so that the tests
 * can put a counting and failing door in its place: they link a file of their own that defines the
 * same functions, and the archive's memory.o stays out.
 */
#ifndef TALLY_BASE_MEMORY_H
#define TALLY_BASE_MEMORY_H

#include <stddef.h>

/* Every block starts on a cache line, which is also the widest vector. */
#define TALLY__CACHE_LINE 64

/*
 * bytes of zeroed memory, aligned to a cache line; a block of 0 bytes is valid. NULL when there is
 * none: the thread's error text then says how much was wanted for what, and the caller returns
 * TALLY_NOMEM.
 */
void *tally__alloc(size_t bytes, const char *what);

/* The same for an array: also NULL when count * size does not fit in a size_t. */
void *tally__alloc_array(size_t count, size_t size, const char *what);

/* Gives a block back. NULL is accepted. */
void tally__free(void *block);

#endif
