/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what a hook costs and what it does to the mean: training steps without a backward pass,
 * between processes on this machine, or wherever mpirun has started them, with gradients as views.
 * Steps with the hook and steps with the plain all-reduce take turns, each with a ddp of its own,
 * and every rank writes all its gradients anew before each. A time is that from the first rank's
 * leaving a barrier to the last rank's being done, on a clock they share; of ranks that mpirun has
 * started, the longest of each rank's own. Medians over all steps.
 *
 * Checked: that all ranks get the same bits, and, in the first step, when there is no feedback from
 * steps before, that the result is as near to the exact mean as the hook should be.
 */
#ifndef TALLY_BENCH_HOOKS_BENCH_H
#define TALLY_BENCH_HOOKS_BENCH_H

#include <stddef.h>

#include "bench/hooks_input.h"
#include "bench/rank_group.h"

#define HOOKS_MAX_STEPS 1000
#define HOOKS_MAX_RANKS 64

struct hooks_bench {
    const char *hook; /* as tally_hook_parse takes it */
    int ranks;
    struct rank_launch launch;
    size_t bytes;        /* of all gradients, fp32 */
    size_t bucket_bytes; /* cap of every bucket; 0: tally's own caps */
    size_t n_steps;      /* on either side; up to HOOKS_MAX_STEPS */
};

struct hooks_result {
    double ms; /* of a step */
    double plain_ms;
    double plain_ratio;            /* ms / plain_ms */
    unsigned long long wire_bytes; /* sent in a step by the rank that sends most */
    unsigned long long host_bytes; /* the same, within hosts */
    struct hooks_error error;      /* on the rank where it is largest */
};

/*
 * Measures one hook. The caller must have no threads. Collective between ranks that were launched.
 * Errors: ARG for what makes no sense; what a rank says, INTERNAL for a mean that is wrong; never
 * waits forever.
 */
int hooks_bench_run(const struct hooks_bench *bench, struct hooks_result *result);

#endif
