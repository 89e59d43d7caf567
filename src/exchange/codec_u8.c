/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs that travel as bytes: per block of elements a map (scale and zero point, or a scale
 * alone) and a byte per element; the elements of raw segments travel as numbers. On the wire all
 * maps of a range come first, then its raw elements, then its bytes. The owner works block by
 * block, so that a block's sum stays in the nearest cache. Keep no state but the feedback.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "comm/open.h"
#include "exchange/codec.h"
#include "num/num.h"
#include "num/reduce.h"

/* A run of whole blocks within one segment: what a kernel can take in one call. */
struct run {
    size_t segment;
    bool raw;
    size_t start; /* first element, counted from the range's; the rest likewise */
    size_t n;
    size_t map;     /* maps before its own */
    size_t element; /* raw elements before its own if it is raw, else coded ones */
};

/* How many maps, raw elements and coded elements a range has: they lie in this order. */
struct form {
    size_t n_maps;
    size_t n_raw;
    size_t n_coded;
};

static size_t blocks_in(size_t n, size_t block)
{
    return n / block + (n % block != 0);
}

/* The next run of the range; seen is what the runs before it had. False at the range's end. */
static bool next_run(const struct tally__codec *codec, const struct tally__range *range,
                     struct form *seen, struct run *run)
{
    const struct tally__segments *segments = codec->segments;
    size_t start = seen->n_raw + seen->n_coded;
    size_t end = range->n;

    if (start == range->n) {
        return false;
    }
    *run = (struct run){.start = start, .map = seen->n_maps};
    if (segments) {
        size_t segment_end;

        run->segment = tally__segment_at(segments, range->start + start);
        run->raw = segments->raw && segments->raw[run->segment];
        segment_end = segments->start[run->segment + 1] - range->start;
        end = segment_end < end ? segment_end : end;
    }
    run->n = end - start;
    run->element = run->raw ? seen->n_raw : seen->n_coded;
    if (run->raw) {
        seen->n_raw += run->n;
    } else {
        seen->n_coded += run->n;
        seen->n_maps += blocks_in(run->n, codec->block);
    }
    return true;
}

static struct form form_of(const struct tally__codec *codec, const struct tally__range *range)
{
    struct form form = {0};
    struct run run;

    while (next_run(codec, range, &form, &run)) {
    }
    return form;
}

/* What all ranks sent for a range. */
struct inputs {
    size_t n;
    const void *const *wire;
};

/* One block, n elements, of all contributions: where its map and its bytes lie on the wire. */
struct block_place {
    size_t map_at;
    size_t q_at;
    size_t n;
};

/* What the two kinds of map do differently. */
struct tally__map_kind {
    size_t bytes;
    /* Encodes a run of blocks; feedback may be NULL. */
    void (*encode)(const struct tally__codec *codec, const struct run *run, const float *x,
                   float *feedback, void *maps, uint8_t *q);
    void (*decode)(size_t n, const uint8_t *q, size_t block, const void *maps, float *y);
    /* The mean of one block: n_in contributions, each from its byte map_at and q_at on. */
    void (*mean)(const struct block_place *at, const struct inputs *inputs, double divisor,
                 float *y);
    float (*scale)(const void *maps, size_t block);
};

/* A range to be coded, and where its parts lie on the wire. */
struct task {
    const struct tally__codec *codec;
    const struct tally__map_kind *kind;
    const struct tally__range *range;
    size_t raw_bytes; /* of an element */
    size_t raw_at;
    size_t bytes_at;
    size_t end;
};

static struct task task_of(const struct tally__codec *codec, const struct tally__range *range)
{
    struct form form = form_of(codec, range);
    struct task task = {.codec = codec, .kind = codec->map_kind, .range = range};

    task.raw_bytes = tally_dtype_bytes(codec->dtype);
    task.raw_at = form.n_maps * task.kind->bytes;
    task.bytes_at = task.raw_at + form.n_raw * task.raw_bytes;
    task.end = task.bytes_at + form.n_coded;
    return task;
}

/* Where a run's maps, or elements if it is raw, and its bytes lie on the wire. */
static size_t map_at(const struct task *task, const struct run *run)
{
    return run->raw ? task->raw_at + run->element * task->raw_bytes : run->map * task->kind->bytes;
}

static size_t bytes_at(const struct task *task, const struct run *run)
{
    return task->bytes_at + run->element;
}

/* ---- raw elements ---- */

static void raw_encode(const struct tally__codec *codec, size_t n, const float *x, void *wire)
{
    if (codec->dtype == TALLY_F32) {
        tally__copy(n * sizeof *x, (const uint8_t *)x, wire);
    } else if (codec->counts_for) {
        tally__count_saturated(codec->counts_for, tally__f32_to_f16_sat(n, x, wire));
    } else {
        (codec->dtype == TALLY_F16 ? tally__f32_to_f16 : tally__f32_to_bf16)(n, x, wire);
    }
}

