/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of an attempt as processes: which ones run, and how they get signals. */
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

/* Sends a signal to every running rank. */
void run_ranks_signal(const struct run_ranks *ranks, int number);

/* Forwards a signal of the user to every rank that has not got it from the terminal. */
void run_ranks_pass_on(const struct run_ranks *ranks, const struct run_signal *signal);

/* Returns the rank with this process number; -1: none. */
int run_ranks_find(const struct run_ranks *ranks, pid_t pid);

#endif
