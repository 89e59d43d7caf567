/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of `tally report` on steps: means over ranks, the headline, the steps that are shown.
 */
#ifndef TALLY_TOOLS_REPORT_STEPS_H
#define TALLY_TOOLS_REPORT_STEPS_H

#include "tools/report_run.h"

/* The step at which most of the run goes by: the mean of the middle half of all steps. */
struct headline {
    size_t n_steps;
    double step_ns;
    double mean_ns; /* the mean of all steps: what lateness, a mean too, is compared with */
    double p95_ns;
    double compute_ns;
    double exposed_ns;
    double optimizer_ns;
    double comm_ns;
    double wire_bytes; /* per rank; the mean over all steps */
    double plain_bytes;
    double error; /* of compression; below 0: unknown */
    double error_max;
    size_t n_skipped;
    int straggler;       /* its rank; -1: there is none */
    double straggler_ns; /* time that the others wait for it, per step */
};

/* Merges the steps of all ranks and chooses those that are shown. False after a message. */
bool report_choose(struct report_run *run);

/* Needs at least one step. */
bool report_headline(const struct report_run *run, struct headline *headline);

/* The time that the others wait for a rank, per step. */
double rank_waited_ns(const struct rank_figures *rank);

#endif
