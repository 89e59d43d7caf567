/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs that travel as bytes: per block a map (scale and zero point, or a scale alone) and a
 * byte per element; the elements of raw segments travel as numbers. On the wire, all maps of a
 * range come first, then its raw elements, then its bytes. The owner works block by block, so that
 * a block's sum stays in the nearest cache. Stateless except for the feedback.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "comm/doing.h"
#include "exchange/codec_u8.h"
#include "num/num.h"
#include "num/reduce.h"

/* The number of maps, raw elements and coded elements of a range, in the order of the wire. */
struct form {
    size_t n_maps;
    size_t n_raw;
    size_t n_coded;
};

/* The next run of the range; seen counts the runs before it. False at the end of the range. */
static bool next_run(const struct tally__codec *codec, const struct tally__range *range,
                     struct form *seen, struct tally__run *run)
{
    const struct tally__segments *segments = codec->segments;
    size_t start = seen->n_raw + seen->n_coded;
    size_t end = range->n;

    if (start == range->n) {
        return false;
    }
    *run = (struct tally__run){.start = start, .offset = range->start + start, .map = seen->n_maps};
    if (segments) {
        size_t segment_end;

        run->segment = tally__segment_at(segments, range->start + start);
        run->raw = segments->raw && segments->raw[run->segment];
        run->offset = range->start + start - segments->start[run->segment];
        segment_end = segments->start[run->segment + 1] - range->start;
        end = segment_end < end ? segment_end : end;
    }
    assert(end > start);
    run->n = end - start;
    run->element = run->raw ? seen->n_raw : seen->n_coded;
    if (run->raw) {
        seen->n_raw += run->n;
    } else {
        seen->n_coded += run->n;
        seen->n_maps += tally__blocks_in(run->n, codec->block);
    }
    return true;
}

static struct form form_of(const struct tally__codec *codec, const struct tally__range *range)
{
    struct form form = {0};
    struct tally__run run;

    while (next_run(codec, range, &form, &run)) {
    }
    return form;
}

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

/* The contributions of all ranks to a range. */
struct inputs {
    size_t n;
    const void *const *wire;
    const struct tally__lists *lists;
};

/* One block, n elements, of all contributions: where its map and its bytes lie on the wire. */
struct block_offsets {
    size_t map_at;
    size_t q_at;
    size_t n;
};

/* The offsets on the wire of a run's maps, or of its elements if it is raw, and of its bytes. */
static size_t map_at(const struct task *task, const struct tally__run *run)
{
    return run->raw ? task->raw_at + run->element * task->raw_bytes : run->map * task->kind->bytes;
}

static size_t bytes_at(const struct task *task, const struct tally__run *run)
{
    assert(run->raw || task->bytes_at + run->element + run->n <= task->end);
    return task->bytes_at + run->element;
}

/* ---- raw elements ---- */

static void raw_encode(const struct tally__codec *codec, size_t n, const float *x, void *wire)
{
    if (codec->counts && codec->dtype != TALLY_F32) {
        codec->counts->saturated += tally__f32_to_f16_sat(n, x, wire);
    } else {
        tally__cast(TALLY_F32, codec->dtype, n, x, wire);
    }
}

static void raw_reduce(const struct task *task, const struct tally__run *run,
                       const struct inputs *inputs, void *result)
{
    const void **in = inputs->lists->run_inputs;
    size_t at = map_at(task, run);
    void *out = (unsigned char *)result + at;
    const struct tally__arrays arrays = {inputs->n, in, 1, &out, task->codec->divisor};

    for (size_t k = 0; k < inputs->n; k++) {
        in[k] = (const unsigned char *)inputs->wire[k] + at;
    }
    tally__reduce(task->codec->dtype, TALLY_MEAN, run->n, &arrays);
}

/* ---- coded elements ---- */

/* The parameter of a run without a scale. */
static const char *name_of(const struct tally__codec *codec, const struct tally__run *run)
{
    const tally_bucket *bucket = codec->names;
    size_t element;
    int k = 0;

    if (codec->segments) {
        return bucket->params[run->segment].name;
    }
    element = tally__find_nonfinite_f32(bucket->n, bucket->data);
    while (k + 1 < bucket->n_params && bucket->params[k + 1].offset <= element) {
        k++;
    }
    return bucket->params[k].name;
}

#define NO_SCALE \
    "the gradient of parameter '%s' has an infinity, a NaN, or values too far apart for 8 bits"

/* Refuses infinity and NaN: then some block has no scale. */
static int check_scales(const struct task *task, const struct tally__run *run, const void *maps)
{
    for (size_t b = 0; b < tally__blocks_in(run->n, task->codec->block); b++) {
        float scale;

        /* A map begins with its scale. */
        memcpy(&scale, (const unsigned char *)maps + b * task->kind->bytes, sizeof scale);
        if (!isfinite(scale)) {
            return tally__fail(TALLY_NUMERIC, NO_SCALE, name_of(task->codec, run));
        }
    }
    return TALLY_OK;
}

/* ---- the operations ---- */

int tally__byte_encode(const struct tally__codec *codec, const struct tally__range *range,
                       const void *data, void *wire)
{
    const struct task task = task_of(codec, range);
    const float *x = (const float *)data + range->start;
    struct form seen = {0};
    struct tally__run run;

    while (next_run(codec, range, &seen, &run)) {
        float *sent = codec->feedback ? codec->feedback[run.segment].sent : NULL;
        const struct tally__coded to = {.maps = (unsigned char *)wire + map_at(&task, &run),
                                        .q = (uint8_t *)wire + bytes_at(&task, &run),
                                        .feedback = sent ? sent + run.offset : NULL};

        if (run.raw) {
            raw_encode(codec, run.n, x + run.start, to.maps);
            continue;
        }
        task.kind->encode(codec, &run, x + run.start, &to);
        if (codec->names) {
            TRY(check_scales(&task, &run, to.maps));
        }
    }
    return TALLY_OK;
}

