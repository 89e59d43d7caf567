/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A codec says how elements travel in a two-phase exchange: what one rank sends to the owner of a
 * shard, how the owner adds all contributions and encodes the result, and how the result is
 * decoded. Blocks are the units that cannot be cut: every range a codec is given starts on a block
 * and ends on one or at the end of the data.
 */
#ifndef TALLY_EXCHANGE_CODEC_H
#define TALLY_EXCHANGE_CODEC_H

#include <stddef.h>
#include <stdint.h>

struct tally__codec;

struct tally__codec_ops {
    const char *name;
    uint8_t id; /* of the kind, so that ranks can compare codecs */
    /* Bytes on the wire for n elements. */
    size_t (*wire_bytes)(const struct tally__codec *codec, size_t n);
    void (*encode)(const struct tally__codec *codec, size_t n, const void *x, void *wire);
    /*
     * Decodes n_in contributions, adds them in the order given, divides, and encodes the result,
     * which may go where one of the contributions was.
     */
    void (*reduce)(const struct tally__codec *codec, size_t n, size_t n_in, const void *const *wire,
                   void *result);
    void (*decode)(const struct tally__codec *codec, size_t n, const void *wire, void *y);
    /*
     * The whole way for data that all ranks can reach: from n_in arrays of the application to
     * n_out, with the bits of encode, reduce and decode. NULL where a codec has no such short cut.
     */
    void (*reduce_direct)(const struct tally__codec *codec, size_t n, size_t n_in,
                          const void *const *x, size_t n_out, void *const *y);
};

struct tally__codec {
    const struct tally__codec_ops *ops;
    size_t element_bytes; /* of the application's array */
    size_t block;
    double divisor; /* of codecs that add; the plain codec has op instead */
    int dtype;      /* of the plain codec */
    int op;
};

/* Elements as they are, of any dtype, with any op; shards start on multiples of 64 elements. */
struct tally__codec tally__codec_plain(int dtype, int op);

/* fp32 that travels as fp16 or bf16 (dtype), added in fp32. */
struct tally__codec tally__codec_half(int dtype, double divisor);

/* fp32 that travels as uint8 with a scale and a zero point per block of elements, as the affine
 * kernels say. block is at most TALLY__BLOCK_MAX. */
#define TALLY__BLOCK_MAX 4096
struct tally__codec tally__codec_affine(size_t block, double divisor);

/* fp32 that travels as uint8 with one scale per block, as the scaled kernels say. */
struct tally__codec tally__codec_scaled(size_t block, double divisor);

#endif
