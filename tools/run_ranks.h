/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of an attempt as processes: which of them run, and how signals reach them. */
#ifndef TALLY_TOOLS_RUN_RANKS_H
#define TALLY_TOOLS_RUN_RANKS_H

#include <stdbool.h>
#include <sys/types.h>

#include "tools/run_signals.h"

struct run_rank {
    pid_t pid; /* 0: has ended */
    bool own_group;
};

struct run_ranks {
    struct run_rank *all;
    int n;
    int n_running;
};

/* To every rank that runs. */
void run_ranks_signal(const struct run_ranks *ranks, int number);

/* What the user has sent to us, to every rank that has not got it from the terminal. */
void run_ranks_pass_on(const struct run_ranks *ranks, const struct run_signal *signal);

/* The rank that is this process; -1: none is. */
int run_ranks_find(const struct run_ranks *ranks, pid_t pid);

#endif
