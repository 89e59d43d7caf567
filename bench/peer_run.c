/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts an MPI program, reads its one line, and waits for it, with a deadline. Shared memory only:
 * nothing goes over a network. One thread; keeps no state.
 */
#include "bench/peer_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#define MAX_WORDS 32
#define OUTPUT_BYTES ((size_t)32 * COLLECTIVE_MAX_REPEATS)

const char *const peer_names[N_PEERS] = {[PEER_OPENMPI] = "openmpi", [PEER_MPICH] = "mpich"};

/* The launcher and its options; "-n RANKS PROGRAM ..." follow. */
static const char *const launchers[N_PEERS][MAX_WORDS] = {
    [PEER_OPENMPI] = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to",
                      "none", "--quiet", "--mca", "pml", "ob1", "--mca", "btl", "self,vader", NULL},
    [PEER_MPICH] = {"mpiexec.mpich", "-launcher", "fork", NULL},
};

struct command_line {
    char program[512];
    char numbers[6][24];
    const char *words[MAX_WORDS];
};

static int find_program(enum peer peer, char *path, size_t path_bytes)
{
    char self[256];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (length < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot find the folder of this program");
    }
    self[length] = '\0';
    slash = strrchr(self, '/');
    *(slash ? slash : self) = '\0';
    (void)snprintf(path, path_bytes, "%s/bench/mpi_peer_%s", self, peer_names[peer]);
    return TALLY_OK;
}

bool peer_exists(enum peer peer)
{
    char path[512];

    return find_program(peer, path, sizeof path) == TALLY_OK && access(path, X_OK) == 0;
}

static int compose(enum peer peer, int ranks, size_t bytes, const struct repeat_limits *limits,
                   struct command_line *line)
{
    size_t n = 0;

    TRY(find_program(peer, line->program, sizeof line->program));
    (void)snprintf(line->numbers[0], sizeof line->numbers[0], "%d", ranks);
    (void)snprintf(line->numbers[1], sizeof line->numbers[1], "%zu", bytes);
    (void)snprintf(line->numbers[2], sizeof line->numbers[2], "%d", COLLECTIVE_WARM_UP);
    (void)snprintf(line->numbers[3], sizeof line->numbers[3], "%u", limits->min);
    (void)snprintf(line->numbers[4], sizeof line->numbers[4], "%u", limits->max);
    (void)snprintf(line->numbers[5], sizeof line->numbers[5], "%g", limits->seconds);
    while (launchers[peer][n]) {
        line->words[n] = launchers[peer][n];
        n++;
    }
    line->words[n++] = "-n";
    line->words[n++] = line->numbers[0];
    line->words[n++] = line->program;
    for (int i = 1; i < 6; i++) {
        line->words[n++] = line->numbers[i];
    }
    line->words[n] = NULL;
    return TALLY_OK;
}

static int fail_with_line(const struct command_line *line, int status, const char *what)
{
    char text[TALLY__ERROR_BYTES / 2];
    size_t used = 0;

    for (size_t i = 0; line->words[i] && used < sizeof text; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", line->words[i]);
    }
    return tally__fail(status, "%s: %s", what, text);
}

/*
 * In the child: starts a process group, so that all its processes can be ended together, and asks
 * for a signal when the parent ends.
 */
static _Noreturn void be_launcher(const struct command_line *line, int output)
{
    int nothing = open("/dev/null", O_RDWR);
    char *words[MAX_WORDS];

    /* execvp takes char *, for history's sake; it does not write. */
    memcpy(words, line->words, sizeof words);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(nothing, STDERR_FILENO);
    (void)execvp(words[0], words);
    _exit(127);
}

/* Everything up to the end of the output, cut at its size. False when the time is up. */
static bool read_output(int from, double timeout_s, char *output)
{
    uint64_t end = tally__now_ns() + (uint64_t)(timeout_s * (double)TALLY__NS_PER_SECOND);
    size_t used = 0;

    for (;;) {
        struct pollfd wanted = {.fd = from, .events = POLLIN};
        char rest[512];
        ssize_t got;

        if (tally__now_ns() >= end) {
            return false;
        }
        if (poll(&wanted, 1, 100) <= 0) {
            continue;
        }
        got = read(from, rest, sizeof rest);
        if (got <= 0) {
            output[used] = '\0';
            return true;
        }
        if (used + (size_t)got < OUTPUT_BYTES) {
            memcpy(output + used, rest, (size_t)got);
            used += (size_t)got;
        }
    }
}

static int parse(const struct command_line *line, char *output, struct peer_times *times)
{
    char *save = NULL;
    char *version = strtok_r(output, " \n", &save);
    char *count = strtok_r(NULL, " \n", &save);

    times->n = count ? strtoul(count, NULL, 10) : 0;
    if (times->n == 0 || times->n > COLLECTIVE_MAX_REPEATS) {
        return fail_with_line(line, TALLY_SYSTEM, "no times came from");
    }
    (void)snprintf(times->version, sizeof times->version, "%s", version);
    for (size_t i = 0; i < times->n; i++) {
        char *word = strtok_r(NULL, " \n", &save);

        if (!word) {
            return fail_with_line(line, TALLY_SYSTEM, "too few times came from");
        }
        times->us[i] = strtod(word, NULL);
    }
    return TALLY_OK;
}

static int launch(const struct command_line *line, double timeout_s, char *output)
{
    int ends[2];
    int wait_status = 0;
    pid_t pid;
    bool in_time;

    if (pipe(ends) != 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot make a pipe");
    }
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        be_launcher(line, ends[1]);
    }
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot fork");
    }
    in_time = read_output(ends[0], timeout_s, output);
    (void)close(ends[0]);
    if (!in_time) {
        (void)kill(-pid, SIGKILL);
    }
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    if (!in_time) {
        return fail_with_line(line, TALLY_TIMEOUT, "this did not end in time");
    }
    return wait_status == 0 ? TALLY_OK : fail_with_line(line, TALLY_SYSTEM, "this failed");
}

int peer_run(enum peer peer, int ranks, size_t bytes, const struct repeat_limits *limits,
             double timeout_s, struct peer_times *times)
{
    struct command_line line;
    char *output = tally__alloc(OUTPUT_BYTES, "a peer's output");
    int rc = output ? compose(peer, ranks, bytes, limits, &line) : TALLY_NOMEM;

    if (rc == TALLY_OK) {
        rc = launch(&line, timeout_s, output);
    }
    if (rc == TALLY_OK) {
        rc = parse(&line, output, times);
    }
    tally__free(output);
    return rc;
}
