/* SPDX-License-Identifier: Apache-2.0 */
/* First fit over a sorted array: allocations are few and large. The caller holds a lock. */
#include "comm/shm/extents.h"

#include <assert.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static int make_room(struct tally__extents *extents)
{
    size_t capacity = extents->capacity ? 2 * extents->capacity : 16;
    struct tally__extent *larger;

    if (extents->n < extents->capacity) {
        return TALLY_OK;
    }
    larger = tally__alloc_array(capacity, sizeof *larger, "the list of group memory");
    if (!larger) {
        return TALLY_NOMEM;
    }
    if (extents->n > 0) {
        memcpy(larger, extents->used, extents->n * sizeof *larger);
    }
    tally__free(extents->used);
    extents->used = larger;
    extents->capacity = capacity;
    return TALLY_OK;
}

int tally__extents_take(struct tally__extents *extents, uint64_t bytes, uint64_t align,
                        uint64_t *offset)
{
    uint64_t start = 0;
    size_t i_new;

    assert(bytes > 0 && align > 0);
    TRY(make_room(extents));
    for (i_new = 0; i_new < extents->n; i_new++) {
        const struct tally__extent *next = &extents->used[i_new];

        if (start <= next->offset && next->offset - start >= bytes) {
            break;
        }
        start = (next->offset + next->bytes + align - 1) / align * align;
    }
    if (start > extents->limit || extents->limit - start < bytes) {
        return tally__fail(TALLY_NOMEM, "%llu bytes of group memory are more than this machine has",
                           (unsigned long long)bytes);
    }
    assert(i_new == extents->n || start + bytes <= extents->used[i_new].offset);
    assert(extents->n < extents->capacity);
    memmove(extents->used + i_new + 1, extents->used + i_new,
            (extents->n - i_new) * sizeof *extents->used);
    extents->used[i_new] = (struct tally__extent){.offset = start, .bytes = bytes};
    extents->n++;
    *offset = start;
    return TALLY_OK;
}

bool tally__extents_has(const struct tally__extents *extents, uint64_t offset)
{
    for (size_t i = 0; i < extents->n; i++) {
        if (extents->used[i].offset == offset) {
            return true;
        }
    }
    return false;
}

uint64_t tally__extents_give(struct tally__extents *extents, uint64_t offset)
{
    for (size_t i = 0; i < extents->n; i++) {
        uint64_t bytes = extents->used[i].bytes;

        if (extents->used[i].offset == offset) {
            extents->n--;
            memmove(extents->used + i, extents->used + i + 1,
                    (extents->n - i) * sizeof *extents->used);
            return bytes;
        }
    }
    return 0;
}

static struct tally__extent *find(const struct tally__extents *extents, uint64_t offset)
{
    for (size_t i = 0; i < extents->n; i++) {
        if (offset - extents->used[i].offset < extents->used[i].bytes) {
            return &extents->used[i];
        }
    }
    return NULL;
}

void tally__extents_mark(struct tally__extents *extents, uint64_t offset)
{
    struct tally__extent *extent = find(extents, offset);

    if (extent) {
        extent->is_marked = true;
    }
}

bool tally__extents_is_marked(const struct tally__extents *extents, uint64_t offset, uint64_t bytes)
{
    const struct tally__extent *extent = find(extents, offset);

    return extent && extent->is_marked && bytes <= extent->bytes - (offset - extent->offset);
}
