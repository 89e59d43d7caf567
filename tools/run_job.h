/* SPDX-License-Identifier: Apache-2.0 */
/* One attempt of a job: all its ranks, from their start to the end of the last one. */
#ifndef TALLY_TOOLS_RUN_JOB_H
#define TALLY_TOOLS_RUN_JOB_H

#include <stdbool.h>

#include "tools/run_bind.h"
#include "tools/run_leftovers.h"
#include "tools/run_signals.h"
#include "tools/run_start.h"

/* What does not change from one attempt to the next. */
struct run_plan {
    int n_ranks;
    bool prefix;                       /* put "[rank] " before every line */
    char *const *command;              /* ends in NULL */
    const struct run_binding *binding; /* NULL: ranks are not pinned */
    struct run_signals signals;
    struct run_leftovers leftovers;
    struct rlimit files; /* for the ranks; our own limit may be higher */
};

struct run_result {
    int exit_code;    /* 0 when every rank ended well, else the first failing rank's */
    bool may_restart; /* a rank failed, and nobody asked for the end of the job */
};

/* Runs the job; afterwards none of its processes is left. Says on stderr what went wrong. */
struct run_result run_job(struct run_plan *plan, int attempt);

#endif
