/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures training steps of a ddp between processes on this machine, or wherever mpirun has
 * started them, with a synthetic backward pass, and beside them, in turn, what they consist of. The
 * sides:
 *
 *   overlapped   backward, announcing each gradient when it is written; wait
 *   serial       the same backward in silence; then all gradients announced at once; wait
 *   backward     the same backward alone
 *   on call      with an optimizer: as overlapped, then tally_optimizer_step
 *   behind       with an optimizer: as overlapped, with updates on the lanes
 *   traffic      memcpy of half the bytes that an update reads and writes
 *   all-reduce   one all-reduce of the same bytes in group memory
 *   at once      gradients that lie ready, all announced at once; wait
 *
 * Every rank writes all its gradients anew for every side, and every element of every mean is
 * checked; parameters must be the same, to the bit, with both optimizers and on all ranks. A time
 * is that from the first rank's leaving a barrier to the last rank's being done, on a clock they
 * share; of ranks that mpirun has started, the longest of each rank's own. Medians over all steps.
 */
#ifndef TALLY_BENCH_STEP_BENCH_H
#define TALLY_BENCH_STEP_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/rank_group.h"

#define STEP_MAX_STEPS 1000

struct step_bench {
    int ranks;
    struct rank_launch launch;
    size_t bytes; /* of all gradients, fp32 */
    size_t n_params;
    const char *optimizer; /* its text; NULL: none */
    double backward_ms;    /* wanted length of the backward pass; 0: only the last two sides */
    bool copies; /* the application has its own gradient arrays; otherwise gradients are views */
    size_t bucket_bytes; /* cap of every bucket; 0: tally's own caps */
    int lanes;
    size_t n_steps; /* on every side; up to STEP_MAX_STEPS */
};

/* Times in milliseconds; what was not measured is NaN. */
struct step_result {
    int cpus;             /* that the ranks share */
    double overlapped_ms; /* the sides */
    double serial_ms;
    double backward_ms;
    double all_reduce_ms;
    double at_once_ms;
    double exposed_ms;          /* overlapped: from the last rank's call of wait to the end */
    double comm_ms;             /* serial - backward */
    double overlap;             /* (serial - overlapped) / comm; NaN where noise made comm <= 0 */
    double backward_stretch;    /* the overlapped backward / the backward alone */
    double step_over_allreduce; /* at once / all-reduce */
    double on_call_ms;          /* with an optimizer */
    double behind_ms;           /* with an overlapped optimizer */
    double update_ms;           /* tally_optimizer_step alone */
    double exposed_on_call;     /* time that the optimizer adds to a step on call, in ms: on call -
                                   overlapped, */
    double exposed_behind;      /* and behind the hook; pairs of the same step */
    double in_wait_ms;          /* of the updates behind the hook, what wait saw */
    double exposed_ratio;       /* the second by the first; NaN where noise made the first <= 0 */
    double update_over_traffic; /* update_ms / traffic */
    unsigned long long wire_bytes; /* sent by rank 0 in a step */
    double create_ms; /* tally_ddp_create on the slowest rank, the parameters of rank 0 included */
};

/*
 * Measures. The caller must have no threads. Collective between ranks that were launched. Errors:
 * ARG for what makes no sense; what a rank says, INTERNAL for a mean that is wrong; never waits
 * forever.
 */
int step_bench_run(const struct step_bench *bench, struct step_result *result);

#endif
