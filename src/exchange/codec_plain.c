/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs that travel as numbers: elements as they are, and fp32 as halves. Keep no state. */
#include "exchange/codec.h"
#include "num/num.h"
#include "num/reduce.h"
#include "tally.h"

static size_t plain_wire_bytes(const struct tally__codec *codec, size_t n_blocks, size_t n)
{
    (void)n_blocks;
    return n * codec->element_bytes;
}

static void plain_encode(const struct tally__codec *codec, const struct tally__range *range,
                         const void *data, void *wire)
{
    tally__copy(range->n * codec->element_bytes,
                (const uint8_t *)data + range->start * codec->element_bytes, wire);
}

static void plain_reduce_direct(const struct tally__codec *codec, size_t n, size_t n_in,
                                const void *const *x, size_t n_out, void *const *y)
{
    double divisor = codec->divisor > 0 ? codec->divisor : (double)n_in;
    const struct tally__arrays arrays = {n_in, x, n_out, y, divisor};

    tally__reduce(codec->dtype, codec->op, n, &arrays);
}

static void plain_reduce(const struct tally__codec *codec, const struct tally__range *range,
                         size_t n_in, const void *const *wire, void *result)
{
    plain_reduce_direct(codec, range->n, n_in, wire, 1, &result);
}

static void plain_decode(const struct tally__codec *codec, const struct tally__range *range,
                         const void *wire, void *data)
{
    tally__copy(range->n * codec->element_bytes, wire,
                (uint8_t *)data + range->start * codec->element_bytes);
}

static const struct tally__codec_ops plain_ops = {
    .name = "plain",
    .id = 1,
    .wire_bytes = plain_wire_bytes,
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

static size_t half_wire_bytes(const struct tally__codec *codec, size_t n_blocks, size_t n)
{
    (void)codec;
    (void)n_blocks;
    return n * sizeof(uint16_t);
}

static void f16_encode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *data, void *wire)
{
    (void)codec;
    tally__f32_to_f16(range->n, (const float *)data + range->start, wire);
}

static void f16_reduce(const struct tally__codec *codec, const struct tally__range *range,
                       size_t n_in, const void *const *wire, void *result)
{
    uint16_t *out = result;

    tally__sum_f16(range->n, n_in, (const uint16_t *const *)wire, (float)codec->divisor, 1, &out);
}

static void f16_decode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *wire, void *data)
{
    (void)codec;
    tally__f16_to_f32(range->n, wire, (float *)data + range->start);
}

static const struct tally__codec_ops f16_ops = {
    .name = "f16",
    .id = 2,
    .wire_bytes = half_wire_bytes,
    .encode = f16_encode,
    .reduce = f16_reduce,
    .decode = f16_decode,
};

static void bf16_encode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *data, void *wire)
{
    (void)codec;
    tally__f32_to_bf16(range->n, (const float *)data + range->start, wire);
}

static void bf16_reduce(const struct tally__codec *codec, const struct tally__range *range,
                        size_t n_in, const void *const *wire, void *result)
{
    uint16_t *out = result;

    tally__sum_bf16(range->n, n_in, (const uint16_t *const *)wire, (float)codec->divisor, 1, &out);
}

static void bf16_decode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *wire, void *data)
{
    (void)codec;
    tally__bf16_to_f32(range->n, wire, (float *)data + range->start);
}

static const struct tally__codec_ops bf16_ops = {
    .name = "bf16",
    .id = 3,
    .wire_bytes = half_wire_bytes,
    .encode = bf16_encode,
    .reduce = bf16_reduce,
    .decode = bf16_decode,
};

struct tally__codec tally__codec_half(int dtype, double divisor)
{
    return (struct tally__codec){.ops = dtype == TALLY_F16 ? &f16_ops : &bf16_ops,
                                 .element_bytes = sizeof(float),
                                 .block = TALLY__SHARD_UNIT,
                                 .divisor = divisor};
}
