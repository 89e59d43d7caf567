/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of `tally bench lowrank`: all passes take turns, so that all see the same machine. One
 * thread. */
#include "bench/lowrank_bench.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/lowrank_blas.h"
#include "bench/timing.h"
#include "num/low_rank.h"
#include "num/num.h"

struct workspace {
    struct tally__low_rank s; /* of one matrix */
    size_t n_matrices;
    float *grad; /* the matrices, one after the other */
    float *c;
    float *p; /* their factors, also one after the other */
    float *q;
    float *old_p; /* random */
    float *old_q;
    float *factors;  /* the block in which all factors lie */
    float *check[4]; /* one matrix */
    uint32_t bits;   /* result of the reading pass */
};

static float *grad_of(const struct workspace *w, size_t i)
{
    return w->grad + i * w->s.size;
}

static float *c_of(const struct workspace *w, size_t i)
{
    return w->c + i * w->s.size;
}

static float *p_of(const struct workspace *w, size_t i)
{
    return w->p + i * w->s.n * w->s.r;
}

static float *q_of(const struct workspace *w, size_t i)
{
    return w->q + i * w->s.m * w->s.r;
}

static void run_multiply(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        tally__low_rank_multiply(&w->s, grad_of(w, i), q_of(w, i), p_of(w, i));
    }
}

static void run_correct(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        struct tally__factors old = {w->old_p + i * w->s.n * w->s.r,
                                     w->old_q + i * w->s.m * w->s.r};

        tally__low_rank_correct(&w->s, grad_of(w, i), old, q_of(w, i), c_of(w, i), p_of(w, i));
    }
}

static void run_transposed(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        tally__low_rank_multiply_transposed(&w->s, c_of(w, i), p_of(w, i), q_of(w, i));
    }
}

static void run_expand(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        tally__low_rank_expand(&w->s, (struct tally__factors){p_of(w, i), q_of(w, i)}, true,
                               grad_of(w, i));
    }
}

/* P and Q are random at first: see measure. */
static void run_orthogonalise(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        (void)tally__low_rank_orthogonalise(w->s.n, w->s.r, 0.0, p_of(w, i));
        (void)tally__low_rank_orthogonalise(w->s.m, w->s.r, 0.0, q_of(w, i));
    }
}

/* The plain passes, over all memory at once. */
static void run_read(struct workspace *w)
{
    size_t n = w->n_matrices * w->s.size;
    uint32_t all = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &w->c[i], sizeof bits);
        all |= bits;
    }
    w->bits = all;
}

static void run_update(struct workspace *w)
{
    size_t n = w->n_matrices * w->s.size;
    const float *restrict grad = w->grad;
    float *restrict c = w->c;

    for (size_t i = 0; i < n; i++) {
        c[i] = grad[i] + c[i];
    }
}

/* The C library stores past the caches when there is so much. */
static void run_write(struct workspace *w)
{
    memset(w->grad, 0x3e, w->n_matrices * w->s.size * sizeof *w->grad);
}

static void run_blas_multiply(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        lowrank_blas_multiply(&w->s, grad_of(w, i), q_of(w, i), p_of(w, i));
    }
}

static void run_blas_transposed(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        lowrank_blas_multiply_transposed(&w->s, c_of(w, i), p_of(w, i), q_of(w, i));
    }
}

static void run_blas_expand(struct workspace *w)
{
    for (size_t i = 0; i < w->n_matrices; i++) {
        lowrank_blas_expand(&w->s, (struct tally__factors){p_of(w, i), q_of(w, i)}, grad_of(w, i));
    }
}

/* Stores the rest of C: the additional pass of a step made of plain products. */
static void run_subtract(struct workspace *w)
{
    tally__sub_f32(w->n_matrices * w->s.size, w->c, w->grad, w->c);
}

enum pass {
    ORTHOGONALISE,
    MULTIPLY,
    CORRECT,
    TRANSPOSED,
    EXPAND,
    READ,
    UPDATE,
    WRITE,
    SUBTRACT,
    BLAS_MULTIPLY, /* from here on, what needs a BLAS */
    BLAS_TRANSPOSED,
    BLAS_EXPAND,
    N_PASSES
};

