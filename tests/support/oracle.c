/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle: tables are written once by oracle_start, then any thread reads. */
#include "support/oracle.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include <tally_extend.h>

#include "support/ranks.h"

#define POOL 4096

union element {
    float f32;
    double f64;
    uint16_t half;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
};

static union element pool[TALLY_U8 + 1][POOL];
static float finite_values[POOL];
static float half_values[65536];

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

float oracle_from_half(uint16_t x)
{
    return half_values[x];
}

float oracle_from_bfloat(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;

    memcpy(&y, &bits, sizeof y);
    return y;
}

static float compute_half_value(uint16_t x)
{
    int exponent = x >> 10 & 31;
    int mantissa = x & 1023;
    double size;

    if (exponent == 31) {
        size = mantissa ? NAN : INFINITY;
    } else {
        size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    }
    return (float)(x & 0x8000 ? -size : size);
}

uint16_t oracle_to_half(float x)
{
    unsigned sign = signbit(x) ? 0x8000 : 0;
    double size = fabs((double)x);
    int exponent;
    double fraction;

    if (isnan(x)) {
        return 0x7e00;
    }
    if (size >= 65520) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (size < 0x1p-14) {
        return (uint16_t)(sign | (unsigned)nearbyint(size * 0x1p24));
    }
    fraction = frexp(size, &exponent);
    /* A fraction that rounds up to 2048 carries into the exponent by itself. */
    return (uint16_t)(sign | (((unsigned)(exponent + 13) << 10) +
                              (unsigned)nearbyint(ldexp(fraction, 11))));
}

