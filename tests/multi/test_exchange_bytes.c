/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange with codecs of bytes in all their ways, against a reference that knows neither
 * shards nor pieces: segments that travel as numbers, one map per segment, gathering, and feedback
 * over several exchanges. Segments lie in one block, across shards, and across pieces. And the
 * bytes that were sent, with shards counted here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/codec.h"
#include "exchange/two_phase.h"
#include "num/num.h"
#include "support/oracle.h"
#include "support/ranks.h"

#define MOST 300000
#define MOST_SEGMENTS 12
#define MOST_WORLD 8
#define N_ROUNDS RANKS_REPEATS(3, 2) /* exchanges that follow each other, for feedback */
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Segments, by their ends; those that travel as numbers, one bit each. */
struct cut {
    size_t n;
    size_t end[MOST_SEGMENTS];
    unsigned raw;
};

static const struct cut many = {
    11, {1, 1, 514, 515, 1027, 1028, 6000, 6001, 40000, 40000, 50001}, 0x2a5};
static const struct cut few = {3, {3, 3, 700}, 1};
static const struct cut large = {4, {70000, 70001, 200000, 299999}, 2};
static const struct cut largest = {1, {MOST}, 0};
static const struct cut numbers = {2, {5000, 90001}, 3};

struct way {
    const struct cut *cut;
    size_t block;
    bool affine; /* else scaled */
    bool maps;   /* one per segment, for what is sent */
    bool gathers;
    bool feedback;
    int raw_dtype;
};

static const struct way ways[] = {
    {.cut = &many, .block = 512, .raw_dtype = TALLY_F32},
    {.cut = &many, .block = 512, .raw_dtype = TALLY_F16},
    {.cut = &many, .block = 64, .raw_dtype = TALLY_BF16},
    {.cut = &many, .block = 512, .affine = true, .raw_dtype = TALLY_F32},
    {.cut = &numbers, .block = 512, .raw_dtype = TALLY_F32},
    {.cut = &numbers, .block = 4096, .raw_dtype = TALLY_BF16},
    {.cut = &few, .block = 64, .raw_dtype = TALLY_F16},
    {.cut = &large, .block = 4096, .affine = true, .maps = true},
    {.cut = &largest, .block = 4096, .affine = true, .maps = true},
    {.cut = &many, .block = 16, .affine = true, .maps = true},
    {.cut = &large, .block = 4096, .affine = true, .maps = true, .gathers = true},
    {.cut = &few, .block = 4096, .affine = true, .maps = true, .gathers = true},
    {.cut = &many, .block = 16, .affine = true, .gathers = true},
    {.cut = &largest, .block = 512, .affine = true, .gathers = true},
    {.cut = &largest, .block = 100, .gathers = true},
    {.cut = &many, .block = 512, .feedback = true, .raw_dtype = TALLY_F32},
    {.cut = &large, .block = 64, .feedback = true, .raw_dtype = TALLY_BF16},
    {.cut = &largest, .block = 512, .feedback = true},
    {.cut = &few, .block = 512, .feedback = true, .raw_dtype = TALLY_F16},
};

static size_t start_of(const struct cut *cut, size_t s)
{
    return s == 0 ? 0 : cut->end[s - 1];
}

