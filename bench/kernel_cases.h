/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurement of each kernel: the bytes it reads and writes, and the call. Expanded from the
 * kernel list, so a kernel without a case does not build.
 */
#ifndef TALLY_BENCH_KERNEL_CASES_H
#define TALLY_BENCH_KERNEL_CASES_H

#include <stddef.h>
#include <stdint.h>

#include "num/num.h"

/* The arrays kernels are measured on, n elements each. Two of each, for sums and differences. */
struct kernel_arrays {
    size_t n;
    float *f32[2];
    double *f64[2];
    uint16_t *f16[2];
    uint16_t *bf16[2];
    int32_t *i32[2];
    int64_t *i64[2];
    uint8_t *u8[2];
    struct tally__affine *affine; /* one per block of TALLY__BLOCK_DEFAULT */
    float *scale;
    /* Outputs: two arrays of n times 8 bytes, used as any type. */
    void *out[2];
    struct tally__affine *affine_out;
    float *scale_out;
    double value_out; /* of kernels that return a number */
};

struct kernel_case {
    const char *name;
    void (*run)(const struct tally__isa *isa, struct kernel_arrays *arrays);
    size_t read_bytes;  /* per element */
    size_t write_bytes; /* per element, all outputs together */
    double goal;        /* time as a multiple of memcpy's that it must stay within */
};

extern const struct kernel_case kernel_cases[];
extern const size_t n_kernel_cases;

/* The optimizers' kernels. */
extern const struct kernel_case optim_cases[];
extern const size_t n_optim_cases;

/* Case number i of both lists; NULL behind the last. */
const struct kernel_case *kernel_case_at(size_t i);

#endif
