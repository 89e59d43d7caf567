/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The low-rank kernels of every vector level, written once over the vectors of a vec_*.h, which the
 * including file has included before, and over three functions of its own: vf_sum (the lanes of a
 * vector, added pairwise), vf_stream (a store past the caches, to a multiple of 64), stream_end
 * (after the last of them).
 *
 * Memory bounds all of this while r is small. So a pass walks over the rows in the order of memory,
 * a few at a time: what is loaded of Q then serves all of them. Functions marked INLINE get numbers
 * of rows and columns as constants, which keeps sums in registers. Elements of a row that do not
 * fill a vector are computed one by one, with the same bits.
 *
 * No include guard: one level is one source file that includes this once, defines its table from
 * the functions below, and is compiled with the options of its instruction set. Everything is
 * static, so that no such code reaches another level.
 */
#include <string.h>

#include "num/low_rank.h"

#define INLINE static inline __attribute__((always_inline))

/* Floats per vector. */
#define LANES ((size_t)16)
/* Rows that share what is loaded of Q. */
#define PAIR ((size_t)2)
/* Rows that are added up before they are added to Q. */
#define FOUR ((size_t)4)
/* Columns of P and Q that are taken in one visit of a row; more of them take several visits. */
#define MAX_COLUMNS ((size_t)32)
/* Elements of a row after which the next columns of P have their turn: two rows of so many, and
 * what belongs to them, are still in the first-level cache. */
#define STRIP ((size_t)512)

/* Some columns of Q, m apart, and which of their elements meet a row. */
struct strip {
    const float *q;
    size_t m;
    size_t begin;
    size_t end;
};

/* Some rows of P to be written; columns are n apart. */
struct target {
    float *p;
    size_t n;
};

/* Some rows of P, whose columns are n apart, and Q, whose columns are m apart. */
struct product {
    const float *p;
    size_t n;
    const float *q;
    size_t m;
};

/* Some rows of the gradient and of C, and what the step before made of them. */
struct corrected {
    const float *grad;
    float *c;
    struct product old;
};

/* The ranks that are common get functions of their own. */
#define WITH_RANK(function, r, ...)   \
    do {                              \
        switch (r) {                  \
        case 1:                       \
            function(1, __VA_ARGS__); \
            break;                    \
        case 2:                       \
            function(2, __VA_ARGS__); \
            break;                    \
        case 4:                       \
            function(4, __VA_ARGS__); \
            break;                    \
        default:                      \
            function(r, __VA_ARGS__); \
        }                             \
    } while (0)

INLINE size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The leading elements that fill vectors. */
INLINE size_t whole(size_t n)
{
    return n - n % LANES;
}

/* The hardware alone fetches ahead too little. By 8 KiB; may point behind the array, which harms
 * nobody. */
INLINE void fetch_ahead(const float *x)
{
    __builtin_prefetch((const void *)((uintptr_t)x + 8192));
}

/* The sums of a pair of rows and two columns lie together. */
INLINE size_t sum_at(size_t row, size_t k)
{
    return k / 2 * 4 + row * 2 + k % 2;
}

INLINE void clear_sums(size_t r, vf *sums)
{
    for (size_t i = 0; i < (r + 1) / 2 * 4; i++) {
        sums[i] = vf_set1(0.0f);
    }
}

/* Adds row times q to the sums of column k. */
INLINE void add_products(size_t n_rows, size_t k, const vf *row, vf q, vf *sum)
{
    for (size_t i = 0; i < n_rows; i++) {
        sum[sum_at(i, k)] = vf_add(sum[sum_at(i, k)], vf_mul(row[i], q));
    }
}