/* Only scaled codecs know raw segments and all others have none. */
static bool is_raw(const struct way *way, size_t s)
{
    return !way->maps && !way->gathers && way->cut->raw >> s & 1;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the reference ---- */

static float to_raw_and_back(int dtype, float x)
{
    if (dtype == TALLY_F32) {
        return x;
    }
    return dtype == TALLY_F16 ? oracle_from_half(oracle_to_half(x))
                              : oracle_from_bfloat(oracle_to_bfloat(x));
}

/* There and back, n elements with one map. */
static void code_block(const struct way *way, size_t n, float *x)
{
    static uint8_t q[MOST];

    if (way->affine) {
        struct tally__affine map = {0};

        (way->gathers ? tally__affine_encode_blocks : tally__affine_encode_fast_blocks)(n, x, n,
                                                                                        &map, q);
        tally__affine_decode_blocks(n, q, n, &map, x);
    } else {
        float scale = 0;

        tally__scaled_encode_blocks(n, x, n, &scale, q);
        tally__scaled_decode_blocks(n, q, n, &scale, x);
    }
}

/* There and back, all of it, with one map per segment if so. residual, if there is one, is added
 * first, and becomes what is left out. */
static void code(const struct way *way, bool maps, float *residual, float *x)
{
    for (size_t s = 0; s < way->cut->n; s++) {
        size_t end = way->cut->end[s];
        size_t length = maps ? MOST : way->block;

        for (size_t i = start_of(way->cut, s); i < end && is_raw(way, s); i++) {
            x[i] = to_raw_and_back(way->raw_dtype, x[i]);
        }
        for (size_t i = start_of(way->cut, s); i < end && !is_raw(way, s); i += length) {
            size_t n = smaller(length, end - i);

            for (size_t e = i; e < i + n && residual; e++) {
                x[e] += residual[e];
                residual[e] = x[e];
            }
            code_block(way, n, x + i);
            for (size_t e = i; e < i + n && residual; e++) {
                residual[e] -= x[e];
            }
        }
    }
}

static uint64_t expected[COUNT(ways)][N_ROUNDS];

static double divisor_of(size_t w, int world)
{
    return w % 2 ? world : 1.0 / 3;
}

static size_t length_of(const struct way *way)
{
    return way->cut->end[way->cut->n - 1];
}

/* Data of several pieces need not be in a large world too. */
static bool is_worth_it(const struct way *way, int world)
{
    return length_of(way) <= (size_t)RANKS_REPEATS(MOST, world > 3 ? 60000 : MOST);
}

static void expect(size_t w, int world)
{
    static float sent[MOST_WORLD][MOST];
    static float owned[MOST];
    static float sum[MOST];
    static float next[MOST];
    const struct way *way = &ways[w];
    float divisor = (float)divisor_of(w, world);
    size_t n = length_of(way);

    memset(sent, 0, sizeof sent);
    memset(owned, 0, sizeof owned);
    for (unsigned t = 0; t < N_ROUNDS; t++) {
        for (int r = 0; r < world; r++) {
            oracle_fill_finite((unsigned)w + t, r, n, next);
            code(way, way->maps, way->feedback ? sent[r] : NULL, next);
            for (size_t i = 0; i < n; i++) {
                sum[i] = r == 0 ? next[i] : sum[i] + next[i];
            }
        }
        for (size_t i = 0; i < n; i++) {
            sum[i] /= divisor;
        }
        if (!way->gathers) {
            code(way, false, way->feedback ? owned : NULL, sum);
        }
        expected[w][t] = ranks_hash(0, sum, n * sizeof *sum);
    }
}

/* ---- shards and bytes ---- */

/* Blocks of the whole; and of those first..end-1 the elements, where they start, and the bytes. */
struct part {
    size_t n_blocks;
    size_t start;
    size_t n;
    uint64_t bytes;
};

static struct part part_of(const struct way *way, size_t first, size_t end)
{
    struct part part = {.start = SIZE_MAX};

    for (size_t s = 0; s < way->cut->n; s++) {
        size_t length = is_raw(way, s) ? way->block / 4 : way->block;

        for (size_t i = start_of(way->cut, s); i < way->cut->end[s]; i += length) {
            size_t n = smaller(length, way->cut->end[s] - i);

            if (part.n_blocks >= first && part.n_blocks < end) {
                part.start = smaller(part.start, i);
                part.n += n;
                part.bytes += is_raw(way, s) ? n * tally_dtype_bytes(way->raw_dtype)
                                             : n + (way->affine ? 8 : 4);
            }
            part.n_blocks++;
        }
    }
    return part;
}

static struct part shard_of(const struct way *way, int world, int rank)
{
    size_t n = part_of(way, 0, 0).n_blocks;

    return part_of(way, n * (size_t)rank / (size_t)world, n * ((size_t)rank + 1) / (size_t)world);
}

static uint64_t bytes_of(const struct way *way, int world, int rank)
{
    uint64_t all = part_of(way, 0, SIZE_MAX).bytes;
    uint64_t own = shard_of(way, world, rank).bytes;

    if (way->gathers || (all <= ranks_one_phase_bytes() && !way->feedback)) {
        return (uint64_t)(world - 1) * all;
    }
    return all - own + (uint64_t)(world - 1) * own;
}

/* ---- runs ---- */

struct work {
    const struct way *way;
    size_t w;
    float *data;
    float *sent;
    float *owned; /* by the element's place in the whole */
    size_t start[MOST_SEGMENTS + 1];
    size_t first_block[MOST_SEGMENTS + 1];
    bool raw[MOST_SEGMENTS];
    struct tally__affine maps[MOST_SEGMENTS];
    struct tally__feedback feedback[MOST_SEGMENTS];
};

static void point_feedback(struct work *work, const tally_group *group)
{
    struct part shard = shard_of(work->way, tally_group_size(group), tally_group_rank(group));

    for (size_t s = 0; s < work->way->cut->n; s++) {
        size_t start = work->start[s];
        size_t from = start > shard.start ? start : shard.start;

        /* Nothing of a segment that we do not own is to be touched. */
        work->feedback[s] = (struct tally__feedback){
            .sent = work->sent + start,
            .owned = from < work->start[s + 1] && shard.n > 0 ? work->owned + from : NULL,
            .owned_first = from - start};
    }
}

static int job(tally_lane *lane, void *user)
{
    struct work *work = user;
    const struct way *way = work->way;
    tally_group *group = tally_lane_group(lane);
    struct tally__codec codec = (way->affine ? tally__codec_affine : tally__codec_scaled)(
        way->block, divisor_of(work->w, tally_group_size(group)));
    struct tally__segments segments = {way->cut->n, work->start, work->first_block, work->raw};
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE};

    for (size_t s = 0; s <= way->cut->n; s++) {
        work->start[s] = start_of(way->cut, s);
    }
    for (size_t s = 0; s < way->cut->n; s++) {
        work->raw[s] = is_raw(way, s);
        work->maps[s] = (struct tally__affine){0};
    }
    tally__segments_fill(&segments, way->block);
    point_feedback(work, group);
    codec.segments = &segments;
    codec.gathers = way->gathers;
    codec.dtype = way->raw_dtype;
    codec.maps = way->maps ? work->maps : NULL;
    codec.feedback = way->feedback ? work->feedback : NULL;
    return tally__exchange(lane, &codec, call, work->data, work->start[way->cut->n]);
}

