/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of every vector instruction set, written once over the types and functions of a vec_*.h,
 * which the including file has included before. 64 bytes are one vector on every instruction set:
 * 16 floats (vf), 16 truth values (vm), 8 doubles (vd), or integers (vi). Elements that do not fill
 * a vector go to the reference, which gives the same bits.
 *
 * No include guard: one instruction set is one source file that includes this once, defines its
 * table from the functions below, and is compiled with the options of its instruction set.
 * Everything is static, so that no such code reaches another instruction set.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "num/num.h"
#include "num/sums_simd.h"

/* Floats per vector. */
#define LANES ((size_t)16)

/*
 * The hardware prefetches too little for a kernel that does much work per byte. 8 KiB ahead is far
 * enough for memory and fits in the first-level cache. The address may lie beyond the array, which
 * is harmless.
 */
static inline void fetch_ahead(const float *x)
{
    __builtin_prefetch((const void *)((uintptr_t)x + 8192));
}

/* As above for memory that will be overwritten: it is in a cache, but not in the nearest. */
static inline void fetch_to_write(const float *y)
{
    __builtin_prefetch((const void *)((uintptr_t)y + 4096), 1);
}

/* The result of vf_size_bits for an infinity; a NaN gives more, a number less. */
#define INFINITY_BITS 0x7f800000

/* The leading elements that fill vectors. */
static inline size_t whole(size_t n)
{
    return n - n % LANES;
}

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void f32_to_f16(size_t n, const float *x, uint16_t *y)
{
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        vf_store_f16(y + i, vf_load(x + i));
    }
    tally__kernels_ref.f32_to_f16(n - m, x + m, y + m);
}

/* Overflow is rare: a vector without it is only converted. */
static size_t f32_to_f16_sat(size_t n, const float *x, uint16_t *y)
{
    const vf first_over = vf_set1(65520.0f);
    size_t m = whole(n);
    size_t n_saturated = 0;

    for (size_t i = 0; i < m; i += LANES) {
        vf v = vf_load(x + i);
        vm over = vf_le(first_over, vf_abs(v));

        if (__builtin_expect(vm_any(over), 0)) {
            vf clamped = vf_min(vf_max(v, vf_set1(-65504.0f)), vf_set1(65504.0f));

            over = vm_and(over, vf_le(vf_abs(v), vf_set1(FLT_MAX)));
            n_saturated += vm_count(over);
            v = vf_select(over, clamped, v);
        }
        vf_store_f16(y + i, v);
    }
    return n_saturated + tally__kernels_ref.f32_to_f16_sat(n - m, x + m, y + m);
}

static void f16_to_f32(size_t n, const uint16_t *x, float *y)
{
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        vf_store(y + i, vf_load_f16(x + i));
    }
    tally__kernels_ref.f16_to_f32(n - m, x + m, y + m);
}

static void f32_to_bf16(size_t n, const float *x, uint16_t *y)
{
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        fetch_ahead(x + i);
        vf_store_bf16(y + i, vf_load(x + i));
    }
    tally__kernels_ref.f32_to_bf16(n - m, x + m, y + m);
}

static void bf16_to_f32(size_t n, const uint16_t *x, float *y)
{
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        vf_store(y + i, vf_load_bf16(x + i));
    }
    tally__kernels_ref.bf16_to_f32(n - m, x + m, y + m);
}

