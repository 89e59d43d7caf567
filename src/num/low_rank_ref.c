/* SPDX-License-Identifier: Apache-2.0 */
/* The low-rank kernels in plain C; every other instruction set reproduces them bit for bit. Any
 * thread enters. */
#include <string.h>

#include "num/low_rank.h"
#include "num/num.h"

#define LANES 16
#define FOUR 4
#define TALL 32

/* Elements of row i that are in memory. */
static size_t row_length(const struct tally__low_rank *s, size_t i)
{
    size_t before = i * s->m;
    size_t left = before < s->size ? s->size - before : 0;

    return left < s->m ? left : s->m;
}

static float add_lanes(float *lanes)
{
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

static void low_rank_multiply(const struct tally__low_rank *s, const float *x, const float *q,
                              float *p)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t length = row_length(s, i);

        for (size_t k = 0; k < s->r; k++) {
            float lanes[LANES] = {0};

            for (size_t j = 0; j < length; j++) {
                lanes[j % LANES] += x[i * s->m + j] * q[k * s->m + j];
            }
            p[k * s->n + i] = add_lanes(lanes);
        }
    }
}

/* Element (i, j) of P Q^T. */
static float product(const struct tally__low_rank *s, struct tally__factors f, size_t i, size_t j)
{
    float sum = f.p[i] * f.q[j];

    for (size_t k = 1; k < s->r; k++) {
        sum += f.p[k * s->n + i] * f.q[k * s->m + j];
    }
    return sum;
}

static void low_rank_correct(const struct tally__low_rank *s, const float *grad,
                             struct tally__factors old, const float *q, float *c, float *p)
{
    for (size_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < row_length(s, i); j++) {
            size_t at = i * s->m + j;

            c[at] = grad[at] + (c[at] - product(s, old, i, j));
        }
    }
    low_rank_multiply(s, c, q, p);
}

/* Adds rows i to i + n_rows - 1 to a column of Q: four at a time are one sum, and all of them. */
static void add_block(const struct tally__low_rank *s, const float *x, const float *p, size_t i,
                      size_t n_rows, float *q)
{
    for (size_t j = 0; j < row_length(s, i); j++) {
        float sum = 0.0f;

        for (size_t first = i; first < i + n_rows; first += FOUR) {
            float four = x[first * s->m + j] * p[first];

            for (size_t row = first + 1; row < first + FOUR && row < i + n_rows; row++) {
                four += x[row * s->m + j] * p[row];
            }
            sum += four;
        }
        q[j] += sum;
    }
}

static void low_rank_multiply_transposed(const struct tally__low_rank *s, const float *x,
                                         const float *p, float *q)
{
    size_t n_whole = s->size / s->m;

    memset(q, 0, s->r * s->m * sizeof *q);
    for (size_t k = 0; k < s->r; k++) {
        for (size_t i = 0; i < n_whole; i += TALL) {
            size_t n_rows = n_whole - i < TALL ? n_whole - i : TALL;

            add_block(s, x, p + k * s->n, i, n_rows, q + k * s->m);
        }
        if (n_whole * s->m < s->size) {
            add_block(s, x, p + k * s->n, n_whole, 1, q + k * s->m);
        }
    }
}

/* C has no portable store past the caches. */
static void low_rank_expand(const struct tally__low_rank *s, struct tally__factors f,
                            bool past_caches, float *y)
{
    (void)past_caches;
    for (size_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < row_length(s, i); j++) {
            y[i * s->m + j] = product(s, f, i, j);
        }
    }
}

static void low_rank_residual(const struct tally__low_rank *s, struct tally__factors f, float *c)
{
    for (size_t i = 0; i < s->n; i++) {
        for (size_t j = 0; j < row_length(s, i); j++) {
            c[i * s->m + j] -= product(s, f, i, j);
        }
    }
}

static double dot_f32(size_t n, const float *x, const float *y)
{
    double lanes[LANES] = {0};

    for (size_t i = 0; i < n; i++) {
        lanes[i % LANES] += (double)x[i] * (double)y[i];
    }
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

const struct tally__low_rank_kernels tally__low_rank_ref = {
    TALLY__LOW_RANK_LIST(TALLY__KERNEL_ENTRY)};