static int run_way(tally_group *group, struct work *work)
{
    const struct way *way = work->way;
    size_t n = length_of(way);

    memset(work->sent, 0, MOST * sizeof *work->sent);
    memset(work->owned, 0, MOST * sizeof *work->owned);
    for (unsigned t = 0; t < N_ROUNDS; t++) {
        tally_future *future;

        oracle_fill_finite((unsigned)work->w + t, tally_group_rank(group), n, work->data);
        CHECK_OK(group, tally_submit(group, 0, job, work, &future));
        CHECK_OK(group, tally_future_wait(future));
        CHECK(group, tally_future_bytes_sent(future) ==
                         bytes_of(way, tally_group_size(group), tally_group_rank(group)));
        tally_future_free(future);
        CHECK(group, ranks_hash(0, work->data, n * sizeof(float)) == expected[work->w][t]);
    }
    return 0;
}

static int run_ways(tally_group *group, struct work *work)
{
    for (size_t w = 0; w < COUNT(ways); w++) {
        work->way = &ways[w];
        work->w = w;
        if (is_worth_it(work->way, tally_group_size(group)) && run_way(group, work) != 0) {
            (void)fprintf(stderr, "way %zu\n", w);
            return RANKS_FAILED;
        }
    }
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct work work = {.data = ranks_buffer(group, MOST * sizeof(float)),
                        .sent = malloc(MOST * sizeof(float)),
                        .owned = malloc(MOST * sizeof(float))};
    int rc = RANKS_FAILED;

    (void)user;
    if (work.data && work.sent && work.owned) {
        rc = run_ways(group, &work);
    }
    if (rc == 0) {
        ranks_buffer_free(group, work.data);
    }
    free(work.sent);
    free(work.owned);
    return rc;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t k = 0; k < RANKS_N_WORLDS; k++) {
        const struct ranks threads = {.kind = RANKS_THREADS, .world = ranks_worlds[k], .lanes = 1};
        const struct ranks processes = {
            .kind = RANKS_PROCESSES, .memory = RANKS_HEAP, .world = ranks_worlds[k], .lanes = 1};

        for (size_t w = 0; w < COUNT(ways); w++) {
            if (is_worth_it(&ways[w], ranks_worlds[k])) {
                expect(w, ranks_worlds[k]);
            }
        }
        n_failures += ranks_run(&threads, body, NULL) + ranks_run(&processes, body, NULL);
    }
    return n_failures != 0;
}
