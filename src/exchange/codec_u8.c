/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs that travel as bytes: per block of elements a map (scale and zero point, or a scale
 * alone), then the bytes. On the wire all maps of a range come first, then all its bytes. The owner
 * works block by block, so that a block's sum stays in the nearest cache. Keep no state.
 */
#include "exchange/codec.h"
#include "num/num.h"

static size_t n_blocks(const struct tally__codec *codec, size_t n)
{
    return (n + codec->block - 1) / codec->block;
}

/* Divides the sum of one block: the kernel that adds is also the one that divides. */
static void divide(size_t n, float *sum, double divisor)
{
    const float *in = sum;

    tally__sum_f32(n, 1, &in, (float)divisor, 1, &sum);
}

/* ---- affine: scale and zero point ---- */

static size_t affine_wire_bytes(const struct tally__codec *codec, size_t n)
{
    return n_blocks(codec, n) * sizeof(struct tally__affine) + n;
}

static void affine_encode(const struct tally__codec *codec, size_t n, const void *x, void *wire)
{
    struct tally__affine *map = wire;

    tally__affine_encode_blocks(n, x, codec->block, map, (uint8_t *)(map + n_blocks(codec, n)));
}

static void affine_decode(const struct tally__codec *codec, size_t n, const void *wire, void *y)
{
    const struct tally__affine *map = wire;

    tally__affine_decode_blocks(n, (const uint8_t *)(map + n_blocks(codec, n)), codec->block, map,
                                y);
}

static void affine_reduce(const struct tally__codec *codec, size_t n, size_t n_in,
                          const void *const *wire, void *result)
{
    size_t blocks = n_blocks(codec, n);
    struct tally__affine *out_map = result;
    uint8_t *out = (uint8_t *)(out_map + blocks);
    float sum[TALLY__BLOCK_MAX];

    for (size_t b = 0; b < blocks; b++) {
        size_t start = b * codec->block;
        size_t count = n - start < codec->block ? n - start : codec->block;

        for (size_t k = 0; k < n_in; k++) {
            const struct tally__affine *map = wire[k];
            const uint8_t *q = (const uint8_t *)(map + blocks) + start;

            if (k == 0) {
                tally__affine_decode(count, q, map[b], sum);
            } else {
                tally__affine_decode_add(count, q, map[b], sum);
            }
        }
        divide(count, sum, codec->divisor);
        tally__affine_encode_blocks(count, sum, codec->block, &out_map[b], out + start);
    }
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

static size_t scaled_wire_bytes(const struct tally__codec *codec, size_t n)
{
    return n_blocks(codec, n) * sizeof(float) + n;
}

static void scaled_encode(const struct tally__codec *codec, size_t n, const void *x, void *wire)
{
    float *scale = wire;

    tally__scaled_encode_blocks(n, x, codec->block, scale, (uint8_t *)(scale + n_blocks(codec, n)));
}

static void scaled_decode(const struct tally__codec *codec, size_t n, const void *wire, void *y)
{
    const float *scale = wire;

    tally__scaled_decode_blocks(n, (const uint8_t *)(scale + n_blocks(codec, n)), codec->block,
                                scale, y);
}

static void scaled_reduce(const struct tally__codec *codec, size_t n, size_t n_in,
                          const void *const *wire, void *result)
{
    size_t blocks = n_blocks(codec, n);
    float *out_scale = result;
    uint8_t *out = (uint8_t *)(out_scale + blocks);
    float sum[TALLY__BLOCK_MAX];

    for (size_t b = 0; b < blocks; b++) {
        size_t start = b * codec->block;
        size_t count = n - start < codec->block ? n - start : codec->block;

        for (size_t k = 0; k < n_in; k++) {
            const float *scale = wire[k];
            const uint8_t *q = (const uint8_t *)(scale + blocks) + start;

            if (k == 0) {
                tally__scaled_decode_blocks(count, q, codec->block, &scale[b], sum);
            } else {
                tally__scaled_decode_add_blocks(count, q, codec->block, &scale[b], sum);
            }
        }
        divide(count, sum, codec->divisor);
        tally__scaled_encode_blocks(count, sum, codec->block, &out_scale[b], out + start);
    }
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
