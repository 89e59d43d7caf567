/* SPDX-License-Identifier: Apache-2.0 */
/* The byte codec with a scale alone per block, and with error feedback. */
#include <string.h>

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

static void scaled_mean(const struct tally__block_offsets *at, const struct tally__inputs *inputs,
                        double divisor, float *y)
{
    const uint8_t **q = inputs->lists->codes;
    float *scale = inputs->lists->maps;

    for (size_t k = 0; k < inputs->n; k++) {
        const unsigned char *from = inputs->wire[k];

        q[k] = from + at->q_at;
        memcpy(&scale[k], from + at->map_at, sizeof scale[k]);
    }
    tally__scaled_sum(at->n, inputs->n, q, scale, (float)divisor, y);
}

static float scaled_scale(const void *maps, size_t block)
{
    return ((const float *)maps)[block];
}

static const struct tally__map_kind scaled_maps = {
    .bytes = sizeof(float),
    .encode = scaled_encode,
    .decode = scaled_decode,
    .mean = scaled_mean,
    .scale = scaled_scale,
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
