/* SPDX-License-Identifier: Apache-2.0 */
/* The byte codec with a scale alone per block, and with error feedback. */
#include "exchange/codec_u8.h"
#include "num/num.h"

static void scaled_encode(const struct tally__codec *codec, const struct tally__run *run,
                          const float *x, const struct tally__coded *to)
{
    if (to->feedback) {
        tally__scaled_encode_feedback_blocks(run->n, x, to->feedback, codec->block, to->maps,
                                             to->q);
    } else {
        tally__scaled_encode_blocks(run->n, x, codec->block, to->maps, to->q);
    }
}

static void scaled_decode(size_t n, const uint8_t *q, size_t block, const void *maps, float *y)
{
    tally__scaled_decode_blocks(n, q, block, maps, y);
}

static void scaled_sum(size_t n, size_t n_in, const uint8_t *const *q, const void *maps,
                       float divisor, float *y)
{
    tally__scaled_sum(n, n_in, q, maps, divisor, y);
}

static const struct tally__map_kind scaled_maps = {
    .bytes = sizeof(float),
    .encode = scaled_encode,
    .decode = scaled_decode,
    .sum = scaled_sum,
};

static const struct tally__codec_ops scaled_ops = {.id = 5, TALLY__BYTE_OPS};

struct tally__codec tally__codec_scaled(size_t block, double divisor)
{
    return (struct tally__codec){.ops = &scaled_ops,
                                 .map_kind = &scaled_maps,
                                 .element_bytes = sizeof(float),
                                 .block = block,
                                 .divisor = divisor};
}
