/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one rank: a process that runs the program and ends when the launcher does. */
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
    bool own_group; /* leads its own process group, else stays in ours */
    int out_fd;     /* for its standard output and error; -1: ours */
    int err_fd;
    const struct run_binding *binding; /* NULL: not pinned */
    const struct run_signals *signals; /* as inherited by the launcher */
    struct rlimit files;               /* as inherited by the launcher */
};

enum run_step { RUN_STEP_FORK, RUN_STEP_FILES, RUN_STEP_BIND, RUN_STEP_EXEC };

/* The reason why a rank did not start. */
struct run_refusal {
    enum run_step step;
    int error; /* errno */
};

/* Sets the environment of all ranks of an attempt. False with errno set on failure. */
bool run_environment_set(int n_ranks, int attempt);

/* Returns true when the program runs; otherwise false, with *refusal set and no process left. */
bool run_start(const struct run_start *how, pid_t *pid, struct run_refusal *refusal);

#endif
