/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization with a zero point: every instruction set against the reference, the reference
 * against the formulas of PyTorch's hooks written with the mathematics library. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "num/num.h"
#include "support/num_check.h"
#include "support/num_tests.h"

static struct tally__affine oracle_affine(size_t n, const float *x)
{
    float lo = 0.0f;
    float hi = 0.0f;

    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            return (struct tally__affine){NAN, 0.0f};
        }
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }

    float scale = fmaxf((hi - lo) / 255.0f, 1.1920929e-07f);

    if (isinf(scale)) {
        return (struct tally__affine){scale, 0.0f};
    }
    return (struct tally__affine){scale, fminf(fmaxf(0.0f - rintf(lo / scale), 0.0f), 255.0f)};
}

static uint8_t oracle_code(float x, struct tally__affine a)
{
    float code = rintf(x / a.scale) + a.zero;

    if (!isfinite(a.scale) || isnan(code)) {
        return 0;
    }
    return (uint8_t)fminf(fmaxf(code, 0.0f), 255.0f);
}

/* Exact in a double before the one rounding. */
static float oracle_value(uint8_t q, struct tally__affine a)
{
    return (float)((double)a.scale * ((double)q - (double)a.zero));
}

/* A map that fits the data, one that is far too fine for it, or one that is not finite. */
static struct tally__affine affine_for(const struct num_case *c, const float *x)
{
    switch ((c->n + c->shift) % 3) {
    case 0:
        return (struct tally__affine){0x1p-23f, (float)(c->n % 256)};
    case 1:
        return c->n % 5 == 0 ? (struct tally__affine){INFINITY, 9.0f}
                             : (struct tally__affine){0.01f, 128.0f};
    default:
        return oracle_affine(c->n, x);
    }
}

static void check_affine_encode(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    struct tally__affine affine = affine_for(c, x);
    uint8_t *q = num_output(c, c->n, 1);
    uint8_t *want = num_output(c, c->n, 1);

    c->isa->kernels->affine_encode(c->n, x, affine, q);
    tally__kernels_ref.affine_encode(c->n, x, affine, want);
    num_assert_bytes(c, q, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, want[i] == oracle_code(x[i], affine), i, "the oracle differs");
    }
}

void test_affine_encode(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_encode);
}

/* One code away from the exact one at most, and what the formula gives. */
static void assert_fast(const struct num_case *c, uint8_t got, float x, struct tally__affine a,
                        size_t i)
{
    int exact = oracle_code(x, a);
    float code = rintf(x * (1.0f / a.scale)) + a.zero;
    bool no_number = !isfinite(a.scale) || isnan(code);
    float want = no_number ? 0.0f : fminf(fmaxf(code, 0.0f), 255.0f);

    num_assert(c, got == (uint8_t)want, i, "not the formula");
    num_assert(c, got >= exact - 1 && got <= exact + 1, i, "more than one code away");
}

static void check_affine_encode_fast(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    struct tally__affine affine = affine_for(c, x);
    uint8_t *q = num_output(c, c->n, 1);
    uint8_t *want = num_output(c, c->n, 1);

    c->isa->kernels->affine_encode_fast(c->n, x, affine, q);
    tally__kernels_ref.affine_encode_fast(c->n, x, affine, want);
    num_assert_bytes(c, q, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        assert_fast(c, want[i], x[i], affine, i);
    }
}

void test_affine_encode_fast(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_encode_fast);
}

static void check_affine_decode(const struct num_case *c)
{
    const uint8_t *q = num_input_bytes(c, c->n, 1, c->n);
    struct tally__affine affine = {num_float(c->data, c->n, 0), (float)(c->n % 256)};
    float *y = num_output(c, c->n * 4, 4);
    float *want = num_output(c, c->n * 4, 4);

    c->isa->kernels->affine_decode(c->n, q, affine, y);
    tally__kernels_ref.affine_decode(c->n, q, affine, want);
    num_assert_f32(c, y, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        num_assert(c, num_same_f32(want[i], oracle_value(q[i], affine)), i, "oracle");
    }
}

void test_affine_decode(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_decode);
}

