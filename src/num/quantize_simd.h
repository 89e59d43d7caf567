/* SPDX-License-Identifier: Apache-2.0 */
/* The uint8 kernels of a vector instruction set. Part of kernels_simd.h, and like it without an
 * include guard; it comes after minmax_f32. */
#include "num/quantize.h"

static void affine_encode(size_t n, const float *x, struct tally__affine affine, uint8_t *q)
{
    const vf scale = vf_set1(affine.scale);
    size_t m = isfinite(affine.scale) ? whole(n) : 0;

    for (size_t i = 0; i < m; i += LANES) {
        fetch_ahead(x + i);
        vf_store_codes(q + i, vf_div(vf_load(x + i), scale), affine.zero);
    }
    tally__kernels_ref.affine_encode(n - m, x + m, affine, q + m);
}

static void affine_encode_fast(size_t n, const float *x, struct tally__affine affine, uint8_t *q)
{
    const vf inverse = vf_set1(1.0f / affine.scale);
    size_t m = isfinite(affine.scale) ? whole(n) : 0;

    for (size_t i = 0; i < m; i += LANES) {
        fetch_ahead(x + i);
        vf_store_codes(q + i, vf_mul(vf_load(x + i), inverse), affine.zero);
    }
    tally__kernels_ref.affine_encode_fast(n - m, x + m, affine, q + m);
}

/* The same with a map that was made for x: the steps are small and no NaN is among them. */
static void encode_fitting(size_t n, const float *x, struct tally__affine affine, uint8_t *q)
{
    const vf inverse = vf_set1(1.0f / affine.scale);
    size_t m = isfinite(affine.scale) ? whole(n) : 0;

    for (size_t i = 0; i < m; i += LANES) {
        vi_store_codes(q + i, vf_steps(vf_mul(vf_load(x + i), inverse)), affine.zero);
    }
    tally__kernels_ref.affine_encode_fast(n - m, x + m, affine, q + m);
}

/* One vector of codes as the values they stand for; raised_zero is 2^23 + zero. */
static inline vf decode(const uint8_t *q, vf scale, vf raised_zero)
{
    return vf_mul(scale, vf_load_steps(q, raised_zero));
}

static inline vf vf_raised_zero(float zero)
{
    return vf_set1(0x1p23f + zero);
}

static void affine_decode(size_t n, const uint8_t *q, struct tally__affine affine, float *y)
{
    const vf scale = vf_set1(affine.scale);
    const vf raised_zero = vf_raised_zero(affine.zero);
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        fetch_to_write(y + i);
        vf_store(y + i, decode(q + i, scale, raised_zero));
    }
    tally__kernels_ref.affine_decode(n - m, q + m, affine, y + m);
}

static struct tally__affine affine_of_block(size_t n, const float *x)
{
    float lo;
    float hi;

    minmax_f32(n, x, &lo, &hi);
    return tally__affine_of(n, lo, hi);
}

typedef void affine_encoder(size_t n, const float *x, struct tally__affine affine, uint8_t *q);

/* The map of the next block is computed before this block is encoded: nothing then waits for its
 * long chain of dependent instructions, and the next block is in the cache when its turn comes. */
static inline void encode_blocks(size_t n, const float *x, size_t block,
                                 struct tally__affine *affine, uint8_t *q, affine_encoder *encode)
{
    if (n > 0) {
        affine[0] = affine_of_block(smaller(block, n), x);
    }
    while (n > 0) {
        size_t n_here = smaller(block, n);

        n -= n_here;
        if (n > 0) {
            affine[1] = affine_of_block(smaller(block, n), x + n_here);
        }
        encode(n_here, x, affine[0], q);
        x += n_here;
        q += n_here;
        affine++;
    }
}

static void affine_encode_blocks(size_t n, const float *x, size_t block,
                                 struct tally__affine *affine, uint8_t *q)
{
    encode_blocks(n, x, block, affine, q, affine_encode);
}

static void affine_encode_fast_blocks(size_t n, const float *x, size_t block,
                                      struct tally__affine *affine, uint8_t *q)
{
    encode_blocks(n, x, block, affine, q, encode_fitting);
}

static void affine_decode_blocks(size_t n, const uint8_t *q, size_t block,
                                 const struct tally__affine *affine, float *y)
{
    for (size_t i = 0; i < n; i += block, affine++) {
        affine_decode(smaller(block, n - i), q + i, *affine, y + i);
    }
}

/* The maps of several arrays of codes: element k of each is `step` floats after element k - 1. */
struct maps {
    const float *scale;
    size_t scale_step;
    const float *zero;
    size_t zero_step;
};

static inline vf decode_by(const struct maps *maps, size_t k, const uint8_t *q)
{
    vf scale = vf_set1(maps->scale[k * maps->scale_step]);

    return decode(q, scale, vf_raised_zero(maps->zero[k * maps->zero_step]));
}

