/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec with one scale and zero point per segment, however long. A scale is known only when the
 * whole segment has been seen, so this codec does not work in pieces: it has memory of the group
 * for all bytes, and three rounds after the first.
 *
 *   1  every rank finds each segment's range, and encodes all its data with that;
 *   2  the owner of a shard adds all contributions, in rank order, divides, and says the range of
 * the means of every segment it owns a part of; 3  from all owners' ranges everybody has each
 * segment's map; the owner encodes its shard with it; everybody decodes.
 *
 * Shards cut segments anywhere (at multiples of 64 elements), so owners share the work evenly.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "exchange/codec.h"
#include "num/num.h"

#define CHUNK 4096

/* What ranks read of each other, in memory of the group: first the head, then n bytes. */
struct value_range {
    float lo;
    float hi; /* below lo: no element */
};

struct tally__tensors {
    size_t n_max;
    struct tally__affine *sent;  /* per segment, in group memory: the maps of our own data */
    struct value_range *ranges;  /* per segment, in group memory: of the means we own */
    uint8_t *q;                  /* n_max bytes, in group memory: all we send, then what we own */
    void *group_memory;          /* the block those three lie in */
    struct tally__affine *means; /* per segment: the maps of the means */
    float *sum;                  /* our shard's means */
    size_t whole[2];             /* start and end of the one segment where there are none */
};

static const size_t *starts_of(const struct tally__codec *codec, size_t n, size_t *n_segments)
{
    if (codec->segments) {
        *n_segments = codec->segments->n;
        return codec->segments->start;
    }
    codec->tensors->whole[1] = n;
    *n_segments = 1;
    return codec->tensors->whole;
}

/* Rank's copy of something of ours: every rank's block has the same inner layout. */
static const void *at_rank(const tally_lane *lane, const struct tally__tensors *tensors, int rank,
                           const void *ours)
{
    const unsigned char *theirs = tally__peer_data(lane, rank);

    return theirs + ((const unsigned char *)ours - (const unsigned char *)tensors->group_memory);
}

static void encode_all(struct tally__tensors *tensors, const size_t *start, size_t n_segments,
                       const float *data)
{
    for (size_t s = 0; s < n_segments; s++) {
        size_t count = start[s + 1] - start[s];
        float lo;
        float hi;

        tally__minmax_f32(count, data + start[s], &lo, &hi);
        tensors->sent[s] = tally__affine_of(count, lo, hi);
        tally__affine_encode(count, data + start[s], tensors->sent[s], tensors->q + start[s]);
    }
}

/* The part of segment s that lies in the shard: first element and length. */
static size_t part_of(const size_t *start, size_t s, const struct tally__range *shard,
                      size_t *first)
{
    size_t end = start[s + 1] < shard->start + shard->n ? start[s + 1] : shard->start + shard->n;

    *first = start[s] > shard->start ? start[s] : shard->start;
    return *first < end ? end - *first : 0;
}

/* The mean of one part, chunk by chunk so that the sum stays near, and the range of its values. */
static void reduce_part(const struct tally__codec *codec, const tally_lane *lane, size_t s,
                        size_t first, size_t n, float *sum)
{
    struct tally__tensors *tensors = codec->tensors;

    for (size_t done = 0; done < n; done += CHUNK) {
        size_t count = n - done < CHUNK ? n - done : CHUNK;
        float *part = sum + done;
        const float *in = part;

        for (int r = 0; r < lane->group->size; r++) {
            const struct tally__affine *sent = at_rank(lane, tensors, r, tensors->sent);
            const uint8_t *q = at_rank(lane, tensors, r, tensors->q);

            (r == 0 ? tally__affine_decode : tally__affine_decode_add)(count, q + first + done,
                                                                       sent[s], part);
        }
        tally__sum_f32(count, 1, &in, (float)codec->divisor, 1, &part);
    }
    tally__minmax_f32(n, sum, &tensors->ranges[s].lo, &tensors->ranges[s].hi);
}

static void reduce_shard(const struct tally__codec *codec, const tally_lane *lane,
                         const size_t *start, size_t n_segments, const struct tally__range *shard)
{
    for (size_t s = 0; s < n_segments; s++) {
        size_t first;
        size_t n = part_of(start, s, shard, &first);

        codec->tensors->ranges[s] = (struct value_range){0, -1};
        if (n > 0) {
            reduce_part(codec, lane, s, first, n, codec->tensors->sum + (first - shard->start));
        }
    }
}

/* The map of a segment's means, from what all its owners said; a NaN anywhere makes it NaN. */
static struct tally__affine map_of_means(const struct tally__codec *codec, const tally_lane *lane,
                                         size_t s, size_t n)
{
    float lo = 0;
    float hi = 0;

    for (int r = 0; r < lane->group->size; r++) {
        const struct value_range *range =
            (const struct value_range *)at_rank(lane, codec->tensors, r, codec->tensors->ranges) +
            s;

        if (isnan(range->lo)) {
            return tally__affine_of(n, range->lo, range->lo);
        }
        if (range->lo <= range->hi) {
            lo = range->lo < lo ? range->lo : lo;
            hi = range->hi > hi ? range->hi : hi;
        }
    }
    return tally__affine_of(n, lo, hi);
}

