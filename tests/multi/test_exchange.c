/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange with every codec against a reference that has nothing in common with the engine: all
 * contributions encoded and decoded whole, added in rank order, divided, encoded and decoded again.
 * Lengths around blocks, shards and pieces; one phase and two; and the bytes that were sent.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/codec.h"
#include "exchange/two_phase.h"
#include "num/num.h"
#include "support/oracle.h"
#include "support/ranks.h"

#define MOST 300000

enum kind { PLAIN, HALF, BFLOAT, SATURATED, HALF_STEPS, BFLOAT_STEPS, AFFINE, SCALED };

/* One exchange, as the main thread plans it before the ranks start. */
struct exchanged {
    enum kind kind;
    unsigned seed;
    size_t block;
    const struct tally__segments *segments;
    size_t n;
    uint64_t hash; /* of the expected result */
};

#define MOST_CASES 256
static struct exchanged cases[MOST_CASES];
static size_t n_cases;

/* The data of a rank for its exchanges. */
struct rank_work {
    struct tally__counts counts; /* of values that saturate */
    const struct exchanged *x;
    float *data;
    float *input;
    float *result; /* of the whole exchange, for comparison with the scattered one */
    bool scatters;
    size_t start; /* our shard */
    size_t count;
};

static struct tally__codec codec_of(const struct exchanged *x, int world)
{
    double divisor = x->seed % 2 ? world : 1.0 / 3;
    struct tally__codec codec;

    switch (x->kind) {
    case PLAIN:
        return tally__codec_plain(TALLY_F32, TALLY_MEAN);
    case HALF:
        return tally__codec_half(&(struct tally__wire){.dtype = TALLY_F16}, divisor);
    case BFLOAT:
        return tally__codec_half(&(struct tally__wire){.dtype = TALLY_BF16}, divisor);
    case SATURATED:
        return tally__codec_half(&(struct tally__wire){.dtype = TALLY_F16, .saturates = true},
                                 divisor);
    case HALF_STEPS:
        return tally__codec_half(&(struct tally__wire){.dtype = TALLY_F16, .stepwise = true},
                                 divisor);
    case BFLOAT_STEPS:
        return tally__codec_half(&(struct tally__wire){.dtype = TALLY_BF16, .stepwise = true},
                                 divisor);
    case AFFINE:
        codec = tally__codec_affine(x->block, divisor);
        break;
    default:
        codec = tally__codec_scaled(x->block, divisor);
    }
    codec.segments = x->segments;
    return codec;
}

/* ---- the reference ---- */

/* There and back, one block. */
static void code_block(enum kind kind, size_t n, float *x)
{
    uint8_t q[TALLY__BLOCK_MAX];

    if (kind == AFFINE) {
        struct tally__affine map;

        tally__affine_encode_fast_blocks(n, x, n, &map, q);
        tally__affine_decode_blocks(n, q, n, &map, x);
    } else {
        float scale;

        tally__scaled_encode_blocks(n, x, n, &scale, q);
        tally__scaled_decode_blocks(n, q, n, &scale, x);
    }
}

/* There and back, one element; what saturates stays below infinity. */
static float code_half(enum kind kind, float x)
{
    if (kind == BFLOAT || kind == BFLOAT_STEPS) {
        return oracle_from_bfloat(oracle_to_bfloat(x));
    }
    if (kind == SATURATED) {
        x = fminf(fmaxf(x, -65504), 65504);
    }
    return oracle_from_half(oracle_to_half(x));
}

/* Encodes and decodes all of it: blocks restart with each segment. */
static void code(const struct exchanged *x, float *data)
{
    const size_t whole[2] = {0, x->n};
    const size_t *start = x->segments ? x->segments->start : whole;
    size_t n_segments = x->segments ? x->segments->n : 1;

    if (x->kind != PLAIN && x->kind < AFFINE) {
        for (size_t i = 0; i < x->n; i++) {
            data[i] = code_half(x->kind, data[i]);
        }
    } else if (x->kind != PLAIN) {
        for (size_t s = 0; s < n_segments; s++) {
            for (size_t i = start[s]; i < start[s + 1]; i += x->block) {
                size_t left = start[s + 1] - i;

                code_block(x->kind, left < x->block ? left : x->block, data + i);
            }
        }
    }
}

