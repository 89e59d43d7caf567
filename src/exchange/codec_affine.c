/* SPDX-License-Identifier: Apache-2.0 */
/* The byte codec with a scale and a zero point per block, or, for what a rank sends, per segment.
 */
#include <string.h>

#include "comm/open.h"
#include "exchange/codec_u8.h"
#include "num/num.h"

/* The map of the whole segment that a run is of. No element of it has been replaced by its mean
 * yet: what is replaced was encoded before. */
static struct tally__affine find_map(const struct tally__segments *segments,
                                     const struct tally__run *run, const float *x)
{
    size_t n = segments->start[run->segment + 1] - segments->start[run->segment];
    float lo;
    float hi;

    tally__minmax_f32(n, x - run->offset, &lo, &hi);
    return tally__affine_of(n, lo, hi);
}

static void affine_encode(const struct tally__codec *codec, const struct tally__run *run,
                          const float *x, float *feedback, void *maps, uint8_t *q)
{
    struct tally__affine *map = maps;

    (void)feedback;
    /* Only where the result is to be PyTorch's does an element pay for a division. */
    if (!codec->maps) {
        (codec->gathers ? tally__affine_encode_blocks
                        : tally__affine_encode_fast_blocks)(run->n, x, codec->block, map, q);
        return;
    }
    if (codec->maps[run->segment].scale == 0) {
        codec->maps[run->segment] = find_map(codec->segments, run, x);
    }
    for (size_t b = 0; b < tally__blocks_in(run->n, codec->block); b++) {
        map[b] = codec->maps[run->segment];
    }
    (codec->gathers ? tally__affine_encode : tally__affine_encode_fast)(run->n, x, *map, q);
}

static void affine_decode(size_t n, const uint8_t *q, size_t block, const void *maps, float *y)
{
    tally__affine_decode_blocks(n, q, block, maps, y);
}

static void affine_mean(const struct tally__block_place *at, const struct tally__inputs *inputs,
                        double divisor, float *y)
{
    const uint8_t *q[TALLY__MAX_WORLD];
    struct tally__affine map[TALLY__MAX_WORLD];

    for (size_t k = 0; k < inputs->n; k++) {
        const unsigned char *from = inputs->wire[k];

        q[k] = from + at->q_at;
        memcpy(&map[k], from + at->map_at, sizeof map[k]);
    }
    tally__affine_sum(at->n, inputs->n, q, map, (float)divisor, y);
}

static float affine_scale(const void *maps, size_t block)
{
    return ((const struct tally__affine *)maps)[block].scale;
}

static const struct tally__map_kind affine_maps = {
    .bytes = sizeof(struct tally__affine),
    .encode = affine_encode,
    .decode = affine_decode,
    .mean = affine_mean,
    .scale = affine_scale,
};

static const struct tally__codec_ops affine_ops = {.name = "affine", .id = 4, TALLY__BYTE_OPS};

struct tally__codec tally__codec_affine(size_t block, double divisor)
{
    return (struct tally__codec){.ops = &affine_ops,
                                 .map_kind = &affine_maps,
                                 .element_bytes = sizeof(float),
                                 .block = block,
                                 .divisor = divisor};
}
