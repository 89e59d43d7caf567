/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs that travel as bytes: per block of elements a map (scale and zero point, or a scale
 * alone), then the bytes. On the wire all maps of a range come first, then all its bytes. The owner
 * works block by block, so that a block's sum stays in the nearest cache. Keep no state.
 */
#include "exchange/codec.h"
#include "num/num.h"

/* A run of whole blocks within one segment: what a kernel can take in one call. */
struct run {
    size_t block; /* first one, counted from the range's */
    size_t start; /* first element, likewise */
    size_t n;
};

/* The next run of the range from block on; false at its end. */
static bool next_run(const struct tally__codec *codec, const struct tally__range *range,
                     struct run *run)
{
    size_t done = run->start + run->n;
    size_t block = range->first_block + run->block + (run->n + codec->block - 1) / codec->block;
    size_t end = range->n;

    if (done == range->n) {
        return false;
    }
    if (codec->segments) {
        size_t segment = tally__segment_of(codec->segments, block);
        size_t segment_end = codec->segments->start[segment + 1] - range->start;

        end = segment_end < end ? segment_end : end;
    }
    *run = (struct run){block - range->first_block, done, end - done};
    return true;
}

/* Divides the sum of one block: the kernel that adds is also the one that divides. */
static void divide(size_t n, float *sum, double divisor)
{
    const float *in = sum;

    tally__sum_f32(n, 1, &in, (float)divisor, 1, &sum);
}

/* ---- affine: scale and zero point ---- */

static size_t affine_wire_bytes(const struct tally__codec *codec, size_t n_blocks, size_t n)
{
    (void)codec;
    return n_blocks * sizeof(struct tally__affine) + n;
}

static void affine_encode(const struct tally__codec *codec, const struct tally__range *range,
                          const void *data, void *wire)
{
    const float *x = (const float *)data + range->start;
    struct tally__affine *map = wire;
    uint8_t *q = (uint8_t *)(map + range->n_blocks);

    for (struct run run = {0}; next_run(codec, range, &run);) {
        tally__affine_encode_blocks(run.n, x + run.start, codec->block, map + run.block,
                                    q + run.start);
    }
}

static void affine_decode(const struct tally__codec *codec, const struct tally__range *range,
                          const void *wire, void *data)
{
    float *y = (float *)data + range->start;
    const struct tally__affine *map = wire;
    const uint8_t *q = (const uint8_t *)(map + range->n_blocks);

    for (struct run run = {0}; next_run(codec, range, &run);) {
        tally__affine_decode_blocks(run.n, q + run.start, codec->block, map + run.block,
                                    y + run.start);
    }
}

/* One block, n elements: maps and bytes of all contributions start at byte offsets map_at and q_at.
 */
struct block_place {
    size_t map_at;
    size_t q_at;
    size_t n;
};

static void affine_reduce_block(const struct tally__codec *codec, const struct block_place *at,
                                size_t n_in, const void *const *wire, void *result)
{
    float sum[TALLY__BLOCK_MAX];
    struct tally__affine *map = (void *)((unsigned char *)result + at->map_at);

    for (size_t k = 0; k < n_in; k++) {
        const unsigned char *from = wire[k];
        const struct tally__affine *its = (const void *)(from + at->map_at);

        (k == 0 ? tally__affine_decode : tally__affine_decode_add)(at->n, from + at->q_at, *its,
                                                                   sum);
    }
    divide(at->n, sum, codec->divisor);
    tally__affine_encode_blocks(at->n, sum, at->n, map, (uint8_t *)result + at->q_at);
}

static void scaled_reduce_block(const struct tally__codec *codec, const struct block_place *at,
                                size_t n_in, const void *const *wire, void *result)
{
    float sum[TALLY__BLOCK_MAX];
    float *scale = (void *)((unsigned char *)result + at->map_at);

    for (size_t k = 0; k < n_in; k++) {
        const unsigned char *from = wire[k];
        const float *its = (const void *)(from + at->map_at);

        (k == 0 ? tally__scaled_decode_blocks
                : tally__scaled_decode_add_blocks)(at->n, from + at->q_at, at->n, its, sum);
    }
    divide(at->n, sum, codec->divisor);
    tally__scaled_encode_blocks(at->n, sum, at->n, scale, (uint8_t *)result + at->q_at);
}

