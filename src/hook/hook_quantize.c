/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hooks quantize_per_tensor and quantize_per_channel of PyTorch: uint8 with a scale and a zero
 * point per parameter or per block of elements. In two phases the owner of a shard sends the means
 * with a scale and a zero point per block. exchange=gather is PyTorch's arithmetic: each rank gets
 * all contributions, and the mean is not quantized. Other dtypes than fp32 travel unchanged. On
 * lanes, several at once. State: the segments of buckets.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "exchange/two_phase.h"
#include "hook/bucket_segments.h"
#include "hook/hook.h"
#include "hook/kind.h"
#include "num/num.h"

/* Elements per map of the means, where a contribution has one map per parameter. */
#define TENSOR_BLOCK TALLY__BLOCK_MAX

/* Computing a parameter's map takes a pass over its elements, which should stay in the cache until
 * they are encoded. */
#define CACHED_ELEMENTS ((size_t)1 << 20)

struct quantize {
    struct tally__segment_table table; /* first member */
    bool per_tensor;
    bool of_bucket; /* the whole bucket is one tensor */
    bool gathers;
    bool accepts_nonfinite; /* infinity and NaN */
};

/* The map of a bucket that is one tensor; maps of parameters are computed during encoding. */
static struct tally__affine map_of(const tally_bucket *bucket)
{
    float lo;
    float hi;

    tally__minmax_f32(bucket->n, bucket->data, &lo, &hi);
    return tally__affine_of(bucket->n, lo, hi);
}

static int reduce_together(struct quantize *quantize, tally_lane *lane, const tally_bucket *bucket)
{
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE, .op = TALLY_MEAN};
    struct tally__codec codec = tally__codec_affine(quantize->table.block, bucket->divisor);
    struct tally__bucket_segments *segments;

    TRY(tally__bucket_segments_of(&quantize->table, bucket, &segments));
    codec.segments = quantize->of_bucket ? NULL : &segments->of_codec;
    codec.gathers = quantize->gathers;
    codec.names = quantize->accepts_nonfinite ? NULL : bucket;
    if (quantize->per_tensor) {
        memset(segments->maps, 0, segments->of_codec.n * sizeof *segments->maps);
        codec.maps = segments->maps;
        if (quantize->of_bucket) {
            segments->maps[0] = map_of(bucket);
        }
    }
    return tally__exchange(lane, &codec, call, bucket->data, bucket->n);
}

/* The bucket's parameters from first on that stay in the caches together, one at least. */
static tally_bucket part_of(const tally_bucket *bucket, int first)
{
    tally_bucket part = *bucket;

    part.params += first;
    part.data = part.params[0].gradient;
    part.n = part.params[0].n;
    part.n_params = 1;
    while (first + part.n_params < bucket->n_params &&
           part.n + part.params[part.n_params].n <= CACHED_ELEMENTS) {
        part.n += part.params[part.n_params++].n;
    }
    return part;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct quantize *quantize = state;

    if (bucket->dtype != TALLY_F32) {
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    if (!quantize->per_tensor || quantize->of_bucket) {
        return reduce_together(quantize, lane, bucket);
    }
    for (int k = 0; k < bucket->n_params;) {
        tally_bucket part = part_of(bucket, k);

        TRY(reduce_together(quantize, lane, &part));
        k += part.n_params;
    }
    return TALLY_OK;
}

/* The options, in the order of both lists; block is per channel only. */
enum { EXCHANGE, NONFINITE, SCOPE, BLOCK };

static int make(const char *name, const double *values, size_t block, tally_hook **hook)
{
    const tally_hook_table table = {
        .size = sizeof table,
        .name = name,
        .concurrent = 1,
        .attach = tally__segment_table_attach,
        .reduce = reduce,
        .detach = tally__segment_table_detach,
        .destroy = tally__segment_table_free,
    };
    const struct tally__hook_private private = {.layout_bound = values[SCOPE] != 0};
    struct quantize *quantize = tally__alloc(sizeof *quantize, "a hook");

    if (!quantize) {
        return TALLY_NOMEM;
    }
    quantize->gathers = values[EXCHANGE] != 0;
    quantize->accepts_nonfinite = values[NONFINITE] != 0;
    quantize->of_bucket = values[SCOPE] != 0;
    tally__segment_table_init(&quantize->table, block, false);
    return tally__hook_make(&table, &private, quantize, hook);
}

static int make_per_tensor(const char *name, const struct tally__setting *setting,
                           tally_hook *inner, tally_hook **hook)
{
    const double *values = setting->values;

    (void)inner;
    TRY(make(name, values, TENSOR_BLOCK, hook));
    ((struct quantize *)(*hook)->state)->per_tensor = true;
    return TALLY_OK;
}

static int make_per_channel(const char *name, const struct tally__setting *setting,
                            tally_hook *inner, tally_hook **hook)
{
    const double *values = setting->values;

    (void)inner;
    return make(name, values, (size_t)values[BLOCK], hook);
}

#define SHARED_OPTIONS                                                                     \
    TALLY__CHOICE_OPTION(                                                                  \
        "exchange", "two_phase|gather", "two_phase",                                       \
        "gather: PyTorch's arithmetic, with traffic that grows with the number of ranks"), \
        TALLY__NONFINITE_OPTION,                                                           \
        TALLY__CHOICE_OPTION("scope", "parameter|bucket", "parameter",                     \
                             "bucket: as PyTorch, which takes a bucket for one tensor")

static const struct tally__option tensor_options[] = {SHARED_OPTIONS};

const struct tally__hook_kind tally__hook_kind_per_tensor = {
    .row.name = "quantize_per_tensor",
    .row.help =
        "a quarter of the bytes, one scale per parameter: for comparison with PyTorch; int8 is "
        "better",
    .row.n_options = 3,
    .row.options = tensor_options,
    .make = make_per_tensor,
};

static const struct tally__option channel_options[] = {
    SHARED_OPTIONS,
    TALLY__COUNT_OPTION("block", 16, TALLY__BLOCK_MAX, "16..4096", "512",
                        "elements that share one scale"),
};

const struct tally__hook_kind tally__hook_kind_per_channel = {
    .row.name = "quantize_per_channel",
    .row.help =
        "a quarter of the bytes, one scale per block: stateless; int8 is better over many steps",
    .row.n_options = 4,
    .row.options = channel_options,
    .make = make_per_channel,
};
