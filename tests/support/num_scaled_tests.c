/* SPDX-License-Identifier: Apache-2.0 */
/* tally's own uint8 form: every instruction set against the reference; the reference against its
 * formula, and against what it promises where the formula would overflow. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

static const size_t blocks[] = {1, 5, 16, 33, 64, 512, 5000};
#define N_BLOCKS (sizeof blocks / sizeof blocks[0])

static size_t block_of(const struct num_case *c)
{
    return blocks[(c->n + c->shift) % N_BLOCKS];
}

static size_t n_blocks(const struct num_case *c)
{
    return (c->n + block_of(c) - 1) / block_of(c);
}

/* Infinity or NaN when a value is. */
static float largest(size_t n, const float *x)
{
    float most = 0.0f;

    for (size_t i = 0; i < n; i++) {
        most = isnan(x[i]) ? INFINITY : fmaxf(most, fabsf(x[i]));
    }
    return most;
}

/* The properties of a block of any size: codes in 1..255, values within half a step. */
static void check_block(const struct num_case *c, size_t n, const float *x, float scale,
                        const uint8_t *q)
{
    float most = largest(n, x);

    for (size_t i = 0; i < n; i++) {
        double value = (double)scale * (q[i] - 128.0);
        double error = fabs(value - (double)x[i]);

        num_assert(c, q[i] >= 1, i, "code 0");
        if (!isfinite(most)) {
            num_assert(c, isnan(scale) && q[i] == 128, i, "not a NaN");
        } else if (most == 0.0f) {
            num_assert(c, scale == 0.0f && q[i] == 128, i, "not 0");
        } else {
            num_assert(c, scale > 0.0f, i, "scale is 0");
            num_assert(c, error <= (double)scale * 0.5001, i, "more than half a step away");
        }
        if (most >= 0x1p-100f && isfinite(most)) {
            num_assert(c, scale == most / 127.0f, i, "scale");
            num_assert(c, (float)q[i] == 128.0f + rintf(x[i] * (127.0f / most)), i, "formula");
        }
    }
}

static void check_scaled_encode_blocks(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    size_t block = block_of(c);
    float *scale = num_output(c, n_blocks(c) * sizeof *scale, sizeof *scale);
    float *want_scale = num_output(c, n_blocks(c) * sizeof *scale, sizeof *scale);
    uint8_t *q = num_output(c, c->n, 1);
    uint8_t *want = num_output(c, c->n, 1);

    c->isa->kernels->scaled_encode_blocks(c->n, x, block, scale, q);
    tally__kernels_ref.scaled_encode_blocks(c->n, x, block, want_scale, want);
    num_assert_bytes(c, q, want, c->n);
    num_assert_bytes(c, scale, want_scale, n_blocks(c) * sizeof *scale);
    for (size_t b = 0; b < n_blocks(c); b++) {
        size_t n_here = c->n - b * block < block ? c->n - b * block : block;

        check_block(c, n_here, x + b * block, want_scale[b], want + b * block);
    }
}

/* One block of 40 values up to `most`, which is at position `at`; the others lie where a code
 * changes, so that one more rounding error shows. */
static void check_largest(const struct tally__isa *isa, float most, size_t at)
{
    struct num_case c = {.isa = isa, .n = 40, .shift = 0, .data = NUM_PLAIN};
    float x[40];
    uint8_t q[40];
    uint8_t want[40];
    float scale;
    float want_scale;

    for (size_t i = 0; i < c.n; i++) {
        x[i] = most * (((float)i * 3.0f + 0.5f) / 127.0f) * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    x[at] = -most;
    isa->kernels->scaled_encode_blocks(c.n, x, c.n, &scale, q);
    tally__kernels_ref.scaled_encode_blocks(c.n, x, c.n, &want_scale, want);
    num_assert_bytes(&c, &scale, &want_scale, sizeof scale);
    num_assert_bytes(&c, q, want, c.n);
    check_block(&c, c.n, x, scale, q);
}

void test_scaled_encode_blocks(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_scaled_encode_blocks);
    for (int exponent = -149; exponent < 128; exponent++) {
        for (size_t at = 0; at < 40; at += 13) {
            float most = ldexpf(1.0f, exponent);

            check_largest(isa, most, at);
            check_largest(isa, nextafterf(most, FLT_MAX), at);
            check_largest(isa, nextafterf(most, 0.0f), at);
        }
    }
    check_largest(isa, FLT_MAX, 39);
    check_largest(isa, INFINITY, 39);
    check_largest(isa, NAN, 3);
}

