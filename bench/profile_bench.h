/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes a profile (tune/profile.h) of a synthetic training step between processes on this machine,
 * or wherever mpirun has started them, and beside it, for each hook, measures the step itself, so
 * that the forecast from the profile can be compared with it. Measured are: backward alone, and how
 * much longer it takes beside lanes that code or communicate; a small message; the rate of the
 * line; the CPU time of each hook, in a group of one rank, which sends nothing; the bytes it sends;
 * and the error of the sum over all steps.
 */
#ifndef TALLY_BENCH_PROFILE_BENCH_H
#define TALLY_BENCH_PROFILE_BENCH_H

#include "bench/plan_rows.h"
#include "bench/rank_group.h"

#define PROFILE_MAX_HOOKS 16
#define PROFILE_MAX_STEPS 200

struct profile_bench {
    int ranks;
    struct rank_launch launch;
    size_t bytes;        /* of all gradients, fp32 */
    size_t bucket_bytes; /* cap of every bucket; 0: tally's own caps */
    double backward_ms;
    bool is_timed; /* backward sleeps instead of computing, and so leaves its CPU to the lanes */
    size_t n_steps;
    const char *const *hooks; /* their texts; the first is allreduce */
    size_t n_hooks;
    const char *file; /* for the profile; NULL: it is not written */
};

/* A hook on the machine of the profile. */
struct profile_row {
    char hook[TALLY__PROFILE_NAME + 1];
    double step_ms;     /* measured: the median of the slowest rank's */
    double forecast_ms; /* computed from the profile */
    double error;
    double host_bytes;             /* as forecast */
    unsigned long long wire_bytes; /* sent by rank 0, measured */
};

struct profile_result {
    size_t n;
    struct profile_row rows[PROFILE_MAX_HOOKS];
    double hosts;
    double gbit; /* of the link, or of memory */
    double latency_us;
    double backward_ms; /* alone */
    double cpu_share;
};

/*
 * Measures, and writes the file. The caller must have no threads. Collective between ranks that
 * were launched. Errors: ARG for what makes no sense, SYSTEM if the file cannot be written, what a
 * rank says.
 */
int profile_bench_run(const struct profile_bench *bench, struct profile_result *result);

#endif
