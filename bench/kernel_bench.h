/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures kernels against memcpy. Every kernel and instruction set is first run once on fresh
 * outputs and its results compared with the reference instruction set's, bit for bit: a wrong
 * kernel has no speed.
 */
#ifndef TALLY_BENCH_KERNEL_BENCH_H
#define TALLY_BENCH_KERNEL_BENCH_H

#include <stdbool.h>
#include <stddef.h>

struct kernel_result {
    const char *kernel;
    const char *isa;
    size_t bytes; /* read and written by one call */
    double us;    /* median time of a call */
    double memcpy_us;
    double gbps;         /* bytes / us, in 10^9 bytes per second */
    double memcpy_ratio; /* us / memcpy_us, where memcpy moves bytes / 2 */
    double goal;         /* the limit of memcpy_ratio on the best instruction set */
    bool best;           /* this is the best instruction set measured */
};

struct kernel_bench {
    size_t data_bytes;  /* of one fp32 array */
    const char *kernel; /* measure only this one; NULL for all */
    void (*report)(const struct kernel_result *result, void *user);
    void *user;
};

/*
 * Measures every kernel on every instruction set this CPU has, or on the one TALLY_ISA names.
 * Errors: ARG for an unknown kernel (the text lists all), NOMEM, INTERNAL for a result that differs
 * from the reference.
 */
int kernel_bench_run(const struct kernel_bench *bench);

#endif