/* How one block is reduced, and how many bytes its map takes. */
struct block_kind {
    void (*reduce)(const struct tally__codec *codec, const struct block_place *at, size_t n_in,
                   const void *const *wire, void *result);
    size_t map_bytes;
};

static void reduce_blocks(const struct block_kind *kind, const struct tally__codec *codec,
                          const struct tally__range *range, size_t n_in, const void *const *wire,
                          void *result)
{
    for (struct run run = {0}; next_run(codec, range, &run);) {
        for (size_t done = 0; done < run.n; done += codec->block) {
            const struct block_place at = {
                .map_at = (run.block + done / codec->block) * kind->map_bytes,
                .q_at = range->n_blocks * kind->map_bytes + run.start + done,
                .n = run.n - done < codec->block ? run.n - done : codec->block,
            };

            kind->reduce(codec, &at, n_in, wire, result);
        }
    }
}

static void affine_reduce(const struct tally__codec *codec, const struct tally__range *range,
                          size_t n_in, const void *const *wire, void *result)
{
    static const struct block_kind kind = {affine_reduce_block, sizeof(struct tally__affine)};

    reduce_blocks(&kind, codec, range, n_in, wire, result);
}

static const struct tally__codec_ops affine_ops = {
    .name = "affine",
    .id = 4,
    .wire_bytes = affine_wire_bytes,
    .encode = affine_encode,
    .reduce = affine_reduce,
    .decode = affine_decode,
};

struct tally__codec tally__codec_affine(size_t block, double divisor)
{
    return (struct tally__codec){
        .ops = &affine_ops, .element_bytes = sizeof(float), .block = block, .divisor = divisor};
}

/* ---- scaled: a scale alone ---- */

static size_t scaled_wire_bytes(const struct tally__codec *codec, size_t n_blocks, size_t n)
{
    (void)codec;
    return n_blocks * sizeof(float) + n;
}

static void scaled_encode(const struct tally__codec *codec, const struct tally__range *range,
                          const void *data, void *wire)
{
    const float *x = (const float *)data + range->start;
    float *scale = wire;
    uint8_t *q = (uint8_t *)(scale + range->n_blocks);

    for (struct run run = {0}; next_run(codec, range, &run);) {
        tally__scaled_encode_blocks(run.n, x + run.start, codec->block, scale + run.block,
                                    q + run.start);
    }
}

static void scaled_decode(const struct tally__codec *codec, const struct tally__range *range,
                          const void *wire, void *data)
{
    float *y = (float *)data + range->start;
    const float *scale = wire;
    const uint8_t *q = (const uint8_t *)(scale + range->n_blocks);

    for (struct run run = {0}; next_run(codec, range, &run);) {
        tally__scaled_decode_blocks(run.n, q + run.start, codec->block, scale + run.block,
                                    y + run.start);
    }
}

static void scaled_reduce(const struct tally__codec *codec, const struct tally__range *range,
                          size_t n_in, const void *const *wire, void *result)
{
    static const struct block_kind kind = {scaled_reduce_block, sizeof(float)};

    reduce_blocks(&kind, codec, range, n_in, wire, result);
}

static const struct tally__codec_ops scaled_ops = {
    .name = "scaled",
    .id = 5,
    .wire_bytes = scaled_wire_bytes,
    .encode = scaled_encode,
    .reduce = scaled_reduce,
    .decode = scaled_decode,
};

struct tally__codec tally__codec_scaled(size_t block, double divisor)
{
    return (struct tally__codec){
        .ops = &scaled_ops, .element_bytes = sizeof(float), .block = block, .divisor = divisor};
}
