/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The low-rank kernels of every vector instruction set, written once over the vectors of a vec_*.h,
 * which the including file has included before, and over three functions of its own: vf_sum (the
 * lanes of a vector, added pairwise), vf_stream (a store past the caches, to a multiple of 64),
 * stream_end (after the last of them). This file has the products with Q, and what all products
 * share.
 *
 * Memory bounds all of this while r is small; the rest is arranged so that little else does. Two
 * rows are taken at a time, so that what is loaded of Q serves both, and two columns of P, so that
 * their sums stay in registers. From rank 5 on, a strip of Q is copied together and serves a block
 * of rows: it stays in the first-level cache, where columns of Q that are a power of two apart
 * would push each other out. Functions marked INLINE get numbers of rows and columns as constants.
 * Elements of a row that do not fill a vector are computed one by one. None of this changes a bit.
 * No include guard, as in kernels_simd.h.
 */
#include <string.h>

#include "num/low_rank.h"

#define INLINE static inline __attribute__((always_inline))

/* Floats per vector. */
#define LANES ((size_t)16)
#define ROW_PAIR ((size_t)2)
/* Rows that share a copy of a strip of Q. */
#define BLOCK ((size_t)8)
/* Columns of P and Q that are taken in one visit of a row; more of them take several visits. */
#define MAX_COLUMNS ((size_t)32)
/* Floats in a copy of a strip of Q. */
#define PACKED ((size_t)2048)

/* r columns of a strip of Q, `pitch` apart, which meet n elements of rows. Rows are m apart; what
 * will be needed next is `ahead` from what is. */
struct strip {
    const float *q;
    size_t pitch;
    size_t m;
    size_t n;
    size_t ahead;
};

/* Some rows of P, whose columns are `pitch` apart. */
struct p_rows {
    const float *p;
    size_t pitch;
};

/* Common ranks get specialised functions. */
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

/* The same for two rows, or the one that is left. */
#define WITH_ROWS(function, n_left, ...)     \
    do {                                     \
        if ((n_left) >= ROW_PAIR) {          \
            function(ROW_PAIR, __VA_ARGS__); \
        } else {                             \
            function(1, __VA_ARGS__);        \
        }                                    \
    } while (0)

/* The hardware prefetches too little. To the second-level cache: the nearest has room for few lines
 * that are still on their way. The address may lie beyond the array, which is harmless. */
INLINE void prefetch(const float *x, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)x + ahead * sizeof *x), 0, 2);
}

/* Loads a value that is used several times. Without the fence, which costs nothing, gcc may read it
 * from memory each time. */
INLINE vf load_once(const float *x)
{
    vf v = vf_load(x);

    __asm__ volatile("" : : : "memory");
    return v;
}

/* Whether a strip of Q is copied. A few columns do not evict each other. */
INLINE bool is_packed(size_t r)
{
    return r > 4 && r <= MAX_COLUMNS;
}

/* Rows that take turns strip by strip. */
INLINE size_t block_rows(size_t r)
{
    return is_packed(r) ? BLOCK : ROW_PAIR;
}

/* The length of a strip: all its data stays in the first-level cache. */
INLINE size_t strip_length(size_t r)
{
    return smaller(PACKED / smaller(r, MAX_COLUMNS) / LANES * LANES, 512);
}

/* The strip of Q, whose columns are m apart, from element begin on: a copy in room, or Q itself. */
INLINE struct strip strip_of(size_t r, size_t m, size_t n, const float *q, float *room)
{
    if (!is_packed(r)) {
        return (struct strip){q, m, m, n, 2048};
    }
    for (size_t k = 0; k < r; k++) {
        memcpy(room + k * n, q + k * m, n * sizeof *q);
    }
    return (struct strip){room, n, m, n, ROW_PAIR * m};
}

/* Sums of a pair of rows: those of two columns lie together. */
INLINE size_t sum_at(size_t row, size_t k)
{
    return k / 2 * 4 + row * 2 + k % 2;
}

/* Adds a vector of each row, times q, to the sums of column k, 0 or 1. */
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

    for (size_t j = 0; j < at.n; j += LANES) {
        vf row[ROW_PAIR];

        for (size_t i = 0; i < n_rows; i++) {
            prefetch(x + i * at.m + j, at.ahead);
            row[i] = load_once(x + i * at.m + j);
        }
        for (size_t k = 0; k < n_columns; k++) {
            add_products(n_rows, k, row, load_once(at.q + k * at.pitch + j), sum);
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
        struct strip two = at;

        two.q += k * at.pitch;
        if (k + 1 < r) {
            dot_strip(n_rows, 2, two, x, sums + sum_at(0, k));
        } else {
            dot_strip(n_rows, 1, two, x, sums + sum_at(0, k));
        }
    }
}

/* Adds the elements that do not fill a vector, and then the lanes; columns of P are n apart. */
INLINE void finish_row(size_t r, struct strip rest, const float *x, const vf *sums, size_t n,
                       float *p)
{
    for (size_t k = 0; k < r; k++) {
        vf sum = sums[sum_at(0, k)];

        if (rest.n > 0) {
            float lanes[LANES];

            vf_store(lanes, sum);
            for (size_t j = 0; j < rest.n; j++) {
                lanes[j] += x[j] * rest.q[k * rest.pitch + j];
            }
            sum = vf_load(lanes);
        }
        p[k * n] = vf_sum(sum);
    }
}

