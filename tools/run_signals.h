/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals of a launcher, read from a descriptor instead of handled asynchronously. Signals that
 * were ignored when the launcher was started (nohup) stay ignored.
 */
#ifndef TALLY_TOOLS_RUN_SIGNALS_H
#define TALLY_TOOLS_RUN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum run_wish {
    RUN_WISH_REAP,  /* a child has ended */
    RUN_WISH_END,   /* forward it; the user wants the job to end */
    RUN_WISH_TELL,  /* forward it; the program may use it */
    RUN_WISH_PAUSE, /* stop the ranks and the launcher until continued */
};

struct run_signal {
    int number;
    enum run_wish wish;
    bool from_terminal; /* the terminal has sent it to the whole foreground group */
};

struct run_signals {
    int fd; /* readable when a signal has come */
    sigset_t old_mask;
    struct sigaction old_pipe;
};

/* False with errno set. */
bool run_signals_open(struct run_signals *signals);

/* The next signal, if there is one. */
bool run_signals_next(const struct run_signals *signals, struct run_signal *signal);

/* In a child, before it runs the program: restores what the launcher has inherited. */
void run_signals_restore(const struct run_signals *signals);

void run_signals_close(struct run_signals *signals);

#endif