void tally__byte_decode(const struct tally__codec *codec, const struct tally__range *range,
                        const void *wire, void *data)
{
    const struct task task = task_of(codec, range);
    float *y = (float *)data + range->start;
    struct form seen = {0};
    struct tally__run run;

    while (next_run(codec, range, &seen, &run)) {
        const unsigned char *maps = (const unsigned char *)wire + map_at(&task, &run);

        if (run.raw) {
            tally__cast(codec->dtype, TALLY_F32, run.n, maps, y + run.start);
        } else {
            task.kind->decode(run.n, (const uint8_t *)wire + bytes_at(&task, &run), codec->block,
                              maps, y + run.start);
        }
    }
}

static struct block_offsets block_of(const struct task *task, const struct tally__run *run,
                                     size_t done)
{
    size_t block = task->codec->block;

    return (struct block_offsets){
        .map_at = map_at(task, run) + done / block * task->kind->bytes,
        .q_at = bytes_at(task, run) + done,
        .n = run->n - done < block ? run->n - done : block,
    };
}

static void mean_of_block(const struct task *task, const struct block_offsets *at,
                          const struct inputs *inputs, float *y)
{
    const uint8_t **q = inputs->lists->codes;
    unsigned char *maps = inputs->lists->maps;

    for (size_t k = 0; k < inputs->n; k++) {
        const unsigned char *from = inputs->wire[k];

        q[k] = from + at->q_at;
        memcpy(maps + k * task->kind->bytes, from + at->map_at, task->kind->bytes);
    }
    task->kind->sum(at->n, inputs->n, q, maps, (float)task->codec->divisor, y);
}

/* Encodes the means of a run, block by block, with the owner's residual. */
static void reduce_run(const struct task *task, const struct tally__run *run,
                       const struct inputs *inputs, void *result)
{
    const struct tally__codec of_means = {.block = task->codec->block};
    const struct tally__feedback *feedback = task->codec->feedback;
    float *owned = NULL;
    float sum[TALLY__BLOCK_MAX];

    if (feedback && feedback[run->segment].owned) {
        owned = feedback[run->segment].owned + run->offset - feedback[run->segment].owned_first;
    }
    for (size_t done = 0; done < run->n; done += task->codec->block) {
        struct block_offsets at = block_of(task, run, done);
        const struct tally__run block = {.n = at.n};
        const struct tally__coded to = {.maps = (unsigned char *)result + at.map_at,
                                        .q = (uint8_t *)result + at.q_at,
                                        .feedback = owned ? owned + done : NULL};

        mean_of_block(task, &at, inputs, sum);
        task->kind->encode(&of_means, &block, sum, &to);
    }
}

void tally__byte_reduce(const struct tally__codec *codec, const struct tally__range *range,
                        size_t n_in, const void *const *wire, void *result)
{
    const struct task task = task_of(codec, range);
    const struct inputs inputs = {n_in, wire, codec->lists};
    struct form seen = {0};
    struct tally__run run;

    while (next_run(codec, range, &seen, &run)) {
        (run.raw ? raw_reduce : reduce_run)(&task, &run, &inputs, result);
    }
}

void tally__byte_mean(const struct tally__codec *codec, const struct tally__range *range,
                      size_t n_in, const void *const *wire, void *data)
{
    const struct task task = task_of(codec, range);
    const struct inputs inputs = {n_in, wire, codec->lists};
    float *y = (float *)data + range->start;
    struct form seen = {0};
    struct tally__run run;

    while (next_run(codec, range, &seen, &run)) {
        for (size_t done = 0; done < run.n; done += codec->block) {
            struct block_offsets at = block_of(&task, &run, done);

            mean_of_block(&task, &at, &inputs, y + run.start + done);
        }
    }
}

size_t tally__byte_wire_bytes(const struct tally__codec *codec, const struct tally__range *range)
{
    return task_of(codec, range).end;
}

size_t tally__byte_block_bytes(const struct tally__codec *codec)
{
    /* A raw block has a quarter of the elements, of 4 bytes at most. */
    return codec->block + codec->map_kind->bytes;
}

int tally__byte_reduce_direct(const struct tally__codec *codec, const struct tally__range *range,
                              const struct tally__direct *direct)
{
    const void **in = codec->lists->run_inputs;
    void **out = codec->lists->run_outputs;
    const struct tally__direct here = {direct->n_in, in,           direct->n_out,
                                       out,          direct->told, direct->ranks};
    struct form seen = {0};
    struct tally__run run;

    while (next_run(codec, range, &seen, &run)) {
        size_t rank;

        for (size_t k = 0; k < direct->n_in; k++) {
            in[k] = (const float *)direct->in[k] + run.start;
        }
        for (size_t k = 0; k < direct->n_out; k++) {
            out[k] = (float *)direct->out[k] + run.start;
        }
        rank = codec->map_kind->direct(codec, &run, &here);
        if (rank < direct->n_in && codec->names) {
            return tally__fail(TALLY_NUMERIC, "%s: " NO_SCALE,
                               tally__rank_text(direct->ranks, (int)rank).text,
                               name_of(codec, &run));
        }
    }
    return TALLY_OK;
}
