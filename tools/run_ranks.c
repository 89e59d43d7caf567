/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends signals to ranks. One thread.
 *
 * Each rank leads a process group of its own, and signals go to the group: what the user sends
 * reaches a rank and its children exactly once, also from the keyboard, because the terminal sends
 * to our group only. The exception is rank 0 when it reads from a terminal: only the foreground
 * group may do that, so it stays in ours, and gets from the terminal itself what the terminal
 * sends.
 */
#include "tools/run_ranks.h"

static void signal_rank(const struct run_rank *rank, int number)
{
    if (rank->pid > 0) {
        (void)kill(rank->own_group ? -rank->pid : rank->pid, number);
    }
}

void run_ranks_signal(const struct run_ranks *ranks, int number)
{
    for (int i = 0; i < ranks->n; i++) {
        signal_rank(&ranks->all[i], number);
    }
}

void run_ranks_pass_on(const struct run_ranks *ranks, const struct run_signal *signal)
{
    for (int i = 0; i < ranks->n; i++) {
        if (ranks->all[i].own_group || !signal->from_terminal) {
            signal_rank(&ranks->all[i], signal->number);
        }
    }
}

int run_ranks_find(const struct run_ranks *ranks, pid_t pid)
{
    for (int i = 0; i < ranks->n; i++) {
        if (ranks->all[i].pid == pid) {
            return i;
        }
    }
    return -1;
}
