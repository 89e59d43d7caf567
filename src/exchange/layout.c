/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, segments and shards: arithmetic on sizes, no data. Stateless. */
#include "exchange/layout.h"

#include <assert.h>

size_t tally__blocks_in(size_t n, size_t block)
{
    return n / block + (n % block != 0);
}

/* Elements of a whole block of this segment. */
static size_t block_length(const struct tally__segments *segments, size_t segment, size_t block)
{
    return segments && segments->raw && segments->raw[segment] ? block / 4 : block;
}

void tally__segments_fill(struct tally__segments *segments, size_t block)
{
    size_t first = 0;

    assert(block > 0);
    for (size_t s = 0; s < segments->n; s++) {
        assert(segments->start[s] <= segments->start[s + 1]);
        segments->first_block[s] = first;
        first += tally__blocks_in(segments->start[s + 1] - segments->start[s],
                                  block_length(segments, s, block));
    }
    segments->first_block[segments->n] = first;
}

size_t tally__layout_blocks(const struct tally__layout *layout)
{
    return layout->segments ? layout->segments->first_block[layout->segments->n]
                            : tally__blocks_in(layout->n, layout->block);
}

/* The last of n entries that is at most value; empty segments before it start there too. */
static size_t last_up_to(const size_t *first, size_t n, size_t value)
{
    size_t low = 0;
    size_t high = n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (first[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t tally__segment_at(const struct tally__segments *segments, size_t element)
{
    return last_up_to(segments->start, segments->n, element);
}

/* The first element of a block; of the block after the last, the end. */
static size_t block_start(const struct tally__layout *layout, size_t block)
{
    const struct tally__segments *segments = layout->segments;
    size_t segment;

    if (!segments) {
        /* The product may exceed size_t where the last block is not whole. */
        return block >= tally__blocks_in(layout->n, layout->block) ? layout->n
                                                                   : block * layout->block;
    }
    if (block >= segments->first_block[segments->n]) {
        return layout->n;
    }
    segment = last_up_to(segments->first_block, segments->n, block);
    return segments->start[segment] + (block - segments->first_block[segment]) *
                                          block_length(segments, segment, layout->block);
}

struct tally__range tally__range_of(const struct tally__layout *layout, size_t first_block,
                                    size_t n_blocks)
{
    size_t start = block_start(layout, first_block);

    assert(first_block + n_blocks <= tally__layout_blocks(layout));
    return (struct tally__range){
        .first_block = first_block,
        .n_blocks = n_blocks,
        .start = start,
        .n = block_start(layout, first_block + n_blocks) - start,
    };
}

struct tally__range tally__shard_of(const struct tally__layout *layout, int size, int rank)
{
    size_t n_blocks = tally__layout_blocks(layout);
    size_t share = n_blocks / (size_t)size;
    size_t rest = n_blocks % (size_t)size;
    size_t r = (size_t)rank;
    size_t first = share * r + rest * r / (size_t)size;
    size_t end = share * (r + 1) + rest * (r + 1) / (size_t)size;

    assert(rank >= 0 && rank < size);
    if (layout->shard_starts) {
        first = layout->shard_starts[r];
        end = layout->shard_starts[r + 1];
    }
    assert(first <= end && end <= n_blocks);
    return tally__range_of(layout, first, end - first);
}