static float *random_scales(const struct num_case *c)
{
    return num_input_f32(c, n_blocks(c), 9);
}

/* Exact in a double before the one rounding. */
static float oracle_value(uint8_t q, float scale)
{
    return (float)((double)scale * ((double)q - 128.0));
}

static void check_scaled_decode_blocks(const struct num_case *c)
{
    const uint8_t *q = num_input_bytes(c, c->n, 1, c->n);
    const float *scale = random_scales(c);
    float *y = num_output(c, c->n * 4, 4);
    float *want = num_output(c, c->n * 4, 4);

    c->isa->kernels->scaled_decode_blocks(c->n, q, block_of(c), scale, y);
    tally__kernels_ref.scaled_decode_blocks(c->n, q, block_of(c), scale, want);
    num_assert_f32(c, y, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        float value = oracle_value(q[i], scale[i / block_of(c)]);

        num_assert(c, num_same_f32(want[i], value), i, "the oracle differs");
    }
}

void test_scaled_decode_blocks(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_scaled_decode_blocks);
}

/* One block: the codes of x + before; what they do not say is left over, or nothing where they say
 * no number. */
struct fed_back {
    const float *x;
    const float *before;
    float scale;
    const uint8_t *q;
    const float *after;
};

static void check_feedback(const struct num_case *c, size_t n, const struct fed_back *f)
{
    float v[5000] = {0};
    uint8_t want[5000];
    float want_scale = 0.0f;

    for (size_t i = 0; i < n; i++) {
        v[i] = (float)((double)f->x[i] + (double)f->before[i]);
    }
    tally__kernels_ref.scaled_encode_blocks(n, v, n, &want_scale, want);
    num_assert(c, num_same_f32(f->scale, want_scale), 0, "scale");
    num_assert_bytes(c, f->q, want, n);

    bool sound = isfinite(oracle_value(255, f->scale));

    for (size_t i = 0; i < n; i++) {
        float left = (float)((double)v[i] - (double)oracle_value(f->q[i], f->scale));

        num_assert(c, num_same_f32(f->after[i], sound ? left : 0.0f), i, "residual");
    }
}

static void check_scaled_encode_feedback_blocks(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    const float *before = num_input_f32(c, c->n, 2);
    size_t block = block_of(c);
    const struct tally__kernels *kernels[2] = {c->isa->kernels, &tally__kernels_ref};

    for (size_t set = 0; set < 2; set++) {
        float *after = num_output_copy(c, c->n * 4, 4, before);
        float *scale = num_output(c, n_blocks(c) * 4, 4);
        uint8_t *q = num_output(c, c->n, 1);

        kernels[set]->scaled_encode_feedback_blocks(c->n, x, after, block, scale, q);
        for (size_t b = 0; b < n_blocks(c); b++) {
            size_t at = b * block;
            size_t n_here = c->n - at < block ? c->n - at : block;

            check_feedback(c, n_here,
                           &(struct fed_back){x + at, before + at, scale[b], q + at, after + at});
        }
    }
}

/* One block of 40 values, at the ends of the range and beside a special one. */
static void check_feedback_of(const struct tally__isa *isa, float x, float before)
{
    struct num_case c = {.isa = isa, .n = 40, .shift = 0, .data = NUM_PLAIN};
    float values[40];
    float residual[40];
    float after[40];
    uint8_t q[40];
    float scale;

    for (size_t i = 0; i < c.n; i++) {
        values[i] = i % 7 == 3 ? x : (float)i * 0.01f;
        residual[i] = i % 7 == 3 ? before : -0.003f;
        after[i] = residual[i];
    }
    isa->kernels->scaled_encode_feedback_blocks(c.n, values, after, c.n, &scale, q);
    check_feedback(&c, c.n, &(struct fed_back){values, residual, scale, q, after});
    for (size_t i = 0; i < c.n; i++) {
        num_assert(&c, isfinite(after[i]), i, "a residual that is no number is kept");
    }
}

void test_scaled_encode_feedback_blocks(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_scaled_encode_feedback_blocks);
    check_feedback_of(isa, INFINITY, 0.0f);
    check_feedback_of(isa, -1.0f, NAN);
    check_feedback_of(isa, FLT_MAX, FLT_MAX);
    check_feedback_of(isa, -FLT_MAX, 0.0f);
    check_feedback_of(isa, FLT_MAX / 2, FLT_MAX / 2);
    check_feedback_of(isa, FLT_MAX / 4, FLT_MAX / 2);
    check_feedback_of(isa, -0.0f, -0.0f);
}
