/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common part of the codecs that travel as bytes (codec_u8.c), and the operations of a kind of
 * map (codec_affine.c, codec_scaled.c).
 */
#ifndef TALLY_EXCHANGE_CODEC_U8_H
#define TALLY_EXCHANGE_CODEC_U8_H

#include "exchange/codec.h"

/* A run of whole blocks within one segment: the input of one kernel call. */
struct tally__run {
    size_t segment;
    bool raw;
    size_t start; /* first element, counted from the range's first; the other counts too */
    size_t n;
    size_t offset;  /* of its first element, in its segment */
    size_t map;     /* maps before its own */
    size_t element; /* raw elements before its own if it is raw, else coded ones */
};

/* The destination of a run's codes, and of their rounding error. */
struct tally__coded {
    void *maps;
    uint8_t *q;
    float *feedback; /* NULL: nowhere */
};

/* The operations in which the two kinds of map differ. */
struct tally__map_kind {
    size_t bytes; /* of a map, which begins with its scale: a float */
    /* Encodes a run of blocks that starts at x. */
    void (*encode)(const struct tally__codec *codec, const struct tally__run *run, const float *x,
                   const struct tally__coded *to);
    void (*decode)(size_t n, const uint8_t *q, size_t block, const void *maps, float *y);
    /* The sum of n_in arrays of codes, each with one map, divided. */
    void (*sum)(size_t n, size_t n_in, const uint8_t *const *q, const void *maps, float divisor,
                float *y);
    /* reduce_direct for a run of blocks; arrays start with the run's first element. Returns the
     * first rank whose values have no scale, or direct->n_in. NULL: not available. */
    size_t (*direct)(const struct tally__codec *codec, const struct tally__run *run,
                     const struct tally__direct *direct);
};

/* The operations of a codec with maps. */
size_t tally__byte_wire_bytes(const struct tally__codec *codec, const struct tally__range *range);
size_t tally__byte_block_bytes(const struct tally__codec *codec);
int tally__byte_encode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *data, void *wire);
void tally__byte_reduce(const struct tally__codec *codec, const struct tally__range *range,
                        size_t n_in, const void *const *wire, void *result);
void tally__byte_decode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *wire, void *data);
void tally__byte_mean(const struct tally__codec *codec, const struct tally__range *range,
                      size_t n_in, const void *const *wire, void *data);

int tally__byte_reduce_direct(const struct tally__codec *codec, const struct tally__range *range,
                              const struct tally__direct *direct);

#define TALLY__BYTE_OPS                                                                       \
    .wire_bytes = tally__byte_wire_bytes, .block_bytes = tally__byte_block_bytes,             \
    .encode = tally__byte_encode, .reduce = tally__byte_reduce, .decode = tally__byte_decode, \
    .mean = tally__byte_mean

#endif
