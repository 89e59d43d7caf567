/* SPDX-License-Identifier: Apache-2.0 */
/* Values that PyTorch's hooks were seen to compute, on every instruction set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/num.h"

#define MAX_N 5

struct golden {
    size_t n;
    float x[MAX_N];
    float scale;
    float zero;
    uint8_t codes[MAX_N];
    float decoded[MAX_N];
};

static const struct golden per_tensor[] = {
    {5,
     {-1.0f, 0.0f, 0.5f, 1.0f, 2.0f},
     0.011764706f,
     85.0f,
     {0, 85, 127, 170, 255},
     {-1.0f, 0.0f, 0.494117647f, 1.0f, 2.0f}},
    {3, {1.0f, 2.0f, 3.0f}, 0.011764706f, 0.0f, {85, 170, 255}, {1.0f, 2.0f, 3.0f}},
    {3, {-3.0f, -2.0f, -1.0f}, 0.011764706f, 255.0f, {0, 85, 170}, {-3.0f, -2.0f, -1.0f}},
    {4,
     {0.1f, 0.2f, -0.3f, 0.7f},
     0.003921569f,
     76.0f,
     {101, 127, 0, 254},
     {0.098039225f, 0.200000018f, -0.298039228f, 0.698039234f}},
    {2, {5.0f, 5.0f}, 0.019607844f, 0.0f, {255, 255}, {5.0f, 5.0f}},
    {3, {0.0f, 0.0f, 0.0f}, 1.1920929e-07f, 0.0f, {0, 0, 0}, {0.0f, 0.0f, 0.0f}},
    {3, {1e-9f, -1e-9f, 2e-8f}, 1.1920929e-07f, 0.0f, {0, 0, 0}, {0.0f, 0.0f, 0.0f}},
};

static void quantize_per_tensor(void **state)
{
    const struct tally__kernels *kernels = ((const struct tally__isa *)*state)->kernels;

    for (size_t g = 0; g < sizeof per_tensor / sizeof per_tensor[0]; g++) {
        const struct golden *golden = &per_tensor[g];
        struct tally__affine affine;
        uint8_t q[MAX_N];
        float y[MAX_N];
        float lo;
        float hi;

        kernels->minmax_f32(golden->n, golden->x, &lo, &hi);
        affine = tally__affine_of(golden->n, lo, hi);
        kernels->affine_encode(golden->n, golden->x, affine, q);
        kernels->affine_decode(golden->n, q, affine, y);
        assert_true(affine.scale == golden->scale);
        assert_true(affine.zero == golden->zero);
        assert_memory_equal(q, golden->codes, golden->n);
        for (size_t i = 0; i < golden->n; i++) {
            /* The table's decimal values are rounded. */
            assert_true(fabsf(y[i] - golden->decoded[i]) <= 1e-7f * fabsf(golden->decoded[i]));
        }
    }
}

/* x_i = i/100 for i = 1..n in blocks of 512. */
static void check_per_channel(const struct tally__kernels *kernels, size_t n, size_t n_blocks,
                              float first_scale, float most_error)
{
    static float x[1024];
    static float y[1024];
    static uint8_t q[1024];
    struct tally__affine affine[3] = {{-1.0f, -1.0f}, {-1.0f, -1.0f}, {-1.0f, -1.0f}};
    float error = 0.0f;

    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(i + 1) / 100.0f;
    }
    kernels->affine_encode_blocks(n, x, 512, affine, q);
    kernels->affine_decode_blocks(n, q, 512, affine, y);
    for (size_t i = 0; i < n; i++) {
        error = fmaxf(error, fabsf(x[i] - y[i]));
    }
    assert_true(affine[n_blocks - 1].scale > 0.0f);
    assert_true(affine[n_blocks].scale == -1.0f);
    assert_true(first_scale == 0.0f || affine[0].scale == first_scale);
    assert_true(fabsf(error - most_error) <= 5e-7f);
}

