/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one rank: a process that runs the program, set up so that it cannot outlive us. */
#ifndef TALLY_TOOLS_RUN_START_H
#define TALLY_TOOLS_RUN_START_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "tools/run_bind.h"
#include "tools/run_signals.h"

struct run_start {
    char *const *command; /* ends in NULL */
    int rank;
    bool own_group; /* leads a process group of its own, else stays in ours */
    int out_fd;     /* for its standard output and error; -1: ours */
    int err_fd;
    const struct run_binding *binding; /* NULL: not pinned */
    const struct run_signals *signals; /* as the launcher found them */
    struct rlimit files;               /* as the launcher found it */
};

enum run_step { RUN_STEP_FORK, RUN_STEP_FILES, RUN_STEP_BIND, RUN_STEP_EXEC };

/* Why a rank did not start. */
struct run_refusal {
    enum run_step step;
    int error; /* errno */
};

/* Sets what all ranks of an attempt find in their environment. False with errno set. */
bool run_environment_set(int n_ranks, int attempt);

/* Returns when the program runs, or could not be run; then false and *refusal, and no process. */
bool run_start(const struct run_start *how, pid_t *pid, struct run_refusal *refusal);

#endif