/* The sums of a block of rows. */
struct tile_sums {
    vf of_pair[BLOCK / ROW_PAIR][2 * MAX_COLUMNS];
};

INLINE void clear_sums(size_t n_rows, size_t r, struct tile_sums *sums)
{
    for (size_t i = 0; i < n_rows; i += ROW_PAIR) {
        for (size_t k = 0; k < (r + 1) / 2 * 4; k++) {
            sums->of_pair[i / ROW_PAIR][k] = vf_set1(0.0f);
        }
    }
}

/* Some rows, from row i on, of `length` elements each. */
struct block {
    size_t i;
    size_t n_rows;
    size_t length;
};

/* The rows from row i on, at most n_rows. A row that is cut short comes by itself. */
INLINE struct block block_at(const struct tally__low_rank *s, size_t i, size_t n_rows)
{
    size_t n_whole = s->size / s->m;

    return i < n_whole ? (struct block){i, smaller(n_rows, n_whole - i), s->m}
                       : (struct block){i, 1, s->size - i * s->m};
}

/* The inputs of a pass that computes P: x, and for correct, where x is C, its correction. */
struct product {
    const struct tally__low_rank *s;
    const float *x;
    const float *q;
    float *p;
    const float *grad;
    float *c;
    struct tally__factors old;
};

INLINE void finish_block(size_t r, const struct product *w, struct block b,
                         const struct tile_sums *sums)
{
    size_t m = w->s->m;
    size_t done = whole(b.length);
    struct strip rest = {.q = w->q + done, .pitch = m, .n = b.length - done};

    for (size_t row = 0; row < b.n_rows; row++) {
        const vf *sum = sums->of_pair[row / ROW_PAIR] + sum_at(row % ROW_PAIR, 0);

        finish_row(r, rest, w->x + (b.i + row) * m + done, sum, w->s->n, w->p + b.i + row);
    }
}

/* r columns of P, at most MAX_COLUMNS, for the rows of a block. */
INLINE void multiply_block(size_t r, const struct product *w, struct block b)
{
    size_t m = w->s->m;
    struct tile_sums sums;
    float room[PACKED];
    size_t step;

    clear_sums(b.n_rows, r, &sums);
    for (size_t j = 0; j < whole(b.length); j += step) {
        step = smaller(strip_length(r), whole(b.length) - j);

        struct strip at = strip_of(r, m, step, w->q + j, room);

        for (size_t row = 0; row < b.n_rows; row += ROW_PAIR) {
            WITH_ROWS(dot_columns, b.n_rows - row, 0, r, at, w->x + (b.i + row) * m + j,
                      sums.of_pair[row / ROW_PAIR]);
        }
    }
    finish_block(r, w, b, &sums);
}

INLINE void multiply(size_t r, const struct product *w)
{
    struct block b;

    for (size_t i = 0; i * w->s->m < w->s->size; i += b.n_rows) {
        b = block_at(w->s, i, block_rows(r));
        multiply_block(r, w, b);
    }
}

/* Rows of P that no element of the matrix belongs to. */
static void clear_rows(const struct tally__low_rank *s, float *p)
{
    size_t n_rows = (s->size + s->m - 1) / s->m;

    for (size_t k = 0; k < s->r; k++) {
        memset(p + k * s->n + n_rows, 0, (s->n - n_rows) * sizeof *p);
    }
}

static void low_rank_multiply(const struct tally__low_rank *s, const float *x, const float *q,
                              float *p)
{
    for (size_t k = 0; k < s->r; k += MAX_COLUMNS) {
        size_t r = smaller(s->r - k, MAX_COLUMNS);
        struct product w = {.s = s, .x = x, .q = q + k * s->m, .p = p + k * s->n};

        WITH_RANK(multiply, r, &w);
    }
    clear_rows(s, p);
}

/* The part of P that belongs to a block: a copy that nothing else points to, if there is room, so
 * that the compiler may keep some of it in registers. */
INLINE struct p_rows p_rows_of(size_t r, const struct tally__low_rank *s, struct block b,
                               const float *p, float *room)
{
    if (r > MAX_COLUMNS) {
        return (struct p_rows){p + b.i, s->n};
    }
    for (size_t k = 0; k < r; k++) {
        for (size_t row = 0; row < b.n_rows; row++) {
            room[k * BLOCK + row] = p[k * s->n + b.i + row];
        }
    }
    return (struct p_rows){room, BLOCK};
}

/* A vector of P Q^T in each of n_rows rows, from element j of the strip on. */
INLINE void product_at(size_t n_rows, size_t r, struct p_rows p, struct strip at, size_t j, vf *y)
{
    vf q = load_once(at.q + j);

    for (size_t i = 0; i < n_rows; i++) {
        y[i] = vf_mul(vf_set1(p.p[i]), q);
    }
    for (size_t k = 1; k < r; k++) {
        q = load_once(at.q + k * at.pitch + j);
        for (size_t i = 0; i < n_rows; i++) {
            y[i] = vf_add(y[i], vf_mul(vf_set1(p.p[k * p.pitch + i]), q));
        }
    }
}

