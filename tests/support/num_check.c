/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, data and comparisons of the kernel tests. One thread. */
#include "support/num_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GUARD_BYTES 64
#define GUARD 0xa5
#define MAX_ARRAYS 32

struct array {
    unsigned char *block;
    unsigned char *guard; /* behind the data; NULL for an input */
    unsigned char *data;
};

static struct array arrays[MAX_ARRAYS];
static size_t n_arrays;

static const size_t extra_lengths[] = {96, 127, 128, 129, 255, 512, 513, 1000, 4099};
#define N_SMALL 68

void num_for_each_case(const struct tally__isa *isa, void (*check)(const struct num_case *))
{
    size_t n_extra = sizeof extra_lengths / sizeof extra_lengths[0];

    for (size_t i = 0; i < N_SMALL + n_extra; i++) {
        for (size_t shift = 0; shift < 4; shift++) {
            for (int data = 0; data < NUM_N_DATA; data++) {
                struct num_case c = {
                    .isa = isa,
                    .n = i < N_SMALL ? i : extra_lengths[i - N_SMALL],
                    .shift = shift,
                    .data = (enum num_data)data,
                };

                check(&c);
                num_release();
            }
        }
    }
}

uint64_t num_random(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * UINT64_C(0xd1342543de82ef95) + i * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t num_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float num_from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

bool num_same_f32(float a, float b)
{
    return num_bits(a) == num_bits(b) || (isnan(a) && isnan(b));
}

bool num_same_f64(double a, double b)
{
    uint64_t a_bits;
    uint64_t b_bits;

    memcpy(&a_bits, &a, sizeof a_bits);
    memcpy(&b_bits, &b, sizeof b_bits);
    return a_bits == b_bits || (isnan(a) && isnan(b));
}

float num_float(enum num_data data, uint64_t stream, size_t i)
{
    uint64_t r = num_random(stream + 1, i);
    uint32_t bits = (uint32_t)(r >> 32);

    switch (data) {
    case NUM_PLAIN:
        if (r % 16 == 0) {
            return num_from_bits(bits & 0x80000000u);
        }
        return ((float)(int32_t)bits * 0x1p-31f) * (1.0f + (float)stream);
    case NUM_FINITE:
        return num_from_bits((bits & 0x7f800000u) == 0x7f800000u ? bits ^ 0x40000000u : bits);
    case NUM_WILD:
        /* One in 64 is a special; otherwise blocks would hardly ever be free of them. */
        if (r % 64 == 0) {
            return num_from_bits(bits | 0x7f800000u);
        }
        return r % 64 == 1 ? num_from_bits((bits & 0x80000000u) | 0x7f800000u)
                           : num_from_bits(bits);
    case NUM_TINY:
    default:
        return num_from_bits(bits & (r % 3 == 0 ? 0x80000003u : 0x807fffffu));
    }
}

static struct array *take(size_t bytes, size_t before, size_t after)
{
    struct array *array = &arrays[n_arrays];

    assert_true(n_arrays < MAX_ARRAYS);
    /* At least one byte, so that an empty array has a distinct address. */
    array->block = malloc(before + bytes + after + 1);
    assert_non_null(array->block);
    array->data = array->block + before;
    array->guard = NULL;
    n_arrays++;
    return array;
}

float *num_input_f32(const struct num_case *c, size_t n, uint64_t stream)
{
    float *x = (float *)(void *)take(n * sizeof *x, c->shift * sizeof *x, 0)->data;

    for (size_t i = 0; i < n; i++) {
        x[i] = num_float(c->data, stream + 1000 * n, i);
    }
    return x;
}

void *num_input_bytes(const struct num_case *c, size_t bytes, size_t element, uint64_t stream)
{
    unsigned char *x = take(bytes, c->shift * element, 0)->data;

    for (size_t i = 0; i < bytes; i++) {
        x[i] = (unsigned char)num_random(stream + 77, i);
    }
    return x;
}

void *num_output(const struct num_case *c, size_t bytes, size_t element)
{
    struct array *array = take(bytes, GUARD_BYTES + c->shift * element, GUARD_BYTES);

    memset(array->block, GUARD, (size_t)(array->data - array->block) + bytes + GUARD_BYTES);
    array->guard = array->data + bytes;
    return array->data;
}

void *num_output_copy(const struct num_case *c, size_t bytes, size_t element, const void *from)
{
    void *y = num_output(c, bytes, element);

    if (bytes > 0) {
        memcpy(y, from, bytes);
    }
    return y;
}

void num_release(void)
{
    for (size_t k = 0; k < n_arrays; k++) {
        struct array *array = &arrays[k];

        for (size_t i = 0; array->guard && i < GUARD_BYTES; i++) {
            assert_int_equal(array->guard[i], GUARD);
            assert_int_equal(array->data[-1 - (ptrdiff_t)i], GUARD);
        }
        free(array->block);
    }
    n_arrays = 0;
}

void num_assert(const struct num_case *c, bool ok, size_t i, const char *what)
{
    if (!ok) {
        fail_msg("%s, n %zu, shift %zu, data %d, element %zu: %s", c->isa->name, c->n, c->shift,
                 (int)c->data, i, what);
    }
}

void num_assert_bytes(const struct num_case *c, const void *got, const void *want, size_t bytes)
{
    const unsigned char *a = got;
    const unsigned char *b = want;

    for (size_t i = 0; i < bytes; i++) {
        num_assert(c, a[i] == b[i], i, "this byte differs");
    }
}

void num_assert_f32(const struct num_case *c, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        num_assert(c, num_same_f32(got[i], want[i]), i, "this value differs");
    }
}

