/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the passes of low-rank compression over many matrices of one shape, which together are
 * larger than the caches, against plain passes over the same memory and against a BLAS. The
 * results are first compared with the reference instruction set's, bit for bit, and with the
 * BLAS's.
 */
#ifndef TALLY_BENCH_LOWRANK_BENCH_H
#define TALLY_BENCH_LOWRANK_BENCH_H

#include <stddef.h>

struct lowrank_bench {
    size_t n;
    size_t m;
    size_t r;
    size_t bytes; /* of all matrices: at least one, as many as fit */
    size_t n_samples;
};

#define LOWRANK_MAX_SAMPLES 101

/* Medians, in ms, for all matrices. */
struct lowrank_result {
    size_t n_matrices;
    const char *isa;
    const char *blas; /* NULL: none was found */
    double multiply_ms;
    double correct_ms;
    double transposed_ms;
    double expand_ms;
    double orthogonalise_ms; /* P and Q */
    double step_ms;          /* correct, multiply_transposed, expand */
    /* Plain passes: reads one array; reads two and writes one of them; writes one. */
    double read_ms;
    double update_ms;
    double write_ms;
    double streams_ms; /* the three of them: the five streams of a step */
    /* The products by the BLAS, and a step of them with plain passes for the feedback; NaN without
     * one. */
    double blas_multiply_ms;
    double blas_transposed_ms;
    double blas_expand_ms;
    double blas_step_ms;
};

/* Errors: NOMEM, INTERNAL for a wrong result, ARG when TALLY_ISA asks for what this CPU lacks. */
int lowrank_bench_run(const struct lowrank_bench *bench, struct lowrank_result *result);

#endif
