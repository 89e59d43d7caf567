/* SPDX-License-Identifier: Apache-2.0 */
/* The byte codec with a scale and a zero point per block, or, for contributions, per segment. */
#include <string.h>

#include "exchange/codec_u8.h"
#include "num/num.h"

/* The map of the whole segment of a run. None of its elements has been replaced by its mean yet:
 * elements are encoded before they are replaced. */
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
                          const float *x, const struct tally__coded *to)
{
    struct tally__affine *map = to->maps;

    /* Divides only where the bits must equal PyTorch's. */
    if (!codec->maps) {
        (codec->gathers ? tally__affine_encode_blocks
                        : tally__affine_encode_fast_blocks)(run->n, x, codec->block, map, to->q);
        return;
    }
    if (codec->maps[run->segment].scale == 0) {
        codec->maps[run->segment] = find_map(codec->segments, run, x);
    }
    for (size_t b = 0; b < tally__blocks_in(run->n, codec->block); b++) {
        map[b] = codec->maps[run->segment];
    }
    (codec->gathers ? tally__affine_encode : tally__affine_encode_fast)(run->n, x, *map, to->q);
}

static void affine_decode(size_t n, const uint8_t *q, size_t block, const void *maps, float *y)
{
    tally__affine_decode_blocks(n, q, block, maps, y);
}

_Static_assert(sizeof(struct tally__affine) <= sizeof(void *), "a list has room for maps");

static void affine_sum(size_t n, size_t n_in, const uint8_t *const *q, const void *maps,
                       float divisor, float *y)
{
    tally__affine_sum(n, n_in, q, maps, divisor, y);
}

static size_t affine_direct(const struct tally__codec *codec, const struct tally__run *run,
                            const struct tally__direct *direct)
{
    struct tally__affine *maps = codec->lists->maps;

    for (size_t k = 0; codec->maps && k < direct->n_in; k++) {
        maps[k] = ((const struct tally__affine *)direct->told[k])[run->segment];
    }

    struct tally__affine_mean mean = {
        .maps = codec->maps ? maps : NULL,
        .block = codec->block,
        .divisor = (float)codec->divisor,
    };

    return tally__mean_f32_by_affine(run->n, direct->n_in, (const float *const *)direct->in, &mean,
                                     direct->n_out, (float *const *)direct->out);
}

static bool has_raw(const struct tally__segments *segments)
{
    for (size_t s = 0; segments->raw && s < segments->n; s++) {
        if (segments->raw[s]) {
            return true;
        }
    }
    return false;
}

/* Publishes the maps of this rank's contribution. Without segments a message could not name the
 * parameter that is not finite. */
static bool affine_tell(const struct tally__codec *codec, const void *data, void *stage)
{
    const struct tally__segments *segments = codec->segments;

    if (!segments || segments->n * sizeof *codec->maps > TALLY__STAGE_BYTES || has_raw(segments)) {
        return false;
    }
    for (size_t s = 0; codec->maps && s < segments->n; s++) {
        const struct tally__run run = {.segment = s};

        if (codec->maps[s].scale == 0) {
            codec->maps[s] = find_map(segments, &run, (const float *)data + segments->start[s]);
        }
        memcpy((struct tally__affine *)stage + s, &codec->maps[s], sizeof codec->maps[s]);
    }
    return true;
}

static const struct tally__map_kind affine_maps = {
    .bytes = sizeof(struct tally__affine),
    .encode = affine_encode,
    .decode = affine_decode,
    .sum = affine_sum,
    .direct = affine_direct,
};

static const struct tally__codec_ops affine_ops = {
    .id = 4, TALLY__BYTE_OPS, .reduce_direct = tally__byte_reduce_direct, .tell = affine_tell};

struct tally__codec tally__codec_affine(size_t block, double divisor)
{
    return (struct tally__codec){.ops = &affine_ops,
                                 .map_kind = &affine_maps,
                                 .element_bytes = sizeof(float),
                                 .block = block,
                                 .divisor = divisor};
}
