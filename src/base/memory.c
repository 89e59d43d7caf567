/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heap behind the door of memory.h. Any thread enters. Keeps no state.
 */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void *tally__alloc(size_t bytes, const char *what)
{
    size_t rounded = (bytes + TALLY__CACHE_LINE - 1) / TALLY__CACHE_LINE * TALLY__CACHE_LINE;
    void *block = NULL;

    if (rounded >= bytes) {
        block = aligned_alloc(TALLY__CACHE_LINE, rounded ? rounded : TALLY__CACHE_LINE);
    }
    if (!block) {
        (void)tally__fail(TALLY_NOMEM, "cannot allocate %zu bytes for %s", bytes, what);
        return NULL;
    }
    memset(block, 0, rounded);
    return block;
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
