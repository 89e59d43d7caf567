/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of low_rank_simd.h: the products with P, and inner products. It has no include guard
 * either. */

/* Rows that are added up before they are added to a sum, and rows before that is added to Q. */
#define FOUR ((size_t)4)
#define TALL ((size_t)32)

/* Adds n_rows rows of x, weighted, to r sums for each column. The weight of row i for sum k is
 * weight[k * TALL + i]; the sums are pitch apart. */
INLINE void add_rows(size_t n_rows, size_t r, struct strip at, const float *x, const float *weight,
                     float *sums)
{
    for (size_t j = 0; j < whole(at.n); j += LANES) {
        vf row[FOUR];

        for (size_t i = 0; i < n_rows; i++) {
            prefetch(x + i * at.m + j, at.ahead);
            row[i] = load_once(x + i * at.m + j);
        }
        for (size_t k = 0; k < r; k++) {
            float *sum = sums + k * at.pitch + j;
            vf four = vf_mul(row[0], vf_set1(weight[k * TALL]));

            for (size_t i = 1; i < n_rows; i++) {
                four = vf_add(four, vf_mul(row[i], vf_set1(weight[k * TALL + i])));
            }
            vf_store(sum, vf_add(vf_load(sum), four));
        }
    }
    for (size_t k = 0; k < r; k++) {
        for (size_t j = whole(at.n); j < at.n; j++) {
            float four = x[j] * weight[k * TALL];

            for (size_t i = 1; i < n_rows; i++) {
                four += x[i * at.m + j] * weight[k * TALL + i];
            }
            sums[k * at.pitch + j] += four;
        }
    }
}

/* A strip of the rows of a block, added to r columns of Q. */
INLINE void add_strip(size_t r, struct strip at, struct block b, const float *x,
                      const float *weight, float *q)
{
    float sums[PACKED] = {0};
    size_t fours = b.n_rows - b.n_rows % FOUR;

    for (size_t row = 0; row < fours; row += FOUR) {
        add_rows(FOUR, r, at, x + row * at.m, weight + row, sums);
    }
    x += fours * at.m;
    weight += fours;
    if (b.n_rows - fours == 3) {
        add_rows(3, r, at, x, weight, sums);
    } else if (b.n_rows - fours == 2) {
        add_rows(2, r, at, x, weight, sums);
    } else if (b.n_rows - fours == 1) {
        add_rows(1, r, at, x, weight, sums);
    }
    for (size_t k = 0; k < r; k++) {
        for (size_t j = 0; j < at.n; j++) {
            q[k * at.m + j] += sums[k * at.pitch + j];
        }
    }
}

INLINE void multiply_transposed(size_t r, const struct tally__low_rank *s, const float *x,
                                const float *p, float *q)
{
    size_t step = strip_length(r);
    struct block b;

    for (size_t i = 0; i * s->m < s->size; i += b.n_rows) {
        float weight[TALL * MAX_COLUMNS];

        b = block_at(s, i, TALL);
        for (size_t k = 0; k < r; k++) {
            memcpy(weight + k * TALL, p + k * s->n + i, b.n_rows * sizeof *p);
        }
        for (size_t j = 0; j < b.length; j += step) {
            struct strip at = {NULL, step, s->m, smaller(step, b.length - j), FOUR * s->m};

            add_strip(r, at, b, x + i * s->m + j, weight, q + j);
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

/* A strip of n_rows rows of P Q^T; the rows of y are `apart`. */
INLINE void expand_strip(size_t n_rows, size_t r, struct strip at, struct p_rows p, size_t apart,
                         float *y)
{
    for (size_t j = 0; j < at.n; j += LANES) {
        vf row[ROW_PAIR];

        product_at(n_rows, r, p, at, j, row);
        for (size_t i = 0; i < n_rows; i++) {
            vf_store(y + i * apart + j, row[i]);
        }
    }
}

/* Copies the whole cache lines of y past the caches. */
INLINE void stream_out(size_t n, const float *x, float *y)
{
    size_t begin = smaller((64 - (uintptr_t)y % 64) % 64 / sizeof *y, n);
    size_t end = begin + whole(n - begin);

    memcpy(y, x, begin * sizeof *y);
    for (size_t j = begin; j < end; j += LANES) {
        vf_stream(y + j, vf_load(x + j));
    }
    memcpy(y + end, x + end, (n - end) * sizeof *y);
}

/* Buffer in which a strip is computed before it goes past the caches. A load waits for a recent
 * store past the caches whose address differs by a multiple of 4096. Therefore strips are not
 * stored past the caches while Q is read, and each lies in the buffer at an address with the last
 * bits of its destination. */
#define STAGING (1024 + 512)

INLINE float *staged(float *room, const float *y)
{
    return room + ((uintptr_t)y - (uintptr_t)room) % 4096 / sizeof *y;
}

/* expand_strip through a buffer. */
INLINE void stream_strip(size_t n_rows, size_t r, struct strip at, struct p_rows p, size_t apart,
                         float *y)
{
    float room[ROW_PAIR * STAGING];
    float *from[ROW_PAIR] = {NULL};

    for (size_t i = 0; i < n_rows; i++) {
        from[i] = staged(&room[i * STAGING], y + i * apart);
    }
    expand_strip(n_rows, r, at, p, (size_t)(from[n_rows - 1] - from[0]), from[0]);
    for (size_t i = 0; i < n_rows; i++) {
        stream_out(at.n, from[i], y + i * apart);
    }
}

INLINE void expand_block(size_t r, const struct tally__low_rank *s, struct tally__factors f,
                         struct block b, bool past_caches, float *y)
{
    float room[PACKED];
    float p_room[BLOCK * MAX_COLUMNS];
    struct p_rows p = p_rows_of(r, s, b, f.p, p_room);
    size_t step;

    for (size_t j = 0; j < whole(b.length); j += step) {
        step = smaller(strip_length(r), whole(b.length) - j);

        struct strip at = strip_of(r, s->m, step, f.q + j, room);

        for (size_t row = 0; row < b.n_rows; row += ROW_PAIR) {
            struct p_rows pair = {p.p + row, p.pitch};
            float *rows = y + row * s->m + j;

            if (past_caches) {
                WITH_ROWS(stream_strip, b.n_rows - row, r, at, pair, s->m, rows);
            } else {
                WITH_ROWS(expand_strip, b.n_rows - row, r, at, pair, s->m, rows);
            }
        }
    }
    for (size_t row = 0; row < b.n_rows; row++) {
        struct p_rows here = {p.p + row, p.pitch};

        for (size_t j = whole(b.length); j < b.length; j++) {
            y[row * s->m + j] = product_element(r, here, f.q + j, s->m);
        }
    }
}

INLINE void expand(size_t r, const struct tally__low_rank *s, struct tally__factors f,
                   bool past_caches, float *y)
{
    struct block b;

    for (size_t i = 0; i * s->m < s->size; i += b.n_rows) {
        b = block_at(s, i, block_rows(r));
        expand_block(r, s, f, b, past_caches, y + i * s->m);
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
        struct strip at = {.q = f.q, .pitch = s->m};
        struct p_rows p = {f.p + i, s->n};
        float *row = c + i * s->m;

        for (size_t j = 0; j < whole(length); j += LANES) {
            vf y;

            product_at(1, s->r, p, at, j, &y);
            vf_store(row + j, vf_sub(vf_load(row + j), y));
        }
        for (size_t j = whole(length); j < length; j++) {
            row[j] -= product_element(s->r, p, f.q + j, s->m);
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
