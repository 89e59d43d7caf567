/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec with one scale per segment, against a reference that quantizes whole segments: empty
 * ones, ones that shards cut anywhere, constant ones, and ones with a NaN or an infinity in them.
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

#define MOST 100000

static size_t one[] = {0, MOST};
static size_t many[] = {0, 1, 1, 63, 64, 65, 500, 70000, 70000, 99999, MOST};
static size_t few[] = {0, 3, 3, 10};
static size_t none[] = {0, 0};
static size_t blocks[16];

struct plan {
    struct tally__segments segments;
    bool has_segments;
    unsigned seed;
    int spoilt_rank; /* has a NaN in its data; -1: nobody */
    float spoilt;
};

static const struct plan plans[] = {
    {{1, one, blocks}, false, 1, -1, 0},        {{1, one, blocks}, true, 2, -1, 0},
    {{10, many, blocks}, true, 3, -1, 0},       {{3, few, blocks}, true, 4, -1, 0},
    {{1, none, blocks}, true, 5, -1, 0},        {{10, many, blocks}, true, 6, 0, NAN},
    {{10, many, blocks}, true, 7, 1, INFINITY},
};

static size_t length_of(const struct plan *plan)
{
    return plan->segments.start[plan->segments.n];
}

static void fill(const struct plan *plan, int world, int rank, float *data)
{
    oracle_fill_finite(plan->seed, rank, length_of(plan), data);
    if (length_of(plan) > 400) {
        /* A constant segment, and one of which all ranks' values cancel. */
        for (size_t i = 65; i < 500; i++) {
            data[i] = rank % 2 ? -3 : 3;
        }
    }
    if (plan->spoilt_rank >= 0 && rank == plan->spoilt_rank % world) {
        data[500 + 33333] = plan->spoilt;
    }
}

static void code(const struct plan *plan, float *data)
{
    static uint8_t q[MOST];

    for (size_t s = 0; s < plan->segments.n; s++) {
        float *x = data + plan->segments.start[s];
        size_t n = plan->segments.start[s + 1] - plan->segments.start[s];
        struct tally__affine map;
        float lo;
        float hi;

        tally__minmax_f32(n, x, &lo, &hi);
        map = tally__affine_of(n, lo, hi);
        tally__affine_encode(n, x, map, q);
        tally__affine_decode(n, q, map, x);
    }
}

/* Filled by the main thread before the ranks start. */
static float expected[sizeof plans / sizeof plans[0]][MOST];

static void compute_expected(int world)
{
    static float scratch[MOST];

    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        for (int r = 0; r < world; r++) {
            fill(&plans[p], world, r, scratch);
            code(&plans[p], scratch);
            for (size_t i = 0; i < length_of(&plans[p]); i++) {
                expected[p][i] = r == 0 ? scratch[i] : expected[p][i] + scratch[i];
            }
        }
        for (size_t i = 0; i < length_of(&plans[p]); i++) {
            expected[p][i] /= (float)world;
        }
        code(&plans[p], expected[p]);
    }
}

struct work {
    struct tally__codec codec;
    float *data;
    size_t n;
};

static int job(tally_lane *lane, void *user)
{
    const struct work *work = user;
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE};

    return tally__exchange(lane, &work->codec, call, work->data, work->n);
}

static bool same(float a, float b)
{
    uint32_t a_bits;
    uint32_t b_bits;

    memcpy(&a_bits, &a, sizeof a_bits);
    memcpy(&b_bits, &b, sizeof b_bits);
    return a_bits == b_bits || (isnan(a) && isnan(b));
}

static int run_plan(tally_group *group, size_t p, float *data)
{
    const struct plan *plan = &plans[p];
    struct work work = {.data = data, .n = length_of(plan)};
    int world = tally_group_size(group);
    size_t start;
    size_t own;

    CHECK_OK(group, tally__codec_per_tensor_make(group, plan->has_segments ? &plan->segments : NULL,
                                                 work.n, world, &work.codec));
    tally_shard(work.n, world, tally_group_rank(group), &start, &own);
    /* Again and again with the same codec. */
    for (int i = 0; i < 3; i++) {
        /* N + (W - 2) n_r bytes, and to each other rank per segment a map and a range. */
        uint64_t bytes = work.n - own + (uint64_t)(world - 1) * (own + 16 * plan->segments.n);
        tally_future *future;

        fill(plan, world, tally_group_rank(group), data);
        CHECK_OK(group, tally_submit(group, 0, job, &work, &future));
        CHECK_OK(group, tally_future_wait(future));
        CHECK(group, tally_future_bytes_sent(future) == bytes);
        tally_future_free(future);
        for (size_t k = 0; k < work.n; k++) {
            CHECK(group, same(data[k], expected[p][k]));
        }
    }
    ranks_note(group, oracle_hash(TALLY_F32, work.n, data),
               ranks_hash(0, data, work.n * sizeof(float)));
    /* More than it was made for fails everywhere, and nothing else does. */
    work.n++;
    CHECK_STATUS(group, ranks_job(group, 0, job, &work), TALLY_ARG);
    tally__codec_per_tensor_free(group, &work.codec);
    return 0;
}

static int body(tally_group *group, void *user)
{
    float *data = ranks_buffer(group, (MOST + 1) * sizeof(float));

    (void)user;
    CHECK(group, data != NULL);
    for (size_t p = 0; p < sizeof plans / sizeof plans[0]; p++) {
        CHECK(group, run_plan(group, p, data) == 0);
    }
    ranks_buffer_free(group, data);
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        compute_expected(ranks_worlds[w]);
        n_failures += ranks_run_world(body, NULL, 1, ranks_worlds[w], true);
    }
    return n_failures != 0;
}
