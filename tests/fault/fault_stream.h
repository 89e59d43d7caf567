/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a rank in the trials: collectives without end, until one fails. */
#ifndef TALLY_FAULT_STREAM_H
#define TALLY_FAULT_STREAM_H

#include "fault/fault_support.h"

/* The same on all ranks of a trial. */
struct fault_plan {
    uint64_t seed;
    int world;
    int lanes;
    bool splits; /* some collectives go to a sub-group */
    double timeout_s;
    char rendezvous[100];
    atomic_bool *leave; /* the stream ends in good order when it finds this set; may be NULL */
};

/*
 * Opens the group, runs collectives and checks every result, until a call fails or the rank is
 * asked to leave; then checks that later calls are ABORTED at once, and closes. Returns what the
 * process should exit with.
 */
int fault_stream(const struct fault_plan *plan, int rank, struct fault_report *report);

#endif
