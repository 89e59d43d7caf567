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
    const tally_group *ranks; /* that the inputs come from, one each */
};

/* Lists with an entry per rank, of the lane: none of them is on the stack, where a world of 4096
 * ranks would need 200 KiB. Each is used by one level of calls. */
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
    const char *name;
    uint8_t id; /* of the kind, so that ranks can compare codecs */
    /* Bytes on the wire of a range, and of the largest block. */
    size_t (*wire_bytes)(const struct tally__codec *codec, const struct tally__range *range);
    size_t (*block_bytes)(const struct tally__codec *codec);
    /* From the application's array (its first element, not the range's) to the wire. Errors:
     * NUMERIC, of codecs that cannot carry what is no number. */
    int (*encode)(const struct tally__codec *codec, const struct tally__range *range,
                  const void *data, void *wire);
    /*
     * Decodes n_in contributions, adds them in the order given, divides, and encodes the result,
     * which may go where one of the contributions was.
     */
    void (*reduce)(const struct tally__codec *codec, const struct tally__range *range, size_t n_in,
                   const void *const *wire, void *result);
    void (*decode)(const struct tally__codec *codec, const struct tally__range *range,
                   const void *wire, void *data);
    /* As reduce, but leaves the result in the application's array: there is no second coding. NULL
     * for codecs that are never gathered. */
    void (*mean)(const struct tally__codec *codec, const struct tally__range *range, size_t n_in,
                 const void *const *wire, void *data);
    /*
     * The whole way for data that all ranks can reach: from the ranges of all ranks' arrays to
     * those that get the result, with the bits of encode, reduce and decode. NULL where a codec has
     * no such short cut. Errors: NUMERIC, as encode.
     */
    int (*reduce_direct)(const struct tally__codec *codec, const struct tally__range *range,
                         const struct tally__direct *direct);
    /* Before that: puts what other ranks must know of this rank's data into a stage; false if there
     * is too much of it. NULL for codecs that need no such thing. */
    bool (*tell)(const struct tally__codec *codec, const void *data, void *stage);
    /* The wire carries the application's own representation: what a rank keeps for itself need not
     * be encoded. Goes with reduce_direct. */
    bool wire_is_data;
};

/*
 * Error feedback of one segment. To what a rank sends, sent is added first, and what the wire does
 * not carry is left there; to the means that a rank owns, owned is, likewise. NULL: none.
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
        divisor;   /* of the sum; the plain codec divides for the mean only, by W where this is 0 */
    int dtype;     /* of the plain codec; of the elements that the byte codecs do not code */
    int op;        /* of the plain codec */
    bool gathers;  /* one phase: every rank gets all contributions, and the result is not coded */
    bool scatters; /* the first phase alone: each rank gets the result of its own shard */
    const struct tally__lists *lists; /* set by the exchange, for as long as it runs */
    struct tally__counts *counts;     /* if set, fp16 saturates, and saturated values are counted */
    /* Of the byte codecs: */
    const struct tally__map_kind *map_kind;
    /* Per segment, for what a rank sends; NULL: per block. A scale of 0 says that the map is not
     * known yet: it is found when the segment's first block is encoded, so that its elements are
     * still near when they are encoded themselves. */
    struct tally__affine *maps;
    const struct tally__feedback *feedback; /* per segment, or NULL */
    const tally_bucket *names; /* refuses infinity and NaN, naming the parameter; NULL: they pass */
};

/* Elements as they are, of any dtype, with any op; shards start on multiples of 64 elements. */
struct tally__codec tally__codec_plain(int dtype, int op);

/* fp32 that travels as wire says, which is not fp32, added in fp32 unless that says stepwise. */
struct tally__codec tally__codec_half(const struct tally__wire *wire, double divisor);

/* The codec of a sum or mean in this thread's reduction: sums of fp32 travel in its wire type, and
 * everything else as it is. */
struct tally__codec tally__codec_here(int dtype, int op, double divisor);

/* fp32 that travels as uint8 with a scale and a zero point per block of elements, as the affine
 * kernels say. block is at most TALLY__BLOCK_MAX. */
#define TALLY__BLOCK_MAX 4096
struct tally__codec tally__codec_affine(size_t block, double divisor);

/* fp32 that travels as uint8 with one scale per block, as the scaled kernels say. */
struct tally__codec tally__codec_scaled(size_t block, double divisor);

#endif