static void quantize_per_channel(void **state)
{
    const struct tally__kernels *kernels = ((const struct tally__isa *)*state)->kernels;

    check_per_channel(kernels, 5, 1, 1.9607843e-4f, 0.0f);
    check_per_channel(kernels, 512, 1, 0.0f, 0.0100391f);
    check_per_channel(kernels, 513, 2, 0.0f, 0.0100391f);
    check_per_channel(kernels, 1024, 2, 0.0f, 0.0200391f);
}

struct cast {
    float x;
    float halved;
};

/* Cast, then divide by two in the narrow type: a sum of one array. */
static void fp16_then_half(void **state)
{
    static const struct cast casts[] = {
        {1e5f, INFINITY}, {65504.0f, 32752.0f},      {65519.0f, 32752.0f}, {65520.0f, INFINITY},
        {6e-8f, 0.0f},    {3.14159265f, 1.5703125f}, {-0.1f, -0.0499878f},
    };
    const struct tally__kernels *kernels = ((const struct tally__isa *)*state)->kernels;

    for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++) {
        uint16_t half = 0;
        const uint16_t *in[] = {&half};
        uint16_t *out[] = {&half};
        float y;

        kernels->f32_to_f16(1, &casts[i].x, &half);
        kernels->sum_f16(1, 1, in, 2.0f, 1, out);
        kernels->f16_to_f32(1, &half, &y);
        assert_true(y == casts[i].halved || fabsf(y - casts[i].halved) < 5e-8f);
    }
}

static void bf16_then_half(void **state)
{
    static const struct cast casts[] = {
        {1e5f, 49920.0f},
        {65504.0f, 32768.0f},
        {-0.1f, -0.0500488f},
    };
    const struct tally__kernels *kernels = ((const struct tally__isa *)*state)->kernels;

    for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++) {
        uint16_t half = 0;
        const uint16_t *in[] = {&half};
        uint16_t *out[] = {&half};
        float y;

        kernels->f32_to_bf16(1, &casts[i].x, &half);
        kernels->sum_bf16(1, 1, in, 2.0f, 1, out);
        kernels->bf16_to_f32(1, &half, &y);
        assert_true(y == casts[i].halved || fabsf(y - casts[i].halved) < 5e-8f);
    }
}

/* The rule of num.h for ranges that have no finite scale. */
static void affine_of_special_ranges(void **state)
{
    (void)state;
    assert_true(tally__affine_of(0, 0.0f, 0.0f).scale == 1.0f);
    assert_true(tally__affine_of(0, 0.0f, 0.0f).zero == 0.0f);
    assert_true(isnan(tally__affine_of(3, NAN, NAN).scale));
    assert_true(isnan(tally__affine_of(3, 0.0f, NAN).scale));
    assert_true(isinf(tally__affine_of(3, 0.0f, INFINITY).scale));
    assert_true(isinf(tally__affine_of(3, -INFINITY, 1.0f).scale));
    assert_true(isinf(tally__affine_of(3, INFINITY, INFINITY).scale));
    assert_true(isinf(tally__affine_of(3, -3e38f, 3e38f).scale));
    assert_true(tally__affine_of(3, -INFINITY, 1.0f).zero == 0.0f);
    assert_true(tally__affine_of(3, NAN, NAN).zero == 0.0f);
    assert_true(tally__affine_of(3, -1.0f, -1.0f).zero == 255.0f);
}

int main(void)
{
    int n_failed = 0;

    for (size_t i = 0; i < tally__n_isas; i++) {
        void *isa = (void *)(uintptr_t)&tally__isas[i];
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(quantize_per_tensor, isa),
            cmocka_unit_test_prestate(quantize_per_channel, isa),
            cmocka_unit_test_prestate(fp16_then_half, isa),
            cmocka_unit_test_prestate(bf16_then_half, isa),
            cmocka_unit_test(affine_of_special_ranges),
        };

        if (tally__isas[i].usable()) {
            n_failed += cmocka_run_group_tests_name(tally__isas[i].name, tests, NULL, NULL);
        }
    }
    return n_failed == 0 ? 0 : 1;
}
