/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A team of forked ranks. A failing rank writes its status and text to a pipe; the end of the pipe
 * says that all have ended. Ranks die with their parent. One thread; keeps no state.
 */
#include "bench/rank_team.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#define SLICE_MS 50
#define GRACE_NS (2 * TALLY__NS_PER_SECOND)

/* The message of a failing rank: shorter than PIPE_BUF, so that messages do not mix. */
struct message {
    int rank;
    int status;
    char text[TALLY__ERROR_BYTES];
};

struct member {
    pid_t pid;
    bool ended;
    bool killed; /* by us */
    int wait_status;
};

struct team {
    int n;
    struct member *members;
    int pipe_end; /* messages come from it */
    struct message first;
    bool failed;  /* some rank did; first says how, unless it was killed */
    bool overdue; /* the team was killed because the time was up */
};

void *rank_team_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        (void)tally__fail_errno(TALLY_NOMEM, errno, "cannot share %zu bytes with the ranks", bytes);
        return NULL;
    }
    return memory;
}

void rank_team_unshare(void *memory, size_t bytes)
{
    if (memory) {
        (void)munmap(memory, bytes);
    }
}

void rank_team_meet(atomic_uint *n_arrived, unsigned n_meetings, int n_ranks)
{
    unsigned all = n_meetings * (unsigned)n_ranks;

    /*
     * Partners: each other. After the barrier the others see everything that a rank wrote before
     * it.
     */
    (void)atomic_fetch_add_explicit(n_arrived, 1, memory_order_acq_rel);
    while (atomic_load_explicit(n_arrived, memory_order_acquire) < all) {
        (void)sched_yield();
    }
}

static _Noreturn void be_rank(int rank, pid_t parent, int pipe_end, rank_team_fn body, void *user)
{
    struct message message = {.rank = rank};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    message.status = body(rank, user);
    if (message.status == TALLY_OK) {
        _exit(0);
    }
    (void)snprintf(message.text, sizeof message.text, "%s", tally_last_error());
    (void)!write(pipe_end, &message, sizeof message);
    _exit(1);
}

static void kill_all(struct team *team)
{
    for (int r = 0; r < team->n; r++) {
        if (team->members[r].pid > 0 && !team->members[r].ended) {
            (void)kill(team->members[r].pid, SIGKILL);
            team->members[r].killed = true;
        }
    }
}

/* Takes note of ranks that have ended; with wait, of all. */
static void collect(struct team *team, bool wait)
{
    for (int r = 0; r < team->n; r++) {
        struct member *member = &team->members[r];
        pid_t got = 0;

        if (member->pid <= 0 || member->ended) {
            continue;
        }
        do {
            got = waitpid(member->pid, &member->wait_status, wait ? 0 : WNOHANG);
        } while (got < 0 && errno == EINTR);
        member->ended = got != 0;
        team->failed = team->failed || (member->ended && member->wait_status != 0);
    }
}

/* Whether a failure is the other ranks' echo of the one that came first. */
static bool is_echo(int status)
{
    return status == TALLY_PEER || status == TALLY_ABORTED;
}

/* Reads one message; false at the end of the pipe. */
static bool read_message(struct team *team)
{
    struct message message;
    ssize_t got = read(team->pipe_end, &message, sizeof message);

    if (got < 0 && errno == EINTR) {
        return true;
    }
    if (got != (ssize_t)sizeof message) {
        return false;
    }
    if (team->first.status == TALLY_OK ||
        (is_echo(team->first.status) && !is_echo(message.status))) {
        team->first = message;
    }
    team->failed = true;
    return true;
}

/* Until all ranks have closed the pipe, which they do by ending. */
static void attend(struct team *team, double timeout_s)
{
    uint64_t end = tally__now_ns() + (uint64_t)(timeout_s * (double)TALLY__NS_PER_SECOND);
    bool had_failed = false;

    for (;;) {
        struct pollfd wanted = {.fd = team->pipe_end, .events = POLLIN};
        int ready = poll(&wanted, 1, SLICE_MS);
        uint64_t now = tally__now_ns();

        if (ready > 0 && !read_message(team)) {
            return;
        }
        collect(team, false);
        if (team->failed && !had_failed) {
            had_failed = true;
            end = now + GRACE_NS < end ? now + GRACE_NS : end;
        }
        if (now >= end) {
            team->overdue = !team->failed;
            kill_all(team);
            return;
        }
    }
}

/* The rank that was killed, though not by us, or ended in another way without a message. */
static int blame_silent(const struct team *team)
{
    for (int r = 0; r < team->n; r++) {
        int status = team->members[r].killed ? 0 : team->members[r].wait_status;

        if (WIFSIGNALED(status)) {
            return tally__fail(TALLY_PEER, "rank %d of %d was killed by signal %d (%s)", r, team->n,
                               WTERMSIG(status), strsignal(WTERMSIG(status)));
        }
        if (status != 0 && team->first.status == TALLY_OK) {
            return tally__fail(TALLY_PEER, "rank %d of %d ended with exit status %d", r, team->n,
                               WEXITSTATUS(status));
        }
    }
    return TALLY_OK;
}

static int judge(const struct team *team, double timeout_s)
{
    const struct message *first = &team->first;
    bool names_rank = strncmp(first->text, "rank ", 5) == 0;

    if (team->overdue) {
        return tally__fail(TALLY_TIMEOUT, "the %d ranks did not end within %g s", team->n,
                           timeout_s);
    }
    if (first->status == TALLY_OK || is_echo(first->status)) {
        TRY(blame_silent(team));
    }
    if (first->status == TALLY_OK) {
        return TALLY_OK;
    }
    if (names_rank) {
        return tally__fail(first->status, "%s", first->text);
    }
    return tally__fail(first->status, "rank %d of %d: %s", first->rank, team->n, first->text);
}

static int start(struct team *team, int write_end, rank_team_fn body, void *user)
{
    pid_t parent = getpid();

    for (int r = 0; r < team->n; r++) {
        pid_t pid = fork();

        if (pid == 0) {
            (void)close(team->pipe_end);
            be_rank(r, parent, write_end, body, user);
        }
        if (pid < 0) {
            int error = errno;

            kill_all(team);
            collect(team, true);
            return tally__fail_errno(TALLY_SYSTEM, error, "cannot fork rank %d of %d", r, team->n);
        }
        team->members[r].pid = pid;
    }
    return TALLY_OK;
}

int rank_team_run(int n, rank_team_fn body, void *user, double timeout_s)
{
    struct team team = {.n = n};
    int ends[2];
    int rc;

    team.members = tally__alloc_array((size_t)n, sizeof *team.members, "a team of ranks");
    if (!team.members) {
        return TALLY_NOMEM;
    }
    if (pipe(ends) != 0) {
        rc = tally__fail_errno(TALLY_SYSTEM, errno, "cannot make a pipe");
        goto free_members;
    }
    team.pipe_end = ends[0];
    /* Otherwise every rank would write the contents of the buffer again. */
    (void)fflush(NULL);
    rc = start(&team, ends[1], body, user);
    (void)close(ends[1]);
    if (rc == TALLY_OK) {
        attend(&team, timeout_s);
        collect(&team, true);
        rc = judge(&team, timeout_s);
    }
    (void)close(ends[0]);
free_members:
    tally__free(team.members);
    return rc;
}