static void raw_decode(int dtype, size_t n, const void *wire, float *y)
{
    if (dtype == TALLY_F32) {
        tally__copy(n * sizeof *y, wire, (uint8_t *)y);
    } else {
        (dtype == TALLY_F16 ? tally__f16_to_f32 : tally__bf16_to_f32)(n, wire, y);
    }
}

static void raw_reduce(const struct task *task, const struct run *run, const struct inputs *inputs,
                       void *result)
{
    const void *in[TALLY__MAX_WORLD];
    size_t at = map_at(task, run);
    void *out = (unsigned char *)result + at;
    const struct tally__arrays arrays = {inputs->n, in, 1, &out, task->codec->divisor};

    for (size_t k = 0; k < inputs->n; k++) {
        in[k] = (const unsigned char *)inputs->wire[k] + at;
    }
    tally__reduce(task->codec->dtype, TALLY_MEAN, run->n, &arrays);
}

/* ---- runs of either kind ---- */

/* Which element of its segment a run starts with. */
static size_t run_offset(const struct task *task, const struct run *run)
{
    const struct tally__segments *segments = task->codec->segments;

    return task->range->start + run->start - (segments ? segments->start[run->segment] : 0);
}

static const char *name_at(const tally_bucket *bucket, size_t element)
{
    int k = 0;

    while (k + 1 < bucket->n_params && bucket->params[k + 1].offset <= element) {
        k++;
    }
    return bucket->params[k].name;
}

/* Refuses what is no number: then some block has no scale. */
static int check_scales(const struct task *task, const struct run *run, const void *maps)
{
    const tally_bucket *bucket = task->codec->names;
    size_t n_blocks = blocks_in(run->n, task->codec->block);
    size_t b = 0;
    size_t element;

    while (b < n_blocks && isfinite(task->kind->scale(maps, b))) {
        b++;
    }
    if (b == n_blocks) {
        return TALLY_OK;
    }
    element = tally__find_nonfinite_f32(bucket->n, bucket->data);
    if (element < bucket->n) {
        return tally__fail(TALLY_NUMERIC, "the gradient of parameter '%s' has an infinity or a NaN",
                           name_at(bucket, element));
    }
    return tally__fail(TALLY_NUMERIC,
                       "the gradient of parameter '%s' has values too far apart for 8 bits",
                       name_at(bucket, task->range->start + run->start));
}

static int encode_range(const struct task *task, const void *data, void *wire)
{
    const struct tally__codec *codec = task->codec;
    const float *x = (const float *)data + task->range->start;
    struct form seen = {0};
    struct run run;

    while (next_run(codec, task->range, &seen, &run)) {
        unsigned char *maps = (unsigned char *)wire + map_at(task, &run);
        float *sent = codec->feedback ? codec->feedback[run.segment].sent : NULL;

        if (run.raw) {
            raw_encode(codec, run.n, x + run.start, maps);
            continue;
        }
        task->kind->encode(codec, &run, x + run.start, sent ? sent + run_offset(task, &run) : NULL,
                           maps, (uint8_t *)wire + bytes_at(task, &run));
        if (codec->names) {
            TRY(check_scales(task, &run, maps));
        }
    }
    return TALLY_OK;
}

static void decode_range(const struct task *task, const void *wire, void *data)
{
    const struct tally__codec *codec = task->codec;
    float *y = (float *)data + task->range->start;
    struct form seen = {0};
    struct run run;

    while (next_run(codec, task->range, &seen, &run)) {
        const unsigned char *maps = (const unsigned char *)wire + map_at(task, &run);

        if (run.raw) {
            raw_decode(codec->dtype, run.n, maps, y + run.start);
        } else {
            task->kind->decode(run.n, (const uint8_t *)wire + bytes_at(task, &run), codec->block,
                               maps, y + run.start);
        }
    }
}

static struct block_place block_of(const struct task *task, const struct run *run, size_t done)
{
    size_t block = task->codec->block;

    return (struct block_place){
        .map_at = map_at(task, run) + done / block * task->kind->bytes,
        .q_at = bytes_at(task, run) + done,
        .n = run->n - done < block ? run->n - done : block,
    };
}

/* The means of a run, block by block, encoded together with what the owner owes. */
static void reduce_run(const struct task *task, const struct run *run, const struct inputs *inputs,
                       void *result)
{
    const struct tally__codec of_means = {.block = task->codec->block};
    const struct tally__feedback *feedback = task->codec->feedback;
    float *owned = NULL;
    float sum[TALLY__BLOCK_MAX];

    if (feedback && feedback[run->segment].owned) {
        owned = feedback[run->segment].owned + run_offset(task, run) -
                feedback[run->segment].owned_first;
    }
    for (size_t done = 0; done < run->n; done += task->codec->block) {
        struct block_place at = block_of(task, run, done);
        const struct run block = {.n = at.n};

        task->kind->mean(&at, inputs, task->codec->divisor, sum);
        task->kind->encode(&of_means, &block, sum, owned ? owned + done : NULL,
                           (unsigned char *)result + at.map_at, (uint8_t *)result + at.q_at);
    }
}

