/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap. Any thread enters. Stateless.
 */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/room.h"
#include "base/status.h"

/* Blocks of this size and above may exceed free memory, since other ranks may allocate at the same
 * time. */
#define LARGE_BYTES ((size_t)64 << 20)
#define N_TAKERS 16

static int clear(void *user, uint64_t offset, uint64_t bytes)
{
    memset((unsigned char *)user + offset, 0, bytes);
    return 0;
}

/* Takes the pages, and leaves their bytes as they are. */
static int touch(void *user, uint64_t offset, uint64_t bytes)
{
    volatile unsigned char *block = (unsigned char *)user + offset;

    for (uint64_t at = 0; at < bytes; at += TALLY__PAGE_BYTES) {
        block[at] = 0;
    }
    return 0;
}

/* take is called for all bytes of a large block, piece by piece. */
static void *alloc(size_t bytes, tally__take_fn *take, const char *what)
{
    size_t align = bytes < TALLY__HUGE_PAGE_BYTES ? TALLY__CACHE_LINE : TALLY__HUGE_PAGE_BYTES;
    size_t rounded = tally__to_cache_line(bytes);
    void *block = NULL;

    if (rounded < bytes ||
        posix_memalign(&block, align, rounded ? rounded : TALLY__CACHE_LINE) != 0) {
        (void)tally__fail(TALLY_NOMEM, "cannot allocate %zu bytes for %s", bytes, what);
        return NULL;
    }
    if (align == TALLY__HUGE_PAGE_BYTES) {
        (void)madvise(block, rounded, MADV_HUGEPAGE); /* fewer TLB misses */
    }
    if (rounded >= LARGE_BYTES &&
        tally__take_memory(rounded, N_TAKERS, take, block, what) != TALLY_OK) {
        free(block);
        return NULL;
    }
    if (rounded < LARGE_BYTES && take == clear) {
        memset(block, 0, rounded);
    }
    return block;
}

void *tally__alloc(size_t bytes, const char *what)
{
    return alloc(bytes, clear, what);
}

void *tally__alloc_unset(size_t bytes, const char *what)
{
    return alloc(bytes, touch, what);
}

void *tally__alloc_array(size_t count, size_t size, const char *what)
{
    if (size != 0 && count > SIZE_MAX / size) {
        (void)tally__fail(TALLY_NOMEM, "cannot allocate %zu times %zu bytes for %s", count, size,
                          what);
        return NULL;
    }
    return tally__alloc(count * size, what);
}

void tally__free(void *block)
{
    free(block);
}
