/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt of a job: all its ranks, from their start to the end of the last one. */
#ifndef TALLY_TOOLS_RUN_JOB_H
#define TALLY_TOOLS_RUN_JOB_H

#include <stdbool.h>

#include "tools/run_bind.h"
#include "tools/run_leftovers.h"
#include "tools/run_signals.h"
#include "tools/run_start.h"

/* The job; the same for all attempts. */
struct run_plan {
    int n_ranks;
    bool prefix;                       /* put "[rank] " before every line of output */
    char *const *command;              /* ends in NULL */
    const struct run_binding *binding; /* NULL: ranks are not pinned */
    struct run_signals signals;
    struct run_leftovers leftovers;
    struct rlimit files; /* for the ranks; our own limit may be higher */
};

struct run_result {
    int exit_code;    /* 0 if every rank succeeded, else that of the first rank that failed */
    bool may_restart; /* a rank failed, and the user did not end the job */
};

/* Runs the job; no process of it is left afterwards. Prints errors to stderr. */
struct run_result run_job(struct run_plan *plan, int attempt);

#endif
