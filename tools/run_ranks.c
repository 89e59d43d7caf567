/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends signals to ranks. One thread.
 *
 * Each rank leads its own process group, and signals go to the group. A signal of the user reaches
 * a rank and its children exactly once, even from the keyboard, because the terminal signals only
 * our group. The exception is rank 0 if it reads from a terminal: only the foreground group may do
 * that, so rank 0 stays in our group and gets keyboard signals directly from the terminal.
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