/* Blocks of one element, of odd sizes, of the usual size and larger than everything. */
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

static void check_affine_encode_blocks(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    size_t block = block_of(c);
    struct tally__affine *affine = num_output(c, n_blocks(c) * sizeof *affine, sizeof *affine);
    struct tally__affine *want_affine = num_output(c, n_blocks(c) * sizeof *affine, 8);
    uint8_t *q = num_output(c, c->n, 1);
    uint8_t *want = num_output(c, c->n, 1);

    c->isa->kernels->affine_encode_blocks(c->n, x, block, affine, q);
    tally__kernels_ref.affine_encode_blocks(c->n, x, block, want_affine, want);
    num_assert_bytes(c, q, want, c->n);
    num_assert_f32(c, &affine[0].scale, &want_affine[0].scale, 2 * n_blocks(c));
    for (size_t i = 0; i < c->n; i++) {
        size_t start = i / block * block;
        size_t n_here = c->n - start < block ? c->n - start : block;

        if (i == start) {
            struct tally__affine a = oracle_affine(n_here, x + start);

            num_assert(c, num_same_f32(a.scale, want_affine[i / block].scale), i, "scale");
            num_assert(c, num_same_f32(a.zero, want_affine[i / block].zero), i, "zero point");
        }
        num_assert(c, want[i] == oracle_code(x[i], want_affine[i / block]), i, "code");
    }
}

void test_affine_encode_blocks(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_encode_blocks);
}

static void check_affine_encode_fast_blocks(const struct num_case *c)
{
    const float *x = num_input_f32(c, c->n, 1);
    size_t block = block_of(c);
    struct tally__affine *affine = num_output(c, n_blocks(c) * sizeof *affine, sizeof *affine);
    struct tally__affine *want_affine = num_output(c, n_blocks(c) * sizeof *affine, 8);
    uint8_t *q = num_output(c, c->n, 1);
    uint8_t *want = num_output(c, c->n, 1);

    c->isa->kernels->affine_encode_fast_blocks(c->n, x, block, affine, q);
    tally__kernels_ref.affine_encode_fast_blocks(c->n, x, block, want_affine, want);
    num_assert_bytes(c, q, want, c->n);
    num_assert_f32(c, &affine[0].scale, &want_affine[0].scale, 2 * n_blocks(c));
    for (size_t i = 0; i < c->n; i++) {
        assert_fast(c, want[i], x[i], want_affine[i / block], i);
    }
    /* The maps are those of the exact form, which has a separate test. */
    tally__kernels_ref.affine_encode_blocks(c->n, x, block, affine, q);
    num_assert_f32(c, &affine[0].scale, &want_affine[0].scale, 2 * n_blocks(c));
}

void test_affine_encode_fast_blocks(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_encode_fast_blocks);
}

static struct tally__affine *random_maps(const struct num_case *c)
{
    struct tally__affine *affine = num_input_bytes(c, n_blocks(c) * sizeof *affine, 8, 1);

    for (size_t b = 0; b < n_blocks(c); b++) {
        affine[b].scale = num_float(c->data, c->n, b);
        affine[b].zero = (float)(num_random(c->n, b) % 256);
    }
    return affine;
}

static void check_affine_decode_blocks(const struct num_case *c)
{
    const uint8_t *q = num_input_bytes(c, c->n, 1, c->n);
    const struct tally__affine *affine = random_maps(c);
    float *y = num_output(c, c->n * 4, 4);
    float *want = num_output(c, c->n * 4, 4);

    c->isa->kernels->affine_decode_blocks(c->n, q, block_of(c), affine, y);
    tally__kernels_ref.affine_decode_blocks(c->n, q, block_of(c), affine, want);
    num_assert_f32(c, y, want, c->n);
    for (size_t i = 0; i < c->n; i++) {
        float value = oracle_value(q[i], affine[i / block_of(c)]);

        num_assert(c, num_same_f32(want[i], value), i, "the oracle differs");
    }
}

void test_affine_decode_blocks(const struct tally__isa *isa)
{
    num_for_each_case(isa, check_affine_decode_blocks);
}