/* Two accumulators hide the latency of min and max, and one comparison finds the NaN of both. */
static void minmax_f32(size_t n, const float *x, float *lo, float *hi)
{
    size_t m = n - n % (2 * LANES);

    if (m == 0) {
        tally__kernels_ref.minmax_f32(n, x, lo, hi);
        return;
    }

    vf least[2] = {vf_load(x), vf_load(x + LANES)};
    vf most[2] = {least[0], least[1]};
    vm is_nan = vf_unordered(least[0], least[1]);

    for (size_t i = 0; i < m; i += 2 * LANES) {
        vf v[2] = {vf_load(x + i), vf_load(x + i + LANES)};

        for (size_t j = 0; j < 2; j++) {
            fetch_ahead(x + i + j * LANES);
            least[j] = vf_min(least[j], v[j]);
            most[j] = vf_max(most[j], v[j]);
        }
        is_nan = vm_or(is_nan, vf_unordered(v[0], v[1]));
    }

    float rest_lo = x[0];
    float rest_hi = x[0];

    if (m < n) {
        tally__kernels_ref.minmax_f32(n - m, x + m, &rest_lo, &rest_hi);
    }
    if (isnan(rest_lo) || vm_any(is_nan)) {
        *lo = NAN;
        *hi = NAN;
        return;
    }

    float whole_lo = vf_least(vf_min(least[0], least[1]));
    float whole_hi = vf_most(vf_max(most[0], most[1]));

    *lo = (whole_lo < rest_lo ? whole_lo : rest_lo) + 0.0f;
    *hi = (whole_hi > rest_hi ? whole_hi : rest_hi) + 0.0f;
}

#include "num/quantize_simd.h"

#include "num/mean_codes_simd.h"

static void copy(size_t n, const uint8_t *x, uint8_t *y)
{
    const size_t step = 4 * sizeof(vi);
    size_t m = n - n % step;

    for (size_t i = 0; i < m; i += step) {
        vi a = vi_load(x + i);
        vi b = vi_load(x + i + sizeof a);
        vi c = vi_load(x + i + 2 * sizeof a);
        vi d = vi_load(x + i + 3 * sizeof a);

        vi_store(y + i, a);
        vi_store(y + i + sizeof a, b);
        vi_store(y + i + 2 * sizeof a, c);
        vi_store(y + i + 3 * sizeof a, d);
    }
    /* An array of no elements may be NULL. */
    if (n > m) {
        memcpy(y + m, x + m, n - m);
    }
}

static void sub_f32(size_t n, const float *a, const float *b, float *y)
{
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        vf_store(y + i, vf_sub(vf_load(a + i), vf_load(b + i)));
    }
    tally__kernels_ref.sub_f32(n - m, a + m, b + m, y + m);
}

static void axpy_f32(size_t n, const float *x, float a, float *y)
{
    const vf factor = vf_set1(a);
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        vf_store(y + i, vf_add(vf_load(y + i), vf_mul(factor, vf_load(x + i))));
    }
    tally__kernels_ref.axpy_f32(n - m, x + m, a, y + m);
}

static double sqnorm_f32(size_t n, const float *x)
{
    vd lower = vd_set1(0.0);
    vd upper = vd_set1(0.0);
    size_t m = whole(n);
    float padded[16] = {0};

    for (size_t i = 0; i < m; i += LANES) {
        vd a = vd_load_f32(x + i);
        vd b = vd_load_f32(x + i + LANES / 2);

        fetch_ahead(x + i);
        lower = vd_add(lower, vd_mul(a, a));
        upper = vd_add(upper, vd_mul(b, b));
    }
    /* The partial sums are not negative: adding the zeros of the padding changes no bit. */
    for (size_t i = m; i < n; i++) {
        padded[i - m] = x[i];
    }

    vd a = vd_load_f32(padded);
    vd b = vd_load_f32(padded + LANES / 2);
    double partial[8];

    lower = vd_add(lower, vd_mul(a, a));
    upper = vd_add(upper, vd_mul(b, b));
    vd_store(partial, vd_add(lower, upper));
    for (size_t width = 4; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            partial[i] += partial[i + width];
        }
    }
    return partial[0];
}

/* Four vectors per test; on a hit the reference finds the element. */
static size_t find_nonfinite_f32(size_t n, const float *x)
{
    size_t i = 0;

    for (; n - i >= 4 * LANES; i += 4 * LANES) {
        vi sizes = vf_size_bits(vf_load(x + i));

        fetch_ahead(x + i);
        for (size_t j = 1; j < 4; j++) {
            fetch_ahead(x + i + j * LANES);
            sizes = vi_max32(sizes, vf_size_bits(vf_load(x + i + j * LANES)));
        }
        if (vi_most32(sizes) >= INFINITY_BITS) {
            break;
        }
    }
    return i + tally__kernels_ref.find_nonfinite_f32(n - i, x + i);
}
