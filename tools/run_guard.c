/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard of one rank. The kernel kills a rank when its parent dies, but not the processes that
 * the rank has started: a program behind a wrapper script would continue to train after `kill -9`
 * of the launcher. The guard adopts the rank's orphans (subreaper), gets a signal when the launcher
 * dies, and then kills them all. If the guard itself is killed, the rank dies with it, and the
 * launcher adopts the orphans. One thread, in a separate process without open files.
 */
#include "tools/run_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/run_leftovers.h"

#define N_SWEEPS 500
#define SWEEP_NS 10000000

/* The kernel sends it when the launcher ends; it has no other use. */
static int end_signal(void)
{
    return SIGRTMIN + 7;
}

bool run_guard_begin(pid_t launcher)
{
    sigset_t all;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)prctl(PR_SET_PDEATHSIG, end_signal());
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    return getppid() == launcher;
}

/* A pipe or a terminal must close when the rank closes it. */
static void close_files(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0U, ~0U, 0U) == 0) {
        return;
    }
#endif
    for (long fd = sysconf(_SC_OPEN_MAX) - 1; fd >= 0; fd--) {
        (void)close((int)fd);
    }
}

/* A killed process leaves us its children: repeat until there are none. */
static void kill_all(void)
{
    const struct run_leftovers none = {0};
    const struct timespec pause = {0, SWEEP_NS};

    for (int i = 0; i < N_SWEEPS; i++) {
        (void)run_leftovers_signal(&none, SIGKILL);
        (void)nanosleep(&pause, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (waitpid(-1, NULL, WNOHANG) < 0) {
            return;
        }
    }
}

/* Reaps orphans that have ended, but leaves the rank to the launcher. True if the rank has ended.
 */
static bool has_ended(pid_t rank)
{
    for (;;) {
        siginfo_t child = {0};

        if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) != 0) {
            return errno == ECHILD;
        }
        if (child.si_pid == 0 || child.si_pid == rank) {
            return child.si_pid == rank;
        }
        (void)waitpid(child.si_pid, NULL, 0);
    }
}

_Noreturn void run_guard_watch(pid_t launcher, pid_t rank, int number)
{
    char name[16];
    sigset_t awaited;

    /* Signals to our process group, or to all processes of our name, are for the launcher. */
    (void)setpgid(0, 0);
    (void)snprintf(name, sizeof name, "run-guard-%d", number);
    (void)prctl(PR_SET_NAME, name);
    close_files();
    (void)sigemptyset(&awaited);
    (void)sigaddset(&awaited, SIGCHLD);
    (void)sigaddset(&awaited, end_signal());
    for (;;) {
        if (getppid() != launcher) {
            (void)kill(rank, SIGKILL); /* also if there is no /proc */
            kill_all();
            _exit(0);
        }
        if (has_ended(rank)) {
            _exit(0);
        }
        (void)sigwaitinfo(&awaited, NULL);
    }
}