/* Four vectors per visit of an input, so that its map is read from memory less often. */
static inline __attribute__((always_inline)) void decode_sum(size_t n, size_t n_in,
                                                             const uint8_t *const *q,
                                                             const struct maps *maps, float *y,
                                                             struct vf_divisor divisor)
{
    const size_t wide = 4;
    size_t i = 0;

    for (; n - i >= wide * LANES; i += wide * LANES) {
        vf sum[4];

        for (size_t j = 0; j < wide; j++) {
            sum[j] = decode_by(maps, 0, q[0] + i + j * LANES);
        }
        for (size_t k = 1; k < n_in; k++) {
            for (size_t j = 0; j < wide; j++) {
                sum[j] = vf_add(sum[j], decode_by(maps, k, q[k] + i + j * LANES));
            }
        }
        for (size_t j = 0; j < wide; j++) {
            vf_store(y + i + j * LANES, vf_finish(sum[j], divisor));
        }
    }
    /* The rest, by single vectors; the last of them padded with zeros. */
    for (; i < n; i += LANES) {
        size_t n_here = smaller(n - i, LANES);
        uint8_t codes[16] = {0};
        float sums[16];

        memcpy(codes, q[0] + i, n_here);

        vf sum = decode_by(maps, 0, codes);

        for (size_t k = 1; k < n_in; k++) {
            memcpy(codes, q[k] + i, n_here);
            sum = vf_add(sum, decode_by(maps, k, codes));
        }
        vf_store(sums, vf_finish(sum, divisor));
        memcpy(y + i, sums, n_here * sizeof *y);
    }
}

static void affine_sum(size_t n, size_t n_in, const uint8_t *const *q,
                       const struct tally__affine *affine, float divisor, float *y)
{
    const struct maps maps = {&affine->scale, 2, &affine->zero, 2};

    BY_F32(divisor, decode_sum, n, n_in, q, &maps, y);
}

static void scaled_sum(size_t n, size_t n_in, const uint8_t *const *q, const float *scale,
                       float divisor, float *y)
{
    const float zero = 128.0f;
    const struct maps maps = {scale, 1, &zero, 0};

    BY_F32(divisor, decode_sum, n, n_in, q, &maps, y);
}

/* The bits of |x|, for the elements that do not fill a vector. */
static int32_t size_bits(float x)
{
    float size = fabsf(x);
    int32_t bits;

    memcpy(&bits, &size, sizeof bits);
    return bits;
}

/* The magnitude that has these bits; NaN when it is not finite. */
static float magnitude(int32_t bits)
{
    float size;

    memcpy(&size, &bits, sizeof size);
    return bits < INFINITY_BITS ? size : NAN;
}

/* The largest magnitude; NaN when a value is not finite. */
static float absmax(size_t n, const float *x)
{
    size_t m = n - n % (2 * LANES);
    vi sizes[2] = {vi_zero(), vi_zero()};

    for (size_t i = 0; i < m; i += 2 * LANES) {
        for (size_t j = 0; j < 2; j++) {
            sizes[j] = vi_max32(sizes[j], vf_size_bits(vf_load(x + i + j * LANES)));
        }
    }

    int32_t bits = vi_most32(vi_max32(sizes[0], sizes[1]));

    for (size_t i = m; i < n; i++) {
        bits = size_bits(x[i]) > bits ? size_bits(x[i]) : bits;
    }
    return magnitude(bits);
}

/* One block whose largest magnitude is most; the scale. */
static float scaled_encode(size_t n, const float *x, float most, uint8_t *q)
{
    if (most == 0.0f) {
        memset(q, 128, n);
        return 0.0f;
    }
    if (!(most >= TALLY__SCALED_TINY)) {
        float scale;

        tally__kernels_ref.scaled_encode_blocks(n, x, n, &scale, q);
        return scale;
    }

    float inverse = 127.0f / most;
    size_t m = whole(n);

    for (size_t i = 0; i < m; i += LANES) {
        fetch_ahead(x + i);
        vi_store_codes(q + i, vf_steps(vf_mul(vf_load(x + i), vf_set1(inverse))), 128.0f);
    }
    for (size_t i = m; i < n; i++) {
        q[i] = (uint8_t)(128.0f + tally__rint(x[i] * inverse));
    }
    return most / 127.0f;
}

/* One block ahead, like affine_encode_blocks. */
static void scaled_encode_blocks(size_t n, const float *x, size_t block, float *scale, uint8_t *q)
{
    float most = absmax(smaller(block, n), x);

    while (n > 0) {
        size_t n_here = smaller(block, n);
        float most_here = most;

        n -= n_here;
        most = absmax(smaller(block, n), x + n_here);
        *scale = scaled_encode(n_here, x, most_here, q);
        x += n_here;
        q += n_here;
        scale++;
    }
}

