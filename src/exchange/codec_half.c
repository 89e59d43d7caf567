/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs for fp32 that travels as fp16 or bf16, in three variants: added in fp32; the same with
 * overflowing values clamped to the largest finite value and counted; and stepwise, as PyTorch's
 * hooks compute: cast, divide and add in 16 bits, rounding after each operation. Stateless.
 */
#include "exchange/codec.h"
#include "tally_extend.h"

#define CHUNK 1024

static size_t half_wire_bytes(const struct tally__codec *codec, const struct tally__range *range)
{
    (void)codec;
    return range->n * sizeof(uint16_t);
}

static size_t half_block_bytes(const struct tally__codec *codec)
{
    return codec->block * sizeof(uint16_t);
}

/* The kernels of one 16-bit type. */
struct half {
    void (*narrow)(size_t n, const float *x, uint16_t *y);
    void (*widen)(size_t n, const uint16_t *x, float *y);
    void (*sum)(size_t n, size_t n_in, const uint16_t *const *in, float divisor, size_t n_out,
                uint16_t *const *out);
    void (*stepwise)(size_t n, size_t n_in, const uint16_t *const *in, uint16_t *out);
    void (*mean)(size_t n, size_t n_in, const float *const *in, float divisor, size_t n_out,
                 float *const *out);
};

static const struct half f16 = {tally__f32_to_f16, tally__f16_to_f32, tally__sum_f16,
                                tally__sum_f16_stepwise, tally__mean_f32_by_f16};
static const struct half bf16 = {tally__f32_to_bf16, tally__bf16_to_f32, tally__sum_bf16,
                                 tally__sum_bf16_stepwise, tally__mean_f32_by_bf16};

static const struct half *half_of(const struct tally__codec *codec)
{
    return codec->dtype == TALLY_BF16 ? &bf16 : &f16;
}

static const float *at(const struct tally__range *range, const void *data)
{
    return (const float *)data + range->start;
}

/* ---- added in fp32 ---- */

static int half_encode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *data, void *wire)
{
    half_of(codec)->narrow(range->n, at(range, data), wire);
    return TALLY_OK;
}

static void half_reduce(const struct tally__codec *codec, const struct tally__range *range,
                        size_t n_in, const void *const *wire, void *result)
{
    uint16_t *out = result;

    half_of(codec)->sum(range->n, n_in, (const uint16_t *const *)wire, (float)codec->divisor, 1,
                        &out);
}

static void half_decode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *wire, void *data)
{
    half_of(codec)->widen(range->n, wire, (float *)data + range->start);
}

static int half_direct(const struct tally__codec *codec, const struct tally__range *range,
                       const struct tally__direct *direct)
{
    half_of(codec)->mean(range->n, direct->n_in, (const float *const *)direct->in,
                         (float)codec->divisor, direct->n_out, (float *const *)direct->out);
    return TALLY_OK;
}

/* ---- clamped to the largest finite value ---- */

static void encode_saturated(const struct tally__codec *codec, size_t n, const float *x,
                             uint16_t *wire)
{
    codec->counts->saturated += tally__f32_to_f16_sat(n, x, wire);
}

static int sat_encode(const struct tally__codec *codec, const struct tally__range *range,
                      const void *data, void *wire)
{
    encode_saturated(codec, range->n, at(range, data), wire);
    return TALLY_OK;
}

static void sat_reduce(const struct tally__codec *codec, const struct tally__range *range,
                       size_t n_in, const void *const *wire, void *result)
{
    for (size_t done = 0; done < range->n; done += CHUNK) {
        size_t n = range->n - done < CHUNK ? range->n - done : CHUNK;
        float sum[CHUNK];
        float next[CHUNK];
        float *out = sum;
        const float *in[2] = {sum, next};

        tally__f16_to_f32(n, (const uint16_t *)wire[0] + done, sum);
        for (size_t k = 1; k < n_in; k++) {
            tally__f16_to_f32(n, (const uint16_t *)wire[k] + done, next);
            tally__sum_f32(n, 2, in, 1, 1, &out);
        }
        tally__sum_f32(n, 1, in, (float)codec->divisor, 1, &out);
        encode_saturated(codec, n, sum, (uint16_t *)result + done);
    }
}

/* ---- stepwise ---- */

static int step_encode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *data, void *wire)
{
    const uint16_t *in = wire;
    uint16_t *out = wire;

    half_of(codec)->narrow(range->n, at(range, data), wire);
    half_of(codec)->sum(range->n, 1, &in, (float)codec->divisor, 1, &out);
    return TALLY_OK;
}

static void step_reduce(const struct tally__codec *codec, const struct tally__range *range,
                        size_t n_in, const void *const *wire, void *result)
{
    half_of(codec)->stepwise(range->n, n_in, (const uint16_t *const *)wire, result);
}

/* Fields that all variants share. */
#define HALF_OPS \
    .wire_bytes = half_wire_bytes, .block_bytes = half_block_bytes, .decode = half_decode
/* The two types differ in their id. */
#define FP32_OPS \
    HALF_OPS, .encode = half_encode, .reduce = half_reduce, .reduce_direct = half_direct
#define STEP_OPS HALF_OPS, .encode = step_encode, .reduce = step_reduce

static const struct tally__codec_ops f16_ops = {FP32_OPS, .id = 2};
static const struct tally__codec_ops bf16_ops = {FP32_OPS, .id = 3};
static const struct tally__codec_ops sat_ops = {HALF_OPS, .id = 6, .encode = sat_encode,
                                                .reduce = sat_reduce};
static const struct tally__codec_ops f16_step_ops = {STEP_OPS, .id = 7};
static const struct tally__codec_ops bf16_step_ops = {STEP_OPS, .id = 8};

static const struct tally__codec_ops *ops_of(const struct tally__wire *wire)
{
    if (wire->dtype == TALLY_BF16) {
        return wire->stepwise ? &bf16_step_ops : &bf16_ops;
    }
    if (wire->stepwise) {
        return &f16_step_ops;
    }
    return wire->saturates ? &sat_ops : &f16_ops;
}

struct tally__codec tally__codec_half(const struct tally__wire *wire, double divisor)
{
    return (struct tally__codec){.ops = ops_of(wire),
                                 .element_bytes = sizeof(float),
                                 .block = TALLY__SHARD_UNIT,
                                 .dtype = wire->dtype,
                                 .divisor = divisor};
}