/* One element of it, in the first of the rows. */
INLINE float product_element(size_t r, struct p_rows p, const float *q, size_t m)
{
    float y = p.p[0] * q[0];

    for (size_t k = 1; k < r; k++) {
        y += p.p[k * p.pitch] * q[k * m];
    }
    return y;
}

/* Rows of the gradient and of C, with P' and a strip of Q', whose product was sent in the step
 * before. */
struct corrected {
    const float *grad;
    float *c;
    struct p_rows p;
    struct strip old;
};

/* Corrects a strip of n_rows rows, and adds its products with n_columns, 0 to 2, columns of Q. */
INLINE void correct_strip(size_t n_rows, size_t n_columns, size_t r, struct strip at,
                          const struct corrected *e, vf *sums)
{
    vf sum[4] = {sums[0], sums[1], sums[2], sums[3]};

    for (size_t j = 0; j < at.n; j += LANES) {
        vf row[ROW_PAIR];

        product_at(n_rows, r, e->p, e->old, j, row);
        for (size_t i = 0; i < n_rows; i++) {
            const float *grad = e->grad + i * at.m + j;
            const float *c = e->c + i * at.m + j;

            prefetch(grad, at.ahead);
            prefetch(c, at.ahead);
            row[i] = vf_add(vf_load(grad), vf_sub(vf_load(c), row[i]));
        }
        /* After all loads: where rows are a multiple of 4096 bytes apart, a load would wait for the
         * store before it. */
        for (size_t i = 0; i < n_rows; i++) {
            vf_store(e->c + i * at.m + j, row[i]);
        }
        for (size_t k = 0; k < n_columns; k++) {
            add_products(n_rows, k, row, load_once(at.q + k * at.pitch + j), sum);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        sums[i] = sum[i];
    }
}

/* The first two columns of P are computed while a strip is corrected, the others after that. Where
 * there are too many, none is. */
INLINE void correct_columns(size_t n_rows, size_t r, struct strip at, const struct corrected *e,
                            vf *sums)
{
    if (r == 1) {
        correct_strip(n_rows, 1, r, at, e, sums);
    } else if (r <= MAX_COLUMNS) {
        correct_strip(n_rows, 2, r, at, e, sums);
        dot_columns(n_rows, 2, r, at, e->c, sums);
    } else {
        correct_strip(n_rows, 0, r, at, e, sums);
    }
}

/* The elements of a block's rows that do not fill a vector. */
INLINE void correct_rest(size_t r, const struct product *w, struct block b, struct p_rows p)
{
    size_t m = w->s->m;

    for (size_t row = 0; row < b.n_rows; row++) {
        struct p_rows here = {p.p + row, p.pitch};

        for (size_t j = whole(b.length); j < b.length; j++) {
            size_t at = (b.i + row) * m + j;

            w->c[at] = w->grad[at] + (w->c[at] - product_element(r, here, w->old.q + j, m));
        }
    }
}

INLINE void correct_block(size_t r, const struct product *w, struct block b)
{
    size_t m = w->s->m;
    struct tile_sums sums;
    float room[PACKED];
    float old_room[PACKED];
    float p_room[BLOCK * MAX_COLUMNS];
    struct p_rows p = p_rows_of(r, w->s, b, w->old.p, p_room);
    size_t step;

    clear_sums(b.n_rows, smaller(r, MAX_COLUMNS), &sums);
    for (size_t j = 0; j < whole(b.length); j += step) {
        step = smaller(strip_length(r), whole(b.length) - j);

        struct strip at = strip_of(r, m, step, w->q + j, room);
        struct strip old = strip_of(r, m, step, w->old.q + j, old_room);

        for (size_t row = 0; row < b.n_rows; row += ROW_PAIR) {
            size_t first = (b.i + row) * m + j;
            struct corrected e = {w->grad + first, w->c + first, {p.p + row, p.pitch}, old};

            WITH_ROWS(correct_columns, b.n_rows - row, r, at, &e, sums.of_pair[row / ROW_PAIR]);
        }
    }
    correct_rest(r, w, b, p);
    if (r <= MAX_COLUMNS) {
        finish_block(r, w, b, &sums);
    }
}

INLINE void correct(size_t r, const struct product *w)
{
    struct block b;

    for (size_t i = 0; i * w->s->m < w->s->size; i += b.n_rows) {
        b = block_at(w->s, i, block_rows(r));
        correct_block(r, w, b);
    }
}

static void low_rank_correct(const struct tally__low_rank *s, const float *grad,
                             struct tally__factors old, const float *q, float *c, float *p)
{
    struct product w = {.s = s, .x = c, .q = q, .p = p, .grad = grad, .c = c, .old = old};

    WITH_RANK(correct, s->r, &w);
    if (s->r > MAX_COLUMNS) {
        low_rank_multiply(s, c, q, p);
    }
    clear_rows(s, p);
}

#include "num/low_rank_expand_simd.h"