static void (*const passes[N_PASSES])(struct workspace *) = {
    [ORTHOGONALISE] = run_orthogonalise,
    [MULTIPLY] = run_multiply,
    [CORRECT] = run_correct,
    [TRANSPOSED] = run_transposed,
    [EXPAND] = run_expand,
    [READ] = run_read,
    [UPDATE] = run_update,
    [WRITE] = run_write,
    [SUBTRACT] = run_subtract,
    [BLAS_MULTIPLY] = run_blas_multiply,
    [BLAS_TRANSPOSED] = run_blas_transposed,
    [BLAS_EXPAND] = run_blas_expand,
};

struct block {
    float **slot;
    size_t count;
};

#define N_BLOCKS 7

/* Factors lie anywhere: not, like the matrices, at the start of a page. */
#define APART 640

static size_t p_size(const struct workspace *w)
{
    return w->n_matrices * w->s.n * w->s.r;
}

static size_t q_size(const struct workspace *w)
{
    return w->n_matrices * w->s.m * w->s.r;
}

static void list_blocks(struct workspace *w, struct block *list)
{
    size_t one = w->s.size + (w->s.n + w->s.m) * w->s.r;
    const struct block blocks[N_BLOCKS] = {
        {&w->grad, w->n_matrices * w->s.size},
        {&w->c, w->n_matrices * w->s.size},
        {&w->factors, 2 * (p_size(w) + q_size(w)) + (size_t)4 * APART},
        {&w->check[0], one},
        {&w->check[1], one},
        {&w->check[2], one},
        {&w->check[3], one},
    };

    memcpy(list, blocks, sizeof blocks);
}

static void place_factors(struct workspace *w)
{
    w->p = w->factors + APART;
    w->q = w->p + p_size(w) + APART;
    w->old_p = w->q + q_size(w) + APART;
    w->old_q = w->old_p + p_size(w) + APART;
}

static void free_workspace(struct workspace *w)
{
    struct block list[N_BLOCKS];

    list_blocks(w, list);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        tally__free(*list[i].slot);
    }
}

/* Evenly spread over -1..1, the same on every run. */
static void fill(float *x, size_t n)
{
    uint32_t state = 1;

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

static int make_workspace(const struct lowrank_bench *bench, struct workspace *w)
{
    size_t matrix_bytes = bench->n * bench->m * sizeof(float);
    struct block list[N_BLOCKS];

    *w = (struct workspace){.s = {bench->n, bench->m, bench->r, bench->n * bench->m}};
    w->n_matrices = bench->bytes > matrix_bytes ? bench->bytes / matrix_bytes : 1;
    list_blocks(w, list);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        *list[i].slot = tally__alloc_array(list[i].count, sizeof(float), "the low-rank bench");
        if (!*list[i].slot) {
            free_workspace(w);
            return TALLY_NOMEM;
        }
        fill(*list[i].slot, list[i].count);
    }
    place_factors(w);
    return TALLY_OK;
}

/* A step of one matrix on one instruction set: c, y, p, q. */
static void run_step(const struct tally__isa *isa, const struct workspace *w, float *c, float *y)
{
    const struct tally__low_rank *s = &w->s;
    struct tally__factors f = {w->p, w->q};

    memcpy(c, w->c, s->size * sizeof *c);
    isa->low_rank->low_rank_correct(s, w->grad, (struct tally__factors){w->old_p, w->old_q},
                                    w->old_q, c, w->p);
    isa->low_rank->low_rank_multiply_transposed(s, c, w->p, w->q);
    isa->low_rank->low_rank_expand(s, f, true, y);
}

/* Not fmax: gcc 12 for ARM fails on reductions with it. A NaN is larger than anything. */
static double larger(double a, double b)
{
    return b <= a ? a : b;
}

