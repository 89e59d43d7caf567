/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of low_rank_simd.h: what is made of P and Q, and inner products. Like it without an
 * include guard. */

/* n_rows rows of P Q^T. The elements before begin are stored one by one; with past_caches, y +
 * begin is a multiple of 64 bytes in every row. */
INLINE void expand_rows(size_t n_rows, size_t r, struct strip at, const struct product *f,
                        bool past_caches, float *y)
{
    size_t end = at.begin + whole(at.end - at.begin);

    for (size_t j = at.begin; j < end; j += LANES) {
        vf row[PAIR];

        product_at(n_rows, r, f, j, row);
        for (size_t i = 0; i < n_rows; i++) {
            if (past_caches) {
                vf_stream(y + i * at.m + j, row[i]);
            } else {
                vf_store(y + i * at.m + j, row[i]);
            }
        }
    }
    for (size_t i = 0; i < n_rows; i++) {
        for (size_t j = 0; j < at.begin; j++) {
            y[i * at.m + j] = product_element(r, f, i, j);
        }
        for (size_t j = end; j < at.end; j++) {
            y[i * at.m + j] = product_element(r, f, i, j);
        }
    }
}

/* Elements before the first multiple of 64 bytes, at most length. */
INLINE size_t before_line(const float *y, size_t length)
{
    return smaller((64 - (uintptr_t)y % 64) % 64 / sizeof *y, length);
}

INLINE void expand(size_t r, const struct tally__low_rank *s, struct tally__factors f,
                   bool past_caches, float *y)
{
    size_t n_whole = s->size / s->m;
    bool alike = !past_caches || s->m % LANES == 0;
    size_t n_rows;

    for (size_t i = 0; i * s->m < s->size; i += n_rows) {
        struct strip at = {.m = s->m, .end = smaller(s->m, s->size - i * s->m)};
        float *rows = y + i * s->m;
        float room[PAIR * MAX_COLUMNS];
        struct product product;

        at.begin = past_caches ? before_line(rows, at.end) : 0;
        if (alike && i + PAIR <= n_whole) {
            n_rows = PAIR;
            product = product_of(PAIR, r, s, f, i, room);
            expand_rows(PAIR, r, at, &product, past_caches, rows);
        } else {
            n_rows = 1;
            product = product_of(1, r, s, f, i, room);
            expand_rows(1, r, at, &product, past_caches, rows);
        }
    }
}

static void low_rank_expand(const struct tally__low_rank *s, struct tally__factors f,
                            bool past_caches, float *y)
{
    if (past_caches) {
        WITH_RANK(expand, s->r, s, f, true, y);
        stream_end();
    } else {
        WITH_RANK(expand, s->r, s, f, false, y);
    }
}

static void low_rank_residual(const struct tally__low_rank *s, struct tally__factors f, float *c)
{
    for (size_t i = 0; i * s->m < s->size; i++) {
        size_t length = smaller(s->m, s->size - i * s->m);
        struct product product = {f.p + i, s->n, f.q, s->m};
        float *row = c + i * s->m;

        for (size_t j = 0; j < whole(length); j += LANES) {
            vf y;

            product_at(1, s->r, &product, j, &y);
            vf_store(row + j, vf_sub(vf_load(row + j), y));
        }
        for (size_t j = whole(length); j < length; j++) {
            row[j] -= product_element(s->r, &product, 0, j);
        }
    }
}

static double dot_f32(size_t n, const float *x, const float *y)
{
    vd lower = vd_set1(0.0);
    vd upper = vd_set1(0.0);
    double lanes[LANES];

    for (size_t i = 0; i < whole(n); i += LANES) {
        size_t half = i + LANES / 2;

        lower = vd_add(lower, vd_mul(vd_load_f32(x + i), vd_load_f32(y + i)));
        upper = vd_add(upper, vd_mul(vd_load_f32(x + half), vd_load_f32(y + half)));
    }
    vd_store(lanes, lower);
    vd_store(lanes + LANES / 2, upper);
    for (size_t i = whole(n); i < n; i++) {
        lanes[i % LANES] += (double)x[i] * (double)y[i];
    }
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

/* The table of a level: TALLY__LOW_RANK_LIST(KERNEL_ENTRY) between braces. */
#define KERNEL_ENTRY(name, result, parameters, arguments) .name = name,
