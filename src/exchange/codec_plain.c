/* SPDX-License-Identifier: Apache-2.0 */
/* The codec for elements that travel unchanged. Stateless. */
#include "exchange/codec.h"
#include "num/num.h"
#include "num/reduce.h"
#include "tally.h"

static size_t plain_wire_bytes(const struct tally__codec *codec, const struct tally__range *range)
{
    return range->n * codec->element_bytes;
}

static size_t plain_block_bytes(const struct tally__codec *codec)
{
    return codec->block * codec->element_bytes;
}

static int plain_encode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *data, void *wire)
{
    tally__copy(range->n * codec->element_bytes,
                (const uint8_t *)data + range->start * codec->element_bytes, wire);
    return TALLY_OK;
}

static int plain_reduce_direct(const struct tally__codec *codec, const struct tally__range *range,
                               const struct tally__direct *direct)
{
    double divisor = codec->divisor > 0 ? codec->divisor : (double)direct->n_in;
    const struct tally__arrays arrays = {direct->n_in, direct->in, direct->n_out, direct->out,
                                         divisor};

    tally__reduce(codec->dtype, codec->op, range->n, &arrays);
    return TALLY_OK;
}

static void plain_reduce(const struct tally__codec *codec, const struct tally__range *range,
                         size_t n_in, const void *const *wire, void *result)
{
    const struct tally__direct direct = {.n_in = n_in, .in = wire, .n_out = 1, .out = &result};

    (void)plain_reduce_direct(codec, range, &direct);
}

static void plain_decode(const struct tally__codec *codec, const struct tally__range *range,
                         const void *wire, void *data)
{
    tally__copy(range->n * codec->element_bytes, wire,
                (uint8_t *)data + range->start * codec->element_bytes);
}

static const struct tally__codec_ops plain_ops = {
    .id = 1,
    .wire_bytes = plain_wire_bytes,
    .block_bytes = plain_block_bytes,
    .encode = plain_encode,
    .reduce = plain_reduce,
    .decode = plain_decode,
    .reduce_direct = plain_reduce_direct,
    .wire_is_data = true,
};

struct tally__codec tally__codec_plain(int dtype, int op)
{
    return (struct tally__codec){.ops = &plain_ops,
                                 .element_bytes = tally_dtype_bytes(dtype),
                                 .block = TALLY__SHARD_UNIT,
                                 .dtype = dtype,
                                 .op = op};
}

struct tally__codec tally__codec_here(int dtype, int op, double divisor)
{
    struct tally__reduction *reduction = tally__reduction_here();
    struct tally__codec codec = tally__codec_plain(dtype, op);

    codec.divisor = divisor;
    if (reduction && reduction->wire.dtype != TALLY_F32 && dtype == TALLY_F32 &&
        (op == TALLY_SUM || op == TALLY_MEAN)) {
        codec = tally__codec_half(&reduction->wire, op == TALLY_SUM ? 1 : divisor);
        codec.counts = &reduction->counts;
    }
    return codec;
}
