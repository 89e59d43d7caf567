/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks the signals of the launcher and reads them from a descriptor. Classifies each signal, but
 * does not act on it. One thread. Between open and close SIGPIPE is ignored and SIGCHLD is not,
 * whatever the launcher has inherited: with SIGCHLD ignored no child could be waited for.
 */
#include "tools/run_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

static const struct {
    int number;
    enum run_wish wish;
} wishes[] = {
    {SIGCHLD, RUN_WISH_REAP}, {SIGINT, RUN_WISH_END},    {SIGTERM, RUN_WISH_END},
    {SIGHUP, RUN_WISH_END},   {SIGQUIT, RUN_WISH_END},   {SIGUSR1, RUN_WISH_TELL},
    {SIGUSR2, RUN_WISH_TELL}, {SIGTSTP, RUN_WISH_PAUSE},
};

#define N_WISHES (sizeof wishes / sizeof wishes[0])

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool run_signals_open(struct run_signals *signals)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigset_t mask;

    (void)sigaction(SIGCHLD, &by_default, NULL);
    (void)sigemptyset(&mask);
    for (size_t i = 0; i < N_WISHES; i++) {
        /* A signal that is both blocked and ignored would still be delivered here. */
        if (!is_ignored(wishes[i].number)) {
            (void)sigaddset(&mask, wishes[i].number);
        }
    }
    signals->fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0) {
        return false;
    }
    (void)sigprocmask(SIG_BLOCK, &mask, &signals->old_mask);
    (void)sigaction(SIGPIPE, &ignored, &signals->old_pipe);
    return true;
}

bool run_signals_next(const struct run_signals *signals, struct run_signal *signal)
{
    struct signalfd_siginfo info;

    if (read(signals->fd, &info, sizeof info) != (ssize_t)sizeof info) {
        return false;
    }
    for (size_t i = 0; i < N_WISHES; i++) {
        if (wishes[i].number == (int)info.ssi_signo) {
            signal->number = wishes[i].number;
            signal->wish = wishes[i].wish;
            signal->from_terminal = info.ssi_code == SI_KERNEL;
            return true;
        }
    }
    return false;
}

void run_signals_restore(const struct run_signals *signals)
{
    (void)sigaction(SIGPIPE, &signals->old_pipe, NULL);
    (void)sigprocmask(SIG_SETMASK, &signals->old_mask, NULL);
}

void run_signals_close(struct run_signals *signals)
{
    run_signals_restore(signals);
    (void)close(signals->fd);
}
