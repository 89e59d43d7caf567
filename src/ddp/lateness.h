/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lateness: how long the ranks of a ddp waited for one of them, and why. comm/arrivals.h notes the
 * rounds of a step; here they are added up.
 */
#ifndef TALLY_DDP_LATENESS_H
#define TALLY_DDP_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/arrivals.h"
#include "tally_extend.h"
#include "trace/tracer.h"

/* Causes of lateness: enum tally_late_cause without NOT. */
#define TALLY__N_LATE_CAUSES 3

/* Steps in a row: their number, their length, and how long the others waited for a rank in them. */
struct tally__late_row {
    unsigned n;
    uint64_t steps_ns;
    uint64_t ns[TALLY__N_LATE_CAUSES];
};

/* Lateness of one rank, as this rank has seen it. */
struct tally__rank_lateness {
    uint64_t n_last;                        /* rounds in which it came last */
    uint64_t ns[TALLY__N_LATE_CAUSES];      /* time that the others waited for it, by cause */
    uint64_t step_ns;                       /* in the last step, in all, */
    uint64_t last_ns[TALLY__N_LATE_CAUSES]; /* and by cause */
    /* The last steps in which it was late: the others waited for it for more than a tenth of the
     * step. Of any ten of them it may have been in time in one. */
    struct tally__late_row row;
    struct tally__late_row since; /* those after the last step in which it was in time */
    uint64_t named;               /* the step in which the log named it last; 0: never */
};

/* Lateness of all ranks. The mutex guards it, except for arrivals, which belong to the
 * lanes while a step is under way. */
struct tally__lateness {
    struct tally__arrivals *arrivals; /* per lane */
    _Atomic uint64_t called_ns;       /* of the step's wait; 0: not yet. Relaxed: see arrivals.h */
    int n_lanes;
    uint64_t n_rounds;
    uint64_t n_steps;
    struct tally__rank_lateness *ranks; /* per rank of the group */
    struct tally__trace_rank *told;     /* the same for the trace file */
};

/* For a ddp with as many ranks and lanes as group. Errors: NOMEM. Free accepts a zeroed one. */
int tally__lateness_make(struct tally__lateness *lateness, const tally_group *group);
void tally__lateness_free(struct tally__lateness *lateness);
/* A step has ended, and its times are recorded: adds up its arrivals. With the mutex held. */
void tally__lateness_step(tally_ddp *ddp);
/* One rank's part of that: a step of step_ns in which it was late or in time. */
void tally__lateness_count(struct tally__rank_lateness *rank, bool late, uint64_t step_ns);
/* The sum over all causes. */
uint64_t tally__late_ns(const uint64_t *ns);
/* The cause for which they waited longest in those steps. */
enum tally_late_cause tally__late_cause(const struct tally__rank_lateness *rank);
/* Without the mutex: logs a straggler when it becomes one. */
void tally__lateness_log(tally_ddp *ddp);
/* Writes the account to the open trace file. */
void tally__lateness_trace(tally_ddp *ddp);

#endif