static void encode_shard(const struct tally__codec *codec, const size_t *start, size_t n_segments,
                         const struct tally__range *shard)
{
    struct tally__tensors *tensors = codec->tensors;

    for (size_t s = 0; s < n_segments; s++) {
        size_t first;
        size_t n = part_of(start, s, shard, &first);

        tally__affine_encode(n, tensors->sum + (first - shard->start), tensors->means[s],
                             tensors->q + first);
    }
}

static void decode_all(const struct tally__codec *codec, const tally_lane *lane,
                       const size_t *start, size_t n_segments, const struct tally__layout *layout,
                       float *data)
{
    for (int r = 0; r < lane->group->size; r++) {
        struct tally__range shard = tally__shard_of(layout, lane->group->size, r);
        const uint8_t *q = at_rank(lane, codec->tensors, r, codec->tensors->q);

        for (size_t s = 0; s < n_segments; s++) {
            size_t first;
            size_t n = part_of(start, s, &shard, &first);

            tally__affine_decode(n, q + first, codec->tensors->means[s], data + first);
        }
    }
}

/* Sent: our bytes and maps to every other owner; our ranges and means to everybody. */
static uint64_t bytes_sent(const tally_lane *lane, size_t n, size_t own, size_t n_segments)
{
    uint64_t n_others = (uint64_t)(lane->group->size - 1);

    return (n - own) + n_others * own +
           n_others * n_segments * (sizeof(struct tally__affine) + sizeof(struct value_range));
}

static int per_tensor_exchange(const struct tally__codec *codec, tally_lane *lane,
                               struct tally__call *call, void *data, size_t n)
{
    struct tally__tensors *tensors = codec->tensors;
    const struct tally__layout layout = {.n = n, .block = TALLY__SHARD_UNIT};
    struct tally__range shard = tally__shard_of(&layout, lane->group->size, lane->group->rank);
    size_t n_segments;
    const size_t *start = starts_of(codec, n, &n_segments);

    if (n > tensors->n_max) {
        (void)tally__fail(TALLY_ARG, "%zu elements, but the codec was made for %zu", n,
                          tensors->n_max);
        return tally__refuse(lane, TALLY__KIND_EXCHANGE, TALLY_ARG);
    }
    call->offset = tally__offset_of(lane->group->domain, tensors->group_memory);
    /* The first round: everybody has done with what we sent the last time. */
    TRY(tally__round(lane, call));
    encode_all(tensors, start, n_segments, data);
    call->detail |= 1;
    TRY(tally__round(lane, call));
    reduce_shard(codec, lane, start, n_segments, &shard);
    call->detail |= 2;
    TRY(tally__round(lane, call));
    for (size_t s = 0; s < n_segments; s++) {
        tensors->means[s] = map_of_means(codec, lane, s, start[s + 1] - start[s]);
    }
    encode_shard(codec, start, n_segments, &shard);
    call->detail |= 4;
    TRY(tally__round(lane, call));
    decode_all(codec, lane, start, n_segments, &layout, data);
    tally__count_sent(lane, bytes_sent(lane, n, shard.n, n_segments));
    return TALLY_OK;
}

static const struct tally__codec_ops per_tensor_ops = {
    .name = "per tensor",
    .id = 6,
    .exchange = per_tensor_exchange,
};

static size_t round_up(size_t bytes)
{
    return (bytes + TALLY__CACHE_LINE - 1) / TALLY__CACHE_LINE * TALLY__CACHE_LINE;
}

int tally__codec_per_tensor_make(tally_group *group, const struct tally__segments *segments,
                                 size_t n, double divisor, struct tally__codec *codec)
{
    size_t n_segments = segments ? segments->n : 1;
    size_t sent_bytes = round_up(n_segments * sizeof(struct tally__affine));
    size_t range_bytes = round_up(n_segments * sizeof(struct value_range));
    size_t shard_max = n / (size_t)group->size + 2 * TALLY__SHARD_UNIT;
    struct tally__tensors *made = tally__alloc(sizeof *made, "the per-tensor codec");
    unsigned char *memory;
    int rc = TALLY_NOMEM;

    if (!made) {
        return TALLY_NOMEM;
    }
    made->means = tally__alloc_array(n_segments, sizeof *made->means, "the per-tensor codec");
    made->sum = tally__alloc_array(shard_max, sizeof *made->sum, "the per-tensor codec");
    if (made->means && made->sum) {
        rc = group->domain->ops->alloc(group->domain, sent_bytes + range_bytes + n,
                                       &made->group_memory);
    }
    if (rc != TALLY_OK) {
        tally__free(made->means);
        tally__free(made->sum);
        tally__free(made);
        return rc;
    }
    memory = made->group_memory;
    made->n_max = n;
    made->sent = (void *)memory;
    made->ranges = (void *)(memory + sent_bytes);
    made->q = memory + sent_bytes + range_bytes;
    *codec = (struct tally__codec){.ops = &per_tensor_ops,
                                   .element_bytes = sizeof(float),
                                   .block = TALLY__SHARD_UNIT,
                                   .segments = segments,
                                   .divisor = divisor,
                                   .tensors = made};
    return TALLY_OK;
}

void tally__codec_per_tensor_free(tally_group *group, struct tally__codec *codec)
{
    struct tally__tensors *tensors = codec->tensors;

    group->domain->ops->free(group->domain, tensors->group_memory);
    tally__free(tensors->means);
    tally__free(tensors->sum);
    tally__free(tensors);
}