/* Compares the products of the BLAS, which adds in another order, with ours. */
static int verify_blas(const struct workspace *w)
{
    const struct tally__low_rank *s = &w->s;
    float *p = w->check[2];
    float *q = w->check[3];
    double error = 0.0;

    lowrank_blas_multiply(s, w->check[0], w->old_q, p);
    lowrank_blas_multiply_transposed(s, w->check[0], w->p, q);
    for (size_t i = 0; i < s->n * s->r; i++) {
        error = larger(error, fabs((double)p[i] - (double)w->p[i]) / (double)(s->m * s->r));
    }
    for (size_t i = 0; i < s->m * s->r; i++) {
        double size = (double)s->n * (double)s->m * (double)s->r;

        error = larger(error, fabs((double)q[i] - (double)w->q[i]) / size);
    }
    return error <= 1e-5 ? TALLY_OK
                         : tally__fail(TALLY_INTERNAL, "the BLAS's products differ by %g", error);
}

static int verify(const struct workspace *w, bool with_blas)
{
    size_t bytes = w->s.size * sizeof(float);

    run_step(&tally__isas[0], w, w->check[0], w->check[1]);
    run_step(tally__isa(), w, w->check[2], w->check[3]);
    if (memcmp(w->check[0], w->check[2], bytes) != 0 ||
        memcmp(w->check[1], w->check[3], bytes) != 0) {
        return tally__fail(TALLY_INTERNAL, "%zu x %zu, rank %zu: %s differs from the reference",
                           w->s.n, w->s.m, w->s.r, tally__isa()->name);
    }
    return with_blas ? verify_blas(w) : TALLY_OK;
}

static void measure(struct workspace *w, size_t n_samples, size_t n_passes, double *ms)
{
    static double samples[N_PASSES][LOWRANK_MAX_SAMPLES];

    for (size_t i = 0; i < n_samples; i++) {
        memcpy(w->p, w->old_p, p_size(w) * sizeof *w->p);
        memcpy(w->q, w->old_q, q_size(w) * sizeof *w->q);
        for (size_t pass = 0; pass < n_passes; pass++) {
            uint64_t start;

            /* Every pass finds the same in the caches, and nothing there to be written back. */
            run_read(w);
            start = tally__now_ns();
            passes[pass](w);
            samples[pass][i] = (double)(tally__now_ns() - start) * 1e-6;
        }
    }
    for (size_t pass = 0; pass < N_PASSES; pass++) {
        ms[pass] = pass < n_passes ? bench_quantile(samples[pass], n_samples, 0.5) : (double)NAN;
    }
}

int lowrank_bench_run(const struct lowrank_bench *bench, struct lowrank_result *result)
{
    const char *blas = lowrank_blas_load();
    struct workspace w;
    double ms[N_PASSES];
    int rc;

    TRY(tally__num_start());
    TRY(make_workspace(bench, &w));
    rc = verify(&w, blas != NULL);
    if (rc == TALLY_OK) {
        measure(&w, bench->n_samples, blas ? N_PASSES : BLAS_MULTIPLY, ms);
        *result = (struct lowrank_result){
            .n_matrices = w.n_matrices,
            .isa = tally__isa()->name,
            .blas = blas,
            .multiply_ms = ms[MULTIPLY],
            .correct_ms = ms[CORRECT],
            .transposed_ms = ms[TRANSPOSED],
            .expand_ms = ms[EXPAND],
            .orthogonalise_ms = ms[ORTHOGONALISE],
            .step_ms = ms[CORRECT] + ms[TRANSPOSED] + ms[EXPAND],
            .read_ms = ms[READ],
            .update_ms = ms[UPDATE],
            .write_ms = ms[WRITE],
            .streams_ms = ms[UPDATE] + ms[READ] + ms[WRITE],
            .blas_multiply_ms = ms[BLAS_MULTIPLY],
            .blas_transposed_ms = ms[BLAS_TRANSPOSED],
            .blas_expand_ms = ms[BLAS_EXPAND],
            .blas_step_ms = ms[UPDATE] + ms[BLAS_MULTIPLY] + ms[BLAS_TRANSPOSED] + ms[BLAS_EXPAND] +
                            ms[SUBTRACT],
        };
    }
    free_workspace(&w);
    return rc;
}
