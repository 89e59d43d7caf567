/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A codec says how elements travel in a two-phase exchange: what one rank sends to the owner of a
 * shard, how the owner adds all contributions and encodes the result, and how the result is
 * decoded. It works on ranges of whole blocks (exchange/layout.h).
 */
#ifndef TALLY_EXCHANGE_CODEC_H
#define TALLY_EXCHANGE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/round.h"
#include "exchange/layout.h"

struct tally__codec;

struct tally__codec_ops {
    const char *name;
    uint8_t id; /* of the kind, so that ranks can compare codecs */
    /* Bytes on the wire for so many blocks with so many elements. */
    size_t (*wire_bytes)(const struct tally__codec *codec, size_t n_blocks, size_t n);
    /* From the application's array (its first element, not the range's) to the wire. */
    void (*encode)(const struct tally__codec *codec, const struct tally__range *range,
                   const void *data, void *wire);
    /*
     * Decodes n_in contributions, adds them in the order given, divides, and encodes the result,
     * which may go where one of the contributions was.
     */
    void (*reduce)(const struct tally__codec *codec, const struct tally__range *range, size_t n_in,
                   const void *const *wire, void *result);
    void (*decode)(const struct tally__codec *codec, const struct tally__range *range,
                   const void *wire, void *data);
    /*
     * The whole way for data that all ranks can reach: from n_in arrays of the application to
     * n_out, with the bits of encode, reduce and decode. NULL where a codec has no such short cut.
     */
    void (*reduce_direct)(const struct tally__codec *codec, size_t n, size_t n_in,
                          const void *const *x, size_t n_out, void *const *y);
    /* The wire carries the application's own representation: what a rank keeps for itself need not
     * be encoded. Goes with reduce_direct. */
    bool wire_is_data;
    /*
     * For codecs that cannot work in pieces: does the whole exchange instead of the engine. NULL
     * for all others.
     */
    int (*exchange)(const struct tally__codec *codec, tally_lane *lane, struct tally__call *call,
                    void *data, size_t n);
};

struct tally__codec {
    const struct tally__codec_ops *ops;
    size_t element_bytes; /* of the application's array */
    size_t block;
    const struct tally__segments *segments; /* NULL: blocks start at the first element only */
    double
        divisor; /* of the sum; the plain codec divides for the mean only, by W where this is 0 */
    int dtype;   /* of the plain codec */
    int op;
    struct tally__tensors *tensors; /* of the per-tensor codec */
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

/*
 * fp32 that travels as uint8 with a scale and a zero point per segment, however long: in the first
 * phase those of the sender's own values, in the second those of the mean. Needs memory of the
 * group, made here for n elements at most, before the first exchange and alike on all ranks.
 * segments may be NULL and must outlive the codec. Errors: NOMEM.
 */
int tally__codec_per_tensor_make(tally_group *group, const struct tally__segments *segments,
                                 size_t n, double divisor, struct tally__codec *codec);
void tally__codec_per_tensor_free(tally_group *group, struct tally__codec *codec);

#endif