static uint64_t compute_hash(const struct exchanged *x, int world)
{
    static float expected[MOST];
    static float scratch[MOST];
    bool steps = x->kind == HALF_STEPS || x->kind == BFLOAT_STEPS;
    float divisor = x->kind == PLAIN ? (float)world : (float)codec_of(x, world).divisor;

    for (int r = 0; r < world; r++) {
        oracle_fill_finite(x->seed, r, x->n, scratch);
        code(x, scratch);
        /* Stepwise: divided first, and rounded after everything. */
        for (size_t i = 0; i < x->n && steps; i++) {
            scratch[i] = code_half(x->kind, scratch[i] / divisor);
        }
        for (size_t i = 0; i < x->n; i++) {
            expected[i] = r == 0 ? scratch[i] : expected[i] + scratch[i];
            expected[i] = steps ? code_half(x->kind, expected[i]) : expected[i];
        }
    }
    for (size_t i = 0; i < x->n && !steps; i++) {
        expected[i] /= divisor;
    }
    code(x, expected);
    return ranks_hash(0, expected, x->n * sizeof(float));
}

/* ---- bytes ---- */

static size_t n_blocks_between(const struct exchanged *x, size_t start, size_t n)
{
    size_t blocks = 0;

    if (!x->segments) {
        return (n + x->block - 1) / x->block;
    }
    for (size_t s = 0; s < x->segments->n; s++) {
        size_t first = x->segments->start[s] > start ? x->segments->start[s] : start;
        size_t end = x->segments->start[s + 1] < start + n ? x->segments->start[s + 1] : start + n;

        blocks += first < end ? (end - first + x->block - 1) / x->block : 0;
    }
    return blocks;
}

static uint64_t wire_bytes(const struct exchanged *x, size_t start, size_t n)
{
    switch (x->kind) {
    case PLAIN:
        return n * 4;
    case AFFINE:
        return n + 8 * n_blocks_between(x, start, n);
    case SCALED:
        return n + 4 * n_blocks_between(x, start, n);
    default:
        return n * 2;
    }
}

/* N + (W - 2) n_r elements of the codec in two phases; (W - 1) N in one; N - n_r without the second
 * phase. */
static uint64_t expected_bytes(const struct rank_work *work, int world)
{
    uint64_t all = wire_bytes(work->x, 0, work->x->n);
    uint64_t own = wire_bytes(work->x, work->start, work->count);

    if (work->scatters) {
        return all - own;
    }
    if (all <= ranks_one_phase_bytes()) {
        return (uint64_t)(world - 1) * all;
    }
    return world == 1 ? 0 : all + (uint64_t)(world - 2) * own;
}

/* ---- runs ---- */

static int job(tally_lane *lane, void *user)
{
    struct rank_work *work = user;
    tally_group *group = tally_lane_group(lane);
    struct tally__codec codec = codec_of(work->x, group->size);
    const struct tally__layout layout = {
        .n = work->x->n, .block = codec.block, .segments = work->x->segments};
    struct tally__range shard = tally__shard_of(&layout, group->size, group->rank);
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE};

    codec.counts = work->x->kind == SATURATED ? &work->counts : NULL;
    work->start = shard.start;
    work->count = shard.n;
    codec.scatters = work->scatters;
    return tally__exchange(lane, &codec, call, work->data, work->x->n);
}

static int run(tally_group *group, struct rank_work *work)
{
    tally_future *future;

    memcpy(work->data, work->input, work->x->n * sizeof(float));
    CHECK_OK(group, tally_submit(group, 0, job, work, &future));
    CHECK_OK(group, tally_future_wait(future));
    CHECK(group, tally_future_bytes_sent(future) == expected_bytes(work, tally_group_size(group)));
    tally_future_free(future);
    return 0;
}

static int fail_case(tally_group *group, const struct exchanged *x, const char *what)
{
    char text[160];

    (void)snprintf(text, sizeof text, "codec %d block %zu%s, %zu elements: %s", x->kind, x->block,
                   x->segments ? " with segments" : "", x->n, what);
    return ranks_fail(group, __FILE__, __LINE__, text);
}

/* Both ways; scattering is always two phases, so small data goes through one and two. */
static int run_both(tally_group *group, struct rank_work *work)
{
    size_t bytes = work->x->n * sizeof(float);
    uint64_t hash;

    oracle_fill_finite(work->x->seed, tally_group_rank(group), work->x->n, work->input);
    work->scatters = false;
    CHECK(group, run(group, work) == 0);
    hash = ranks_hash(0, work->data, bytes);
    ranks_note(group, hash, hash);
    if (hash != work->x->hash) {
        return fail_case(group, work->x, "not the expected result");
    }
    memcpy(work->result, work->data, bytes);
    work->scatters = true;
    CHECK(group, run(group, work) == 0);
    memcpy(work->input + work->start, work->result + work->start, work->count * sizeof(float));
    if (memcmp(work->data, work->input, bytes) != 0) {
        return fail_case(group, work->x, "the scattered result is another one");
    }
    return 0;
}