/* Adds the products of n_rows rows of x with n_columns, 1 or 2, columns of Q to their sums. */
INLINE void dot_strip(size_t n_rows, size_t n_columns, struct strip at, const float *x, vf *sums)
{
    vf sum[4] = {sums[0], sums[1], sums[2], sums[3]};

    for (size_t j = at.begin; j < at.end; j += LANES) {
        vf row[PAIR];

        for (size_t i = 0; i < n_rows; i++) {
            fetch_ahead(x + i * at.m + j);
            row[i] = vf_load(x + i * at.m + j);
        }
        for (size_t k = 0; k < n_columns; k++) {
            add_products(n_rows, k, row, vf_load(at.q + k * at.m + j), sum);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        sums[i] = sum[i];
    }
}

/* The same with columns first to r - 1. */
INLINE void dot_columns(size_t n_rows, size_t first, size_t r, struct strip at, const float *x,
                        vf *sums)
{
    for (size_t k = first; k < r; k += 2) {
        struct strip two = {at.q + k * at.m, at.m, at.begin, at.end};

        if (k + 1 < r) {
            dot_strip(n_rows, 2, two, x, sums + sum_at(0, k));
        } else {
            dot_strip(n_rows, 1, two, x, sums + sum_at(0, k));
        }
    }
}

/* Adds the elements that do not fill a vector, and then the lanes. */
INLINE void finish_rows(size_t n_rows, size_t r, struct strip rest, const float *x, const vf *sums,
                        struct target to)
{
    for (size_t k = 0; k < r; k++) {
        for (size_t i = 0; i < n_rows; i++) {
            vf sum = sums[sum_at(i, k)];

            if (rest.begin < rest.end) {
                float lanes[LANES];

                vf_store(lanes, sum);
                for (size_t j = rest.begin; j < rest.end; j++) {
                    lanes[j - rest.begin] += x[i * rest.m + j] * rest.q[k * rest.m + j];
                }
                sum = vf_load(lanes);
            }
            to.p[k * to.n + i] = vf_sum(sum);
        }
    }
}

/* r columns of P, at most MAX_COLUMNS, for n_rows rows of length elements. */
INLINE void multiply_rows(size_t n_rows, size_t r, struct strip at, const float *x,
                          struct target to)
{
    vf sums[2 * MAX_COLUMNS];
    struct strip here = at;

    clear_sums(r, sums);
    for (; here.begin < whole(at.end); here.begin = here.end) {
        here.end = smaller(here.begin + STRIP, whole(at.end));
        dot_columns(n_rows, 0, r, here, x, sums);
    }
    here.end = at.end;
    finish_rows(n_rows, r, here, x, sums, to);
}

/* Rows of P that meet no element of the matrix. */
static void clear_rows(const struct tally__low_rank *s, float *p)
{
    size_t n_rows = (s->size + s->m - 1) / s->m;

    for (size_t k = 0; k < s->r; k++) {
        memset(p + k * s->n + n_rows, 0, (s->n - n_rows) * sizeof *p);
    }
}

INLINE void multiply(size_t r, const struct tally__low_rank *s, const float *x, const float *q,
                     float *p)
{
    size_t n_whole = s->size / s->m;
    struct strip at = {.q = q, .m = s->m, .end = s->m};
    size_t i = 0;

    for (; i + PAIR <= n_whole; i += PAIR) {
        multiply_rows(PAIR, r, at, x + i * s->m, (struct target){p + i, s->n});
    }
    for (; i * s->m < s->size; i++) {
        at.end = smaller(s->m, s->size - i * s->m);
        multiply_rows(1, r, at, x + i * s->m, (struct target){p + i, s->n});
    }
}

static void low_rank_multiply(const struct tally__low_rank *s, const float *x, const float *q,
                              float *p)
{
    for (size_t k = 0; k < s->r; k += MAX_COLUMNS) {
        size_t r = smaller(s->r - k, MAX_COLUMNS);

        WITH_RANK(multiply, r, s, x, q + k * s->m, p + k * s->n);
    }
    clear_rows(s, p);
}

/* The part of P that belongs to n_rows rows from row i on: a copy that nothing else points to, if
 * there is room, so that the compiler may keep it in registers. */
INLINE struct product product_of(size_t n_rows, size_t r, const struct tally__low_rank *s,
                                 struct tally__factors f, size_t i, float *room)
{
    if (r > MAX_COLUMNS) {
        return (struct product){f.p + i, s->n, f.q, s->m};
    }
    for (size_t k = 0; k < r; k++) {
        for (size_t row = 0; row < n_rows; row++) {
            room[k * PAIR + row] = f.p[k * s->n + i + row];
        }
    }
    return (struct product){room, PAIR, f.q, s->m};
}

/* A vector of P Q^T, from column j on, in each of n_rows rows. */
INLINE void product_at(size_t n_rows, size_t r, const struct product *f, size_t j, vf *y)
{
    vf q = vf_load(f->q + j);

    for (size_t i = 0; i < n_rows; i++) {
        y[i] = vf_mul(vf_set1(f->p[i]), q);
    }
    for (size_t k = 1; k < r; k++) {
        q = vf_load(f->q + k * f->m + j);
        for (size_t i = 0; i < n_rows; i++) {
            y[i] = vf_add(y[i], vf_mul(vf_set1(f->p[k * f->n + i]), q));
        }
    }
}

/* One element of it. */
INLINE float product_element(size_t r, const struct product *f, size_t i, size_t j)
{
    float y = f->p[i] * f->q[j];

    for (size_t k = 1; k < r; k++) {
        y += f->p[k * f->n + i] * f->q[k * f->m + j];
    }
    return y;
}

/* Corrects a strip of n_rows rows, and adds its products with n_columns, 0 to 2, columns of Q. */
INLINE void correct_strip(size_t n_rows, size_t n_columns, size_t r, struct strip at,
                          const struct corrected *e, vf *sums)
{
    vf sum[4] = {sums[0], sums[1], sums[2], sums[3]};

    for (size_t j = at.begin; j < at.end; j += LANES) {
        vf row[PAIR];

        product_at(n_rows, r, &e->old, j, row);
        for (size_t i = 0; i < n_rows; i++) {
            const float *grad = e->grad + i * at.m + j;
            float *c = e->c + i * at.m + j;

            fetch_ahead(grad);
            fetch_ahead(c);
            row[i] = vf_add(vf_load(grad), vf_sub(vf_load(c), row[i]));
            vf_store(c, row[i]);
        }
        for (size_t k = 0; k < n_columns; k++) {
            add_products(n_rows, k, row, vf_load(at.q + k * at.m + j), sum);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        sums[i] = sum[i];
    }
}

INLINE void correct_rest(size_t n_rows, size_t r, struct strip rest, const struct corrected *e)
{
    for (size_t i = 0; i < n_rows; i++) {
        for (size_t j = rest.begin; j < rest.end; j++) {
            size_t at = i * rest.m + j;

            e->c[at] = e->grad[at] + (e->c[at] - product_element(r, &e->old, i, j));
        }
    }
}

/* n_rows rows of at.end elements and the r columns of P. The first two columns are computed while a
 * row is corrected, the others strip by strip. */
INLINE void correct_rows(size_t n_rows, size_t r, struct strip at, const struct corrected *e,
                         struct target to)
{
    vf sums[2 * MAX_COLUMNS];
    struct strip here = at;
    size_t n_here = r <= MAX_COLUMNS ? smaller(r, 2) : 0;

    clear_sums(smaller(r, MAX_COLUMNS), sums);
    for (; here.begin < whole(at.end); here.begin = here.end) {
        here.end = smaller(here.begin + STRIP, whole(at.end));
        if (n_here == 1) {
            correct_strip(n_rows, 1, r, here, e, sums);
        } else if (n_here == 2) {
            correct_strip(n_rows, 2, r, here, e, sums);
            dot_columns(n_rows, 2, r, here, e->c, sums);
        } else {
            correct_strip(n_rows, 0, r, here, e, sums);
        }
    }
    here.end = at.end;
    correct_rest(n_rows, r, here, e);
    if (n_here > 0) {
        finish_rows(n_rows, r, here, e->c, sums, to);
    }
}

INLINE void correct(size_t r, const struct tally__low_rank *s, struct corrected e,
                    struct tally__factors old, const float *q, float *p)
{
    size_t n_whole = s->size / s->m;
    size_t n_rows;

    for (size_t i = 0; i * s->m < s->size; i += n_rows) {
        struct strip at = {.q = q, .m = s->m, .end = smaller(s->m, s->size - i * s->m)};
        float room[PAIR * MAX_COLUMNS];

        if (i + PAIR <= n_whole) {
            n_rows = PAIR;
            e.old = product_of(PAIR, r, s, old, i, room);
            correct_rows(PAIR, r, at, &e, (struct target){p + i, s->n});
        } else {
            n_rows = 1;
            e.old = product_of(1, r, s, old, i, room);
            correct_rows(1, r, at, &e, (struct target){p + i, s->n});
        }
        e.grad += n_rows * s->m;
        e.c += n_rows * s->m;
    }
}

static void low_rank_correct(const struct tally__low_rank *s, const float *grad,
                             struct tally__factors old, const float *q, float *c, float *p)
{
    struct corrected e = {.grad = grad, .c = c};

    WITH_RANK(correct, s->r, s, e, old, q, p);
    if (s->r > MAX_COLUMNS) {
        low_rank_multiply(s, c, q, p);
    }
    clear_rows(s, p);
}

/* Adds n_rows rows of x, weighted by their elements of P, to r columns of Q. Element k of row i of
 * P is weight[k * FOUR + i]. */
INLINE void add_rows(size_t n_rows, size_t r, struct strip at, const float *x, const float *weight,
                     float *q)
{
    for (size_t j = 0; j < whole(at.end); j += LANES) {
        vf row[FOUR];

        for (size_t i = 0; i < n_rows; i++) {
            fetch_ahead(x + i * at.m + j);
            row[i] = vf_load(x + i * at.m + j);
        }
        for (size_t k = 0; k < r; k++) {
            vf sum = vf_mul(row[0], vf_set1(weight[k * FOUR]));

            for (size_t i = 1; i < n_rows; i++) {
                sum = vf_add(sum, vf_mul(row[i], vf_set1(weight[k * FOUR + i])));
            }
            vf_store(q + k * at.m + j, vf_add(vf_load(q + k * at.m + j), sum));
        }
    }
    for (size_t j = whole(at.end); j < at.end; j++) {
        for (size_t k = 0; k < r; k++) {
            float sum = x[j] * weight[k * FOUR];

            for (size_t i = 1; i < n_rows; i++) {
                sum += x[i * at.m + j] * weight[k * FOUR + i];
            }
            q[k * at.m + j] += sum;
        }
    }
}

INLINE void multiply_transposed(size_t r, const struct tally__low_rank *s, const float *x,
                                const float *p, float *q)
{
    size_t n_whole = s->size / s->m;
    size_t n_rows;

    for (size_t i = 0; i * s->m < s->size; i += n_rows) {
        struct strip at = {.m = s->m, .end = smaller(s->m, s->size - i * s->m)};
        float weight[FOUR * MAX_COLUMNS];

        n_rows = i < n_whole ? smaller(FOUR, n_whole - i) : 1;
        for (size_t k = 0; k < r; k++) {
            memcpy(weight + k * FOUR, p + k * s->n + i, n_rows * sizeof *p);
        }
        if (n_rows == FOUR) {
            add_rows(FOUR, r, at, x + i * s->m, weight, q);
        } else {
            add_rows(n_rows, r, at, x + i * s->m, weight, q);
        }
    }
}

static void low_rank_multiply_transposed(const struct tally__low_rank *s, const float *x,
                                         const float *p, float *q)
{
    memset(q, 0, s->r * s->m * sizeof *q);
    for (size_t k = 0; k < s->r; k += MAX_COLUMNS) {
        size_t r = smaller(s->r - k, MAX_COLUMNS);

        WITH_RANK(multiply_transposed, r, s, x, p + k * s->n, q + k * s->m);
    }
}