/* |x| rounded to nearest even with `digits` binary places after the first, which is worth at least
 * 2^least; infinity above most. */
static double narrow(double x, int digits, int least, double most)
{
    int exponent;

    if (x == 0.0 || isinf(x)) {
        return x;
    }
    (void)frexp(x, &exponent);
    exponent = exponent - 1 > least ? exponent - 1 : least;

    double rounded = ldexp(nearbyint(ldexp(x, digits - exponent)), exponent - digits);

    return rounded > most ? (double)INFINITY : rounded;
}

uint16_t num_oracle_f16(float x)
{
    uint32_t sign = signbit(x) ? 0x8000u : 0;

    if (isnan(x)) {
        return (uint16_t)(sign | 0x7e00u | ((num_bits(x) & 0x7fffffu) >> 13));
    }

    double size = narrow(fabs((double)x), 10, -14, 65504.0);
    int exponent;

    if (isinf(size)) {
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size < 0x1p-14) {
        return (uint16_t)(sign | (uint32_t)(size * 0x1p24));
    }

    double fraction = frexp(size, &exponent);

    /* fraction is in [0.5, 1): 2048 * fraction is 1024 plus the ten stored bits. */
    return (uint16_t)(sign | ((uint32_t)(exponent + 14) << 10) |
                      ((uint32_t)(fraction * 2048.0) - 1024u));
}

uint16_t num_oracle_bf16(float x)
{
    if (isnan(x)) {
        return (uint16_t)((num_bits(x) >> 16) | 0x40u);
    }

    double size = narrow(fabs((double)x), 7, -126, 0x1.fep127);

    /* Exact: the rounded value is a float. */
    return (uint16_t)(num_bits(copysignf((float)size, x)) >> 16);
}

double num_value_of_f16(uint16_t half)
{
    int exponent = (half >> 10) & 31;
    int fraction = half & 0x3ff;
    double size;

    if (exponent == 31) {
        size = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        size = ldexp(fraction, -24);
    } else {
        size = ldexp(fraction + 1024, exponent - 25);
    }
    return (half & 0x8000) != 0 ? -size : size;
}