static int run_cases(tally_group *group, struct rank_work *work)
{
    for (size_t i = 0; i < n_cases; i++) {
        work->x = &cases[i];
        CHECK(group, run_both(group, work) == 0);
    }
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct rank_work work = {.data = ranks_buffer(group, MOST * sizeof(float)),
                             .input = malloc(MOST * sizeof(float)),
                             .result = malloc(MOST * sizeof(float))};
    int rc = RANKS_FAILED;

    (void)user;
    if (work.data && work.input && work.result) {
        rc = run_cases(group, &work);
    }
    if (rc == 0) {
        ranks_buffer_free(group, work.data);
    }
    free(work.input);
    free(work.result);
    return rc;
}

/* ---- cases ---- */

static void add_case(struct exchanged x, int world)
{
    /* Data of several pieces need not be in a large world too. */
    if (x.n > (size_t)RANKS_REPEATS(MOST, world > 3 ? 60000 : MOST)) {
        return;
    }
    if (n_cases == MOST_CASES) {
        (void)fprintf(stderr, "too many cases\n");
        exit(1);
    }
    x.seed = (unsigned)n_cases;
    x.hash = compute_hash(&x, world);
    cases[n_cases++] = x;
}

static void add_lengths(struct exchanged x, size_t world)
{
    struct tally__codec codec = codec_of(&x, (int)world);
    /* In a piece: the blocks that fit in one rank's part of a stage. */
    size_t part = TALLY__STAGE_BYTES / world / 64 * 64;
    size_t piece = part / codec.ops->block_bytes(&codec) * codec.block;
    const size_t lengths[] = {0,
                              1,
                              codec.block - 1,
                              codec.block,
                              codec.block * world + 1,
                              codec.block * (2 * world + 1) - 1,
                              2049,
                              9001,
                              piece * world - 1,
                              piece * world + codec.block + 1};

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        x.n = lengths[i];
        add_case(x, (int)world);
    }
}

/* Segments of nothing, of less than a block, of many blocks and an end. */
static void add_segments(struct exchanged x, int world)
{
    static size_t many[] = {0, 1, 1, 514, 515, 1027, 1028, 6000, 6001, 40000, 40000, 50001};
    static size_t few[] = {0, 3, 3, 700};
    static size_t first_block[16][sizeof many / sizeof many[0]];
    static struct tally__segments segments[16];
    static size_t n_used;

    /* The ranks look at them when this function is long over. */
    for (int i = 0; i < 2; i++) {
        size_t at = n_used++ % 16;

        segments[at] = i == 0 ? (struct tally__segments){sizeof many / sizeof many[0] - 1, many,
                                                         first_block[at], NULL}
                              : (struct tally__segments){sizeof few / sizeof few[0] - 1, few,
                                                         first_block[at], NULL};
        tally__segments_fill(&segments[at], x.block);
        x.segments = &segments[at];
        x.n = segments[at].start[segments[at].n];
        add_case(x, world);
    }
}

static void make_cases(int world)
{
    static const struct exchanged codecs[] = {
        {.kind = PLAIN, .block = 64},        {.kind = HALF, .block = 64},
        {.kind = BFLOAT, .block = 64},       {.kind = AFFINE, .block = 512},
        {.kind = AFFINE, .block = 7},        {.kind = AFFINE, .block = 1},
        {.kind = SCALED, .block = 512},      {.kind = SCALED, .block = 100},
        {.kind = SCALED, .block = 7},        {.kind = AFFINE, .block = 4096},
        {.kind = SATURATED, .block = 64},    {.kind = HALF_STEPS, .block = 64},
        {.kind = BFLOAT_STEPS, .block = 64},
    };

    n_cases = 0;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        struct exchanged x = codecs[i];

        add_lengths(x, (size_t)world);
        if (x.kind == AFFINE || x.kind == SCALED) {
            add_segments(x, world);
        }
        if (i == 3 || RANKS_REPEATS(i == 1 || i == 7, false)) {
            x.n = MOST;
            add_case(x, world);
        }
    }
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        make_cases(ranks_worlds[w]);
        n_failures += ranks_run_world(body, NULL, 1, ranks_worlds[w], true);
    }
    return n_failures != 0;
}
