/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The division of data. A segment is a run of elements that belong together: a parameter. Blocks
 * start at segment starts and have the same length, except the last of a segment; they are never
 * divided. A shard is a run of blocks, one shard per rank; a range is any run of blocks.
 */
#ifndef TALLY_EXCHANGE_LAYOUT_H
#define TALLY_EXCHANGE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

/* Elements per block where the codec needs no blocks: shards then start on cache lines. */
#define TALLY__SHARD_UNIT 64

/* The starts of segments, in elements and in blocks; both arrays have n + 1 entries, the last is
 * the end. Filled by tally__segments_fill. */
struct tally__segments {
    size_t n;
    size_t *start;
    size_t *first_block;
    const bool
        *raw; /* n entries, or NULL: segments that a byte codec sends as numbers. Their blocks are a
                 quarter as long, so that all blocks take about the same room on the wire. */
};

struct tally__layout {
    size_t n; /* elements */
    size_t block;
    const struct tally__segments *segments; /* NULL: all data is one segment */
    const size_t *shard_starts; /* the first element of each rank's shard, and the end; NULL: all
                          alike. With blocks of one element. */
};

struct tally__range {
    size_t first_block;
    size_t n_blocks;
    size_t start; /* in elements */
    size_t n;
};

/* Fills first_block from start, for blocks of block elements. */
void tally__segments_fill(struct tally__segments *segments, size_t block);

size_t tally__layout_blocks(const struct tally__layout *layout);

/* The number of blocks of n elements. */
size_t tally__blocks_in(size_t n, size_t block);

/* The segment that holds an element. */
size_t tally__segment_at(const struct tally__segments *segments, size_t element);

struct tally__range tally__range_of(const struct tally__layout *layout, size_t first_block,
                                    size_t n_blocks);

/* The blocks that rank owns: shards differ by one block at most, unless shard_starts is set. */
struct tally__range tally__shard_of(const struct tally__layout *layout, int size, int rank);

#endif
