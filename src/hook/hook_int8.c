/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook int8: uint8 with one scale per block, and error feedback for contributions and for the
 * means that the owner of a shard sends. Vectors and scalars, which are few and sensitive, travel
 * unquantized, in the wire type. Other dtypes than fp32 travel unchanged. On lanes, several at
 * once. State: the segments of buckets; residuals.h has the residuals.
 */
#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "exchange/two_phase.h"
#include "hook/bucket_segments.h"
#include "hook/hook.h"
#include "hook/kind.h"

struct int8 {
    struct tally__segment_table table; /* first member */
    bool feedback;
    bool accepts_nonfinite; /* infinity and NaN */
};

/* The part of segment s that lies in the shard, counted from the segment's start. */
static size_t owned_part(const struct tally__segments *segments, size_t s,
                         const struct tally__range *shard, size_t *first)
{
    size_t start = segments->start[s];
    size_t end = segments->start[s + 1];
    size_t shard_end = shard->start + shard->n;
    size_t from = start > shard->start ? start : shard->start;
    size_t to = end < shard_end ? end : shard_end;

    *first = from < to ? from - start : 0;
    return from < to ? to - from : 0;
}

/* Points the codec at the residuals: a rank that shadows sends zeros, and keeps its residual. */
static int find_feedback(const tally_group *group, const tally_bucket *bucket,
                         struct tally__bucket_segments *segments, size_t block)
{
    const struct tally__layout layout = {
        .n = bucket->n, .block = block, .segments = &segments->of_codec};
    struct tally__range shard =
        tally__shard_of(&layout, tally_group_size(group), tally_group_rank(group));
    struct tally__residuals *residuals = tally__reduction_here()->residuals;

    for (size_t s = 0; s < segments->of_codec.n; s++) {
        struct tally__residual *residual = &residuals->params[bucket->params[s].index];
        struct tally__owned *owned;
        size_t first;
        size_t n = owned_part(&segments->of_codec, s, &shard, &first);

        if (segments->raw[s]) {
            /* Residual of a hook that compressed this segment too. */
            if (!bucket->shadows) {
                tally__residual_deliver(residual, bucket->params[s].gradient);
            }
            continue;
        }
        TRY(tally__residual_allocate(residual, bucket->params[s].n));
        TRY(tally__residual_own(residual, first, n, bucket->n_ranks, &owned));
        segments->feedback[s] = (struct tally__feedback){bucket->shadows ? NULL : residual->sent,
                                                         owned->values, owned->first};
    }
    return TALLY_OK;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct int8 *int8 = state;
    struct tally__reduction *reduction = tally__reduction_here();
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE, .op = TALLY_MEAN};
    struct tally__codec codec = tally__codec_scaled(int8->table.block, bucket->divisor);
    struct tally__bucket_segments *segments;

    if (bucket->dtype != TALLY_F32) {
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    TRY(tally__bucket_segments_of(&int8->table, bucket, &segments));
    codec.segments = &segments->of_codec;
    codec.dtype = reduction->wire.dtype;
    codec.counts = reduction->wire.saturates ? &reduction->counts : NULL;
    codec.names = int8->accepts_nonfinite ? NULL : bucket;
    if (int8->feedback) {
        TRY(find_feedback(tally_lane_group(lane), bucket, segments, int8->table.block));
        codec.feedback = segments->feedback;
    }
    return tally__exchange(lane, &codec, call, bucket->data, bucket->n);
}

enum { BLOCK, EXEMPT, FEEDBACK, NONFINITE };

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const double *values = setting->values;
    const tally_hook_table table = {
        .size = sizeof table,
        .name = name,
        .concurrent = 1,
        .feedback = values[FEEDBACK] != 0,
        .attach = tally__segment_table_attach,
        .reduce = reduce,
        .detach = tally__segment_table_detach,
        .destroy = tally__segment_table_free,
    };
    struct int8 *int8 = tally__alloc(sizeof *int8, "a hook");

    (void)inner;
    if (!int8) {
        return TALLY_NOMEM;
    }
    int8->feedback = values[FEEDBACK] != 0;
    int8->accepts_nonfinite = values[NONFINITE] != 0;
    tally__segment_table_init(&int8->table, (size_t)values[BLOCK], values[EXEMPT] == 0);
    return tally__hook_make(&table, NULL, int8, hook);
}

static const struct tally__option options[] = {
    [BLOCK] = {.name = "block",
               .type = TALLY__OPTION_COUNT,
               .min = 64,
               .max = TALLY__BLOCK_MAX,
               .unit = 64,
               .accepts = "64..4096, a multiple of 64",
               .fallback = "512",
               .help = "elements that share one scale"},
    [EXEMPT] = TALLY__CHOICE_OPTION(
        "exempt", "vectors|none", "vectors",
        "what travels as numbers: parameters with fewer than two dimensions, or nothing"),
    [FEEDBACK] = TALLY__CHOICE_OPTION("feedback", "0|1", "1",
                                      "add what one step leaves out to the next one"),
    [NONFINITE] = TALLY__NONFINITE_OPTION,
};

const struct tally__hook_kind tally__hook_kind_int8 = {
    .row.name = "int8",
    .row.help =
        "a quarter of the bytes, with error feedback: where the link is slower than 10 Gbit/s",
    .row.n_options = sizeof options / sizeof options[0],
    .row.options = options,
    .make = make,
};