static void scaled_decode_blocks(size_t n, const uint8_t *q, size_t block, const float *scale,
                                 float *y)
{
    for (size_t i = 0; i < n; i += block, scale++) {
        struct tally__affine affine = {.scale = *scale, .zero = 128.0f};

        affine_decode(smaller(block, n - i), q + i, affine, y + i);
    }
}

/* v = x + v; the largest magnitude of that, NaN when a value is not finite. */
static float add_absmax(size_t n, const float *x, float *v)
{
    size_t m = whole(n);
    vi sizes = vi_zero();

    for (size_t i = 0; i < m; i += LANES) {
        vf sum = vf_add(vf_load(x + i), vf_load(v + i));

        fetch_ahead(x + i);
        fetch_ahead(v + i);
        vf_store(v + i, sum);
        sizes = vi_max32(sizes, vf_size_bits(sum));
    }

    int32_t bits = vi_most32(sizes);

    for (size_t i = m; i < n; i++) {
        v[i] = x[i] + v[i];
        bits = size_bits(v[i]) > bits ? size_bits(v[i]) : bits;
    }
    return magnitude(bits);
}

/* v = v - (what the codes stand for), or 0 where they stand for no number. */
static void keep_residual(size_t n, const uint8_t *q, float scale, float *v)
{
    bool sound = tally__scaled_is_sound(scale);

    for (size_t i = 0; i < n; i++) {
        v[i] = sound ? v[i] - scale * ((float)q[i] - 128.0f) : 0.0f;
    }
}

/* One block v whose largest magnitude is most; the scale. v becomes the residual. */
static float scaled_encode_feedback(size_t n, float *v, float most, uint8_t *q)
{
    float scale = most / 127.0f;
    size_t m = whole(n);

    if (!(most >= TALLY__SCALED_TINY) || !tally__scaled_is_sound(scale)) {
        scale = scaled_encode(n, v, most, q);
        keep_residual(n, q, scale, v);
        return scale;
    }

    float inverse = 127.0f / most;

    for (size_t i = 0; i < m; i += LANES) {
        vf values = vf_load(v + i);
        vi steps = vf_steps(vf_mul(values, vf_set1(inverse)));

        vi_store_codes(q + i, steps, 128.0f);
        vf_store(v + i, vf_sub(values, vf_mul(vf_set1(scale), vf_of_steps(steps))));
    }
    for (size_t i = m; i < n; i++) {
        q[i] = (uint8_t)(128.0f + tally__rint(v[i] * inverse));
    }
    keep_residual(n - m, q + m, scale, v + m);
    return scale;
}

/* Whether scaled_encode_feedback takes a block of this largest magnitude without the reference. */
static bool is_ordinary(float most)
{
    return most >= TALLY__SCALED_TINY && tally__scaled_is_sound(most / 127.0f);
}

/*
 * An ordinary block v whose largest magnitude is most, as scaled_encode_feedback; and next = x +
 * next, as add_absmax, whose result it returns. Both have n elements, a multiple of LANES. In one
 * loop, because the one computes while the other waits for memory; the hardware then prefetches
 * enough.
 */
static float encode_and_add(size_t n, float *v, float most, uint8_t *q, const float *x, float *next)
{
    const vf inverse = vf_set1(127.0f / most);
    const vf scale = vf_set1(most / 127.0f);
    vi sizes = vi_zero();

    for (size_t i = 0; i < n; i += LANES) {
        vf values = vf_load(v + i);
        vi steps = vf_steps(vf_mul(values, inverse));
        vf sum = vf_add(vf_load(x + i), vf_load(next + i));

        vi_store_codes(q + i, steps, 128.0f);
        vf_store(v + i, vf_sub(values, vf_mul(scale, vf_of_steps(steps))));
        vf_store(next + i, sum);
        sizes = vi_max32(sizes, vf_size_bits(sum));
    }
    return magnitude(vi_most32(sizes));
}

/* One block ahead, like affine_encode_blocks. */
static void scaled_encode_feedback_blocks(size_t n, const float *x, float *residual, size_t block,
                                          float *scale, uint8_t *q)
{
    float most = add_absmax(smaller(block, n), x, residual);

    while (n > 0) {
        size_t n_here = smaller(block, n);
        float *here = residual;
        float most_here = most;

        n -= n_here;
        x += n_here;
        residual += n_here;
        if (n >= n_here && n_here % LANES == 0 && is_ordinary(most_here)) {
            most = encode_and_add(n_here, here, most_here, q, x, residual);
            *scale = most_here / 127.0f;
        } else {
            most = add_absmax(smaller(block, n), x, residual);
            *scale = scaled_encode_feedback(n_here, here, most_here, q);
        }
        q += n_here;
        scale++;
    }
}