static void reduce_range(const struct task *task, const struct inputs *inputs, void *result)
{
    struct form seen = {0};
    struct run run;

    while (next_run(task->codec, task->range, &seen, &run)) {
        (run.raw ? raw_reduce : reduce_run)(task, &run, inputs, result);
    }
}

static void mean_of_range(const struct task *task, const struct inputs *inputs, void *data)
{
    float *y = (float *)data + task->range->start;
    struct form seen = {0};
    struct run run;

    while (next_run(task->codec, task->range, &seen, &run)) {
        for (size_t done = 0; done < run.n; done += task->codec->block) {
            struct block_place at = block_of(task, &run, done);

            task->kind->mean(&at, inputs, task->codec->divisor, y + run.start + done);
        }
    }
}

/* ---- the operations ---- */

static size_t byte_wire_bytes(const struct tally__codec *codec, const struct tally__range *range)
{
    return task_of(codec, range).end;
}

static size_t byte_block_bytes(const struct tally__codec *codec)
{
    /* A raw block has a quarter of the elements, of 4 bytes at most. */
    return codec->block + codec->map_kind->bytes;
}

static int byte_encode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *data, void *wire)
{
    struct task task = task_of(codec, range);

    return encode_range(&task, data, wire);
}

static void byte_reduce(const struct tally__codec *codec, const struct tally__range *range,
                        size_t n_in, const void *const *wire, void *result)
{
    struct task task = task_of(codec, range);
    const struct inputs inputs = {n_in, wire};

    reduce_range(&task, &inputs, result);
}

static void byte_decode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *wire, void *data)
{
    struct task task = task_of(codec, range);

    decode_range(&task, wire, data);
}

static void byte_mean(const struct tally__codec *codec, const struct tally__range *range,
                      size_t n_in, const void *const *wire, void *data)
{
    struct task task = task_of(codec, range);
    const struct inputs inputs = {n_in, wire};

    mean_of_range(&task, &inputs, data);
}

#define BYTE_OPS                                                                           \
    .wire_bytes = byte_wire_bytes, .block_bytes = byte_block_bytes, .encode = byte_encode, \
    .reduce = byte_reduce, .decode = byte_decode, .mean = byte_mean

/* ---- affine: scale and zero point ---- */

static void affine_encode(const struct tally__codec *codec, const struct run *run, const float *x,
                          float *feedback, void *maps, uint8_t *q)
{
    struct tally__affine *map = maps;

    (void)feedback;
    /* Only where the result is to be PyTorch's does an element pay for a division. */
    if (!codec->maps) {
        (codec->gathers ? tally__affine_encode_blocks
                        : tally__affine_encode_fast_blocks)(run->n, x, codec->block, map, q);
        return;
    }
    for (size_t b = 0; b < blocks_in(run->n, codec->block); b++) {
        map[b] = codec->maps[run->segment];
    }
    (codec->gathers ? tally__affine_encode : tally__affine_encode_fast)(run->n, x, *map, q);
}

static void affine_decode(size_t n, const uint8_t *q, size_t block, const void *maps, float *y)
{
    tally__affine_decode_blocks(n, q, block, maps, y);
}

static void affine_mean(const struct block_place *at, const struct inputs *inputs, double divisor,
                        float *y)
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

static const struct tally__codec_ops affine_ops = {.name = "affine", .id = 4, BYTE_OPS};

struct tally__codec tally__codec_affine(size_t block, double divisor)
{
    return (struct tally__codec){.ops = &affine_ops,
                                 .map_kind = &affine_maps,
                                 .element_bytes = sizeof(float),
                                 .block = block,
                                 .divisor = divisor};
}

/* ---- scaled: a scale alone ---- */

static void scaled_encode(const struct tally__codec *codec, const struct run *run, const float *x,
                          float *feedback, void *maps, uint8_t *q)
{
    if (feedback) {
        tally__scaled_encode_feedback_blocks(run->n, x, feedback, codec->block, maps, q);
    } else {
        tally__scaled_encode_blocks(run->n, x, codec->block, maps, q);
    }
}

static void scaled_decode(size_t n, const uint8_t *q, size_t block, const void *maps, float *y)
{
    tally__scaled_decode_blocks(n, q, block, maps, y);
}

static void scaled_mean(const struct block_place *at, const struct inputs *inputs, double divisor,
                        float *y)
{
    const uint8_t *q[TALLY__MAX_WORLD];
    float scale[TALLY__MAX_WORLD];

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

static const struct tally__codec_ops scaled_ops = {.name = "scaled", .id = 5, BYTE_OPS};

struct tally__codec tally__codec_scaled(size_t block, double divisor)
{
    return (struct tally__codec){.ops = &scaled_ops,
                                 .map_kind = &scaled_maps,
                                 .element_bytes = sizeof(float),
                                 .block = block,
                                 .divisor = divisor};
}