uint16_t oracle_to_bfloat(float x)
{
    uint32_t bits;

    if (isnan(x)) {
        return 0x7fc0;
    }
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double special(unsigned which, double largest, double smallest)
{
    const double values[] = {NAN,       INFINITY,     -INFINITY, 0.0,      -0.0,    smallest,
                             -smallest, 5 * smallest, largest,   -largest, largest, -0.0};

    return values[which % (sizeof values / sizeof values[0])];
}

static void make_element(uint64_t random, size_t i)
{
    bool is_special = random % 23 == 0;
    unsigned which = (unsigned)(random >> 8);
    double value = ((double)(int64_t)random) * 0x1p-60;

    finite_values[i] = (float)(value * (random % 7 ? 1 : 1000));
    pool[TALLY_F32][i].f32 = (float)(is_special ? special(which, FLT_MAX, 0x1p-149) : value);
    pool[TALLY_F64][i].f64 = is_special ? special(which, DBL_MAX, 0x1p-1074) : value;
    pool[TALLY_F16][i].half =
        oracle_to_half((float)(is_special ? special(which, 65504, 0x1p-24) : value));
    pool[TALLY_BF16][i].half =
        oracle_to_bfloat((float)(is_special ? special(which, 0x1.fep127, 0x1p-133) : value));
    pool[TALLY_I32][i].i32 = (int32_t)(random >> 16);
    pool[TALLY_I64][i].i64 = (int64_t)random;
    pool[TALLY_U8][i].u8 = (uint8_t)(random >> 24);
}

void oracle_start(void)
{
    uint64_t state = 42;

    for (unsigned i = 0; i < 65536; i++) {
        half_values[i] = compute_half_value((uint16_t)i);
    }
    for (size_t i = 0; i < POOL; i++) {
        make_element(next_random(&state), i);
    }
}

/* Elements that are close, or a pool apart, come from different places. */
static size_t place(unsigned seed, int rank, size_t i)
{
    return (i * 7 + (i >> 12) * 5 + (size_t)rank * 1031 + (size_t)seed * 389) % POOL;
}

static const union element *at(int dtype, unsigned seed, int rank, size_t i)
{
    return &pool[dtype][place(seed, rank, i)];
}

void oracle_fill(int dtype, unsigned seed, int rank, size_t n, void *data)
{
    size_t bytes = tally_dtype_bytes(dtype);
    unsigned char *to = data;

    for (size_t i = 0; i < n; i++) {
        memcpy(to + i * bytes, at(dtype, seed, rank, i), bytes);
    }
}

void oracle_fill_finite(unsigned seed, int rank, size_t n, float *data)
{
    for (size_t i = 0; i < n; i++) {
        data[i] = finite_values[place(seed, rank, i)];
    }
}

/* Whether b comes before a in a minimum or maximum: strictly, or because it is NaN. */
static bool wins(int op, double a, double b)
{
    return isnan(b) || (op == TALLY_MIN ? b < a : b > a);
}

#define EXTREME(op, dtype, seed, world, i, member, best)                                         \
    for (int r = 1; r < (world); r++) {                                                          \
        const union element *next = at((dtype), (seed), r, (i));                                 \
        if ((op) == TALLY_MIN ? next->member < (best)->member : next->member > (best)->member) { \
            (best) = next;                                                                       \
        }                                                                                        \
    }

static double widened(int dtype, const union element *x)
{
    switch (dtype) {
    case TALLY_F16:
        return (double)oracle_from_half(x->half);
    case TALLY_BF16:
        return (double)oracle_from_bfloat(x->half);
    case TALLY_F32:
        return (double)x->f32;
    default:
        return x->f64;
    }
}

static union element extreme(int dtype, int op, unsigned seed, int world, size_t i)
{
    const union element *best = at(dtype, seed, 0, i);

    switch (dtype) {
    case TALLY_I32:
        EXTREME(op, dtype, seed, world, i, i32, best)
        break;
    case TALLY_I64:
        EXTREME(op, dtype, seed, world, i, i64, best)
        break;
    case TALLY_U8:
        EXTREME(op, dtype, seed, world, i, u8, best)
        break;
    default:
        for (int r = 1; r < world; r++) {
            const union element *next = at(dtype, seed, r, i);

            if (wins(op, widened(dtype, best), widened(dtype, next))) {
                best = next;
            }
        }
    }
    return *best;
}

static union element float_sum(int dtype, int op, unsigned seed, int world, size_t i)
{
    float sum = (float)widened(dtype, at(dtype, seed, 0, i));
    union element result = {0};

    for (int r = 1; r < world; r++) {
        sum += (float)widened(dtype, at(dtype, seed, r, i));
    }
    sum = op == TALLY_MEAN ? sum / (float)world : sum;
    if (dtype == TALLY_F32) {
        result.f32 = sum;
    } else {
        result.half = dtype == TALLY_F16 ? oracle_to_half(sum) : oracle_to_bfloat(sum);
    }
    return result;
}

static union element double_sum(int op, unsigned seed, int world, size_t i)
{
    double sum = at(TALLY_F64, seed, 0, i)->f64;

    for (int r = 1; r < world; r++) {
        sum += at(TALLY_F64, seed, r, i)->f64;
    }
    return (union element){.f64 = op == TALLY_MEAN ? sum / world : sum};
}

static union element integer_sum(int dtype, int op, unsigned seed, int world, size_t i)
{
    uint64_t sum = 0;
    union element result = {0};
    int64_t value;

    for (int r = 0; r < world; r++) {
        const union element *x = at(dtype, seed, r, i);

        sum += dtype == TALLY_I32   ? (uint64_t)(int64_t)x->i32
               : dtype == TALLY_I64 ? (uint64_t)x->i64
                                    : x->u8;
    }
    value = op == TALLY_MEAN ? (int64_t)sum / world : (int64_t)sum;
    if (dtype == TALLY_I32) {
        result.i32 = (int32_t)(uint32_t)(uint64_t)value;
    } else if (dtype == TALLY_I64) {
        result.i64 = value;
    } else {
        result.u8 = (uint8_t)value;
    }
    return result;
}

static union element reduced(int dtype, int op, unsigned seed, int world, size_t i)
{
    if (op == TALLY_MIN || op == TALLY_MAX) {
        return extreme(dtype, op, seed, world, i);
    }
    if (dtype == TALLY_F64) {
        return double_sum(op, seed, world, i);
    }
    return (dtype >= TALLY_I32 ? integer_sum : float_sum)(dtype, op, seed, world, i);
}

/* Payloads of NaN are unspecified. */
static bool is_nan(int dtype, const union element *x)
{
    return dtype <= TALLY_BF16 && isnan(widened(dtype, x));
}

size_t oracle_compare(const struct oracle_reduction *reduction, size_t start, size_t n,
                      const void *data)
{
    int dtype = reduction->dtype;
    size_t bytes = tally_dtype_bytes(dtype);

    for (size_t i = 0; i < n; i++) {
        union element expected =
            reduced(dtype, reduction->op, reduction->seed, reduction->world, start + i);
        union element got = {0};

        memcpy(&got, (const unsigned char *)data + i * bytes, bytes);
        if (memcmp(&got, &expected, bytes) != 0 &&
            !(is_nan(dtype, &got) && is_nan(dtype, &expected))) {
            return i;
        }
    }
    return n;
}

uint64_t oracle_hash(int dtype, size_t n, const void *data)
{
    size_t bytes = tally_dtype_bytes(dtype);
    uint64_t hash = 0;

    for (size_t i = 0; i < n; i++) {
        union element x = {0};
        uint64_t word = 0;

        memcpy(&x, (const unsigned char *)data + i * bytes, bytes);
        memcpy(&word, &x, bytes);
        word = is_nan(dtype, &x) ? UINT64_MAX : word;
        hash = ranks_hash(hash, &word, sizeof word);
    }
    return hash;
}
