/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts one rank and its guard (run_guard.h). One thread, which must live as long as the ranks:
 * the guard kills its rank when the thread that forked the guard ends. Invariant: a pid returned
 * here is a process that runs the program, and it becomes our child when the guard ends. Any
 * failure before that is reported through a pipe that closes when the program starts.
 */
#include "tools/run_start.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/run_guard.h"

#define NOT_RUN 127

/* A message through the pipe: the rank's process number, then its refusal, if any. */
struct report {
    pid_t pid; /* 0: there is none */
    bool is_refused;
    struct run_refusal refusal;
};

/* A new name each time: a process of an earlier attempt cannot join this one. */
static bool invent_name(char *name, size_t bytes)
{
    unsigned char random[16];
    int n = snprintf(name, bytes, "@tally-%lu-", (unsigned long)getuid());

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return false;
    }
    for (size_t i = 0; i < sizeof random; i++) {
        n += snprintf(name + n, bytes - (size_t)n, "%02x", random[i]);
    }
    return true;
}

/* A BLAS would otherwise start a thread per CPU in every rank. The user's setting wins. */
static bool share_cpus(int n_ranks)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"};
    cpu_set_t set;
    int n_cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    char n_threads[16];

    (void)snprintf(n_threads, sizeof n_threads, "%d", n_cpus > n_ranks ? n_cpus / n_ranks : 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (setenv(names[i], n_threads, 0) != 0) {
            return false;
        }
    }
    return true;
}

bool run_environment_set(int n_ranks, int attempt)
{
    char name[80];
    char world[16];
    char attempts[16];

    (void)snprintf(world, sizeof world, "%d", n_ranks);
    (void)snprintf(attempts, sizeof attempts, "%d", attempt);
    return invent_name(name, sizeof name) && setenv("TALLY_RENDEZVOUS", name, 1) == 0 &&
           setenv("TALLY_WORLD", world, 1) == 0 && setenv("TALLY_ATTEMPT", attempts, 1) == 0 &&
           share_cpus(n_ranks);
}

/* If there is no reader, the launcher has ended, and there is nobody to tell. */
static void tell(int fd, const struct report *report)
{
    if (write(fd, report, sizeof *report) != (ssize_t)sizeof *report) {
        _exit(NOT_RUN);
    }
}

static _Noreturn void give_up(int fd, pid_t pid, enum run_step step, int error)
{
    const struct report report = {
        .pid = pid, .is_refused = true, .refusal = {.step = step, .error = error}};

    tell(fd, &report);
    _exit(NOT_RUN);
}

/* Only rank 0 reads our standard input; several readers would each get a part of it. */
static bool set_files(const struct run_start *how)
{
    if (how->rank > 0) {
        int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) {
            return false;
        }
    }
    return (how->out_fd < 0 || dup2(how->out_fd, STDOUT_FILENO) >= 0) &&
           (how->err_fd < 0 || dup2(how->err_fd, STDERR_FILENO) >= 0);
}

static _Noreturn void become_rank(const struct run_start *how, pid_t guard, int fd)
{
    const struct report report = {.pid = getpid()};
    char rank[16];
    int error;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard) {
        _exit(NOT_RUN); /* the parent died before we asked for its death signal */
    }
    tell(fd, &report);
    if (how->own_group) {
        (void)setpgid(0, 0);
    }
    (void)snprintf(rank, sizeof rank, "%d", how->rank);
    if (setenv("TALLY_RANK", rank, 1) != 0 || !set_files(how)) {
        give_up(fd, report.pid, RUN_STEP_FILES, errno);
    }
    error = how->binding ? run_binding_apply(how->binding, how->rank) : 0;
    if (error != 0) {
        give_up(fd, report.pid, RUN_STEP_BIND, error);
    }
    (void)setrlimit(RLIMIT_NOFILE, &how->files);
    run_signals_restore(how->signals);
    (void)execvp(how->command[0], how->command);
    give_up(fd, report.pid, RUN_STEP_EXEC, errno);
}

static _Noreturn void become_guard(const struct run_start *how, pid_t launcher, int fd)
{
    pid_t guard = getpid();
    pid_t rank;

    if (!run_guard_begin(launcher)) {
        _exit(NOT_RUN);
    }
    rank = fork();
    if (rank == 0) {
        become_rank(how, guard, fd);
    }
    if (rank < 0) {
        give_up(fd, 0, RUN_STEP_FORK, errno);
    }
    run_guard_watch(launcher, rank, how->rank);
}

/* False if the rank has refused to start. */
static bool read_reports(int fd, struct report *report)
{
    struct report next;

    while (read(fd, &next, sizeof next) == (ssize_t)sizeof next) {
        *report = next;
    }
    return report->pid > 0 && !report->is_refused;
}

bool run_start(const struct run_start *how, pid_t *pid, struct run_refusal *refusal)
{
    pid_t launcher = getpid();
    struct report report = {.refusal = {RUN_STEP_FORK, EAGAIN}}; /* the guard was killed */
    pid_t guard;
    int fd[2];

    if (pipe2(fd, O_CLOEXEC) != 0) {
        *refusal = (struct run_refusal){RUN_STEP_FORK, errno};
        return false;
    }
    guard = fork();
    if (guard == 0) {
        become_guard(how, launcher, fd[1]);
    }
    (void)close(fd[1]);
    if (guard < 0) {
        *refusal = (struct run_refusal){RUN_STEP_FORK, errno};
        (void)close(fd[0]);
        return false;
    }
    *pid = 0;
    if (read_reports(fd[0], &report)) {
        *pid = report.pid;
    } else {
        *refusal = report.refusal;
        /* In this order: once the guard has ended, its rank is our child. */
        (void)waitpid(guard, NULL, 0);
        if (report.pid > 0) {
            (void)waitpid(report.pid, NULL, 0);
        }
    }
    (void)close(fd[0]);
    return *pid > 0;
}
