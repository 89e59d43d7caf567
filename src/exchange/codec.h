/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A codec decides how elements travel in a two-phase exchange: it encodes what a rank sends to the
 * owner of a shard, adds the contributions of all ranks, encodes the result, and decodes it. It
 * works on ranges of whole blocks (exchange/layout.h).
 *
 * To add a codec: fill a struct tally__codec_ops, with an id that no other codec has, in a file of
 * this folder, and declare a function here that returns a struct tally__codec with it.
 */
#ifndef TALLY_EXCHANGE_CODEC_H
#define TALLY_EXCHANGE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/round.h"
#include "exchange/layout.h"
#include "exchange/reduction.h"
#include "num/num.h"

struct tally__codec;
struct tally__map_kind;

/* Arrays that start with a range's first element, and what each rank told. */
struct tally__direct {
    size_t n_in;
    const void *const *in;
    size_t n_out;
    void *const *out;
    const void *const *told;
    const tally_group *ranks; /* the ranks of the inputs, one each */
};

/* Lists with an entry per rank, from the lane and not from the stack, where 4096 ranks would need
 * 200 KiB. Each is used by one function at a time. */
struct tally__lists {
    const void **inputs; /* of the exchange */
    const void **told;
    void **outputs;
    const void **run_inputs; /* of a run of blocks */
    void **run_outputs;
    const uint8_t **codes; /* of one kind of map */
    void *maps;            /* a map of at most 8 bytes each */
};

struct tally__codec_ops {
    uint8_t id; /* identifies the kind of codec, so that ranks can compare codecs */
    /* Bytes of a range on the wire, and of the largest block. */
    size_t (*wire_bytes)(const struct tally__codec *codec, const struct tally__range *range);
    size_t (*block_bytes)(const struct tally__codec *codec);
    /* Encodes a range of the application's array, given by its first element, for the wire. Errors:
     * NUMERIC, for codecs that cannot encode infinity and NaN. */
    int (*encode)(const struct tally__codec *codec, const struct tally__range *range,
                  const void *data, void *wire);
    /*
     * Decodes n_in contributions, adds them in the order given, divides, and encodes the result,
     * which may overwrite a contribution.
     */
    void (*reduce)(const struct tally__codec *codec, const struct tally__range *range, size_t n_in,
                   const void *const *wire, void *result);
    void (*decode)(const struct tally__codec *codec, const struct tally__range *range,
                   const void *wire, void *data);
    /* As reduce, but leaves the result in the application's array, without encoding it. NULL for
     * codecs that are never gathered. */
    void (*mean)(const struct tally__codec *codec, const struct tally__range *range, size_t n_in,
                 const void *const *wire, void *data);
    /*
     * Encode, reduce and decode in one pass, with the same bits, for data that all ranks can reach:
     * from all ranks' ranges to the outputs. NULL where a codec has no such pass. Errors: NUMERIC,
     * as encode.
     */
    int (*reduce_direct)(const struct tally__codec *codec, const struct tally__range *range,
                         const struct tally__direct *direct);
    /* Before the round that precedes reduce_direct: writes the facts about this rank's data that
     * the other ranks' reduce_direct reads, such as its maps, to this rank's stage. Returns false
     * if reduce_direct cannot be used for this data: it is then staged. NULL: no facts needed. */
    bool (*tell)(const struct tally__codec *codec, const void *data, void *stage);
    /* The wire format is that of the application's array: a rank need not encode its own shard.
     * Requires reduce_direct. */
    bool wire_is_data;
};

/*
 * Error feedback of one segment. sent is added to this rank's contribution and then holds what the
 * wire dropped; owned does the same for the means of this rank's shard. NULL: none.
 */
struct tally__feedback {
    float *sent;
    float *owned; /* from the segment's element owned_first on */
    size_t owned_first;
};

struct tally__codec {
    const struct tally__codec_ops *ops;
    size_t element_bytes; /* of the application's array */
    size_t block;
    const struct tally__segments *segments; /* NULL: blocks start at the first element only */
    const size_t *shard_starts;             /* as in struct tally__layout; of plain and half */
    double
        divisor;   /* of the sum; the plain codec divides only for the mean, by W where this is 0 */
    int dtype;     /* of plain and half: on the wire; of byte codecs: of the raw elements */
    int op;        /* of the plain codec */
    bool gathers;  /* one phase: every rank gets all contributions; the result is not encoded */
    bool scatters; /* the first phase alone: each rank gets the result of its shard */
    const struct tally__lists *lists; /* set by the exchange while it runs */
    struct tally__counts *counts;     /* if set, fp16 saturates, and saturated values are counted */
    /* Of the byte codecs: */
    const struct tally__map_kind *map_kind;
    /* Per segment, for this rank's contribution; NULL: per block. A scale of 0 means that the map
     * is not known yet: it is computed when the segment's first block is encoded, so that the
     * elements are still in the cache. */
    struct tally__affine *maps;
    const struct tally__feedback *feedback; /* per segment, or NULL */
    const tally_bucket
        *names; /* refuses infinity and NaN, naming the parameter; NULL: accepts them */
};

/* The plain codec: elements of any dtype, with any op, unchanged; shards start on multiples of 64
 * elements. */
struct tally__codec tally__codec_plain(int dtype, int op);

/* fp32 that travels as the 16-bit type of wire; added in fp32 unless wire is stepwise. */
struct tally__codec tally__codec_half(const struct tally__wire *wire, double divisor);

/* The codec of a sum or mean in this thread's reduction: fp32 travels in its wire type, other
 * dtypes unchanged. */
struct tally__codec tally__codec_here(int dtype, int op, double divisor);

/* fp32 that travels as uint8 with a scale and a zero point per block, as the affine kernels define.
 * block is at most TALLY__BLOCK_MAX. */
#define TALLY__BLOCK_MAX 4096
struct tally__codec tally__codec_affine(size_t block, double divisor);

/* fp32 that travels as uint8 with one scale per block, as the scaled kernels define. */
struct tally__codec tally__codec_scaled(size_t block, double divisor);

#endif
