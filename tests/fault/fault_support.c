/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank processes under observation. One thread of the test enters; ranks enter only the functions
 * that take a report. Every process started here is dead and reaped when its crew is freed.
 */
#include "fault/fault_support.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

uint64_t fault_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void fault_sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

uint32_t fault_random(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) >> 33) % n;
}

void *fault_shared_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        perror("fault test: mmap");
        exit(1);
    }
    return memory;
}

void fault_shared_free(void *memory, size_t bytes)
{
    (void)munmap(memory, bytes);
}

void fault_crew_init(struct fault_crew *crew, int n)
{
    *crew = (struct fault_crew){.n = n};
    crew->report = fault_shared_alloc((size_t)n * sizeof *crew->report);
}

void fault_crew_start(struct fault_crew *crew, int rank, fault_body body, void *user)
{
    const struct rlimit no_core = {0, 0};
    pid_t parent = getpid();
    pid_t pid;

    (void)fflush(NULL);
    pid = fork();
    if (pid < 0) {
        perror("fault test: fork");
        exit(1);
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setrlimit(RLIMIT_CORE, &no_core);
        if (getppid() != parent) {
            _exit(1);
        }
        exit(body(rank, &crew->report[rank], user));
    }
    crew->member[rank] = (struct fault_member){.pid = pid};
}

bool fault_crew_all_ended(struct fault_crew *crew)
{
    bool all = true;

    for (int r = 0; r < crew->n; r++) {
        struct fault_member *member = &crew->member[r];

        if (member->pid != 0) {
            if (waitpid(member->pid, &member->exit_status, WNOHANG) == member->pid) {
                member->pid = 0;
            } else {
                all = false;
            }
        }
    }
    return all;
}

static void kill_rest(struct fault_crew *crew)
{
    for (int r = 0; r < crew->n; r++) {
        if (crew->member[r].pid != 0) {
            (void)kill(crew->member[r].pid, SIGKILL);
            (void)waitpid(crew->member[r].pid, &crew->member[r].exit_status, 0);
            crew->member[r].pid = 0;
        }
    }
}

void fault_crew_start_all(struct fault_crew *crew, fault_body body, void *user)
{
    for (int r = 0; r < crew->n; r++) {
        fault_crew_start(crew, r, body, user);
    }
}

bool fault_crew_wait(struct fault_crew *crew, double max_s)
{
    uint64_t end = fault_now_ns() + (uint64_t)(max_s * (double)NS_PER_S);

    while (!fault_crew_all_ended(crew)) {
        if (fault_now_ns() > end) {
            kill_rest(crew);
            return false;
        }
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
    return true;
}

bool fault_crew_run(struct fault_crew *crew, int n, fault_body body, void *user, double max_s)
{
    fault_crew_init(crew, n);
    fault_crew_start_all(crew, body, user);
    return fault_crew_wait(crew, max_s);
}

bool fault_crew_reached(const struct fault_crew *crew, int milestone)
{
    for (int r = 0; r < crew->n; r++) {
        /* Partner: the store in fault_set_milestone. */
        if (!crew->member[r].was_struck &&
            atomic_load_explicit(&crew->report[r].milestone, memory_order_acquire) < milestone) {
            return false;
        }
    }
    return true;
}

void fault_crew_strike(struct fault_crew *crew, int rank, int signal)
{
    crew->member[rank].was_struck = true;
    if (crew->member[rank].pid != 0) {
        (void)kill(crew->member[rank].pid, signal);
    }
}

void fault_crew_free(struct fault_crew *crew)
{
    kill_rest(crew);
    fault_shared_free(crew->report, (size_t)crew->n * sizeof *crew->report);
}

void fault_set_milestone(struct fault_report *report, int milestone)
{
    /* Partner: the load in fault_crew_reached. */
    atomic_store_explicit(&report->milestone, milestone, memory_order_release);
}

void fault_note_failure(struct fault_report *report, int status)
{
    struct fault_failure *failure = &report->failure[report->n_failures];

    if (report->n_failures == 0) {
        report->failed_ns = fault_now_ns();
    }
    if (report->n_failures < FAULT_MAX_FAILURES) {
        failure->status = status;
        (void)snprintf(failure->text, sizeof failure->text, "%s", tally_last_error());
        report->n_failures++;
    }
}

void fault_complain(struct fault_report *report, const char *format, ...)
{
    va_list args;

    /* The first complaint tells most. */
    if (report->complaint[0] == '\0') {
        va_start(args, format);
        (void)vsnprintf(report->complaint, sizeof report->complaint, format, args);
        va_end(args);
    }
}

/* Whether "rank 2: " or "rank 2 (1 of this sub-group): " begins here; end is behind the number. */
static bool is_source(const char *at, char **end)
{
    const char *behind;

    if (strtol(at + 4, end, 10) < 0) {
        return false;
    }
    behind = strncmp(*end, " (", 2) == 0 && strchr(*end, ')') ? strchr(*end, ')') + 1 : *end;
    return strncmp(behind, ": ", 2) == 0;
}

int fault_barrier(tally_group *group)
{
    tally_future *future;
    int rc = tally_barrier(group, &future);

    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    return rc;
}

bool fault_blames(const char *text, int rank)
{
    const char *at = strstr(text, "rank");
    char *end;

    /* "rank 0: rank 2 died" quotes rank 0: the message blames the last rank named so. */
    while (at && is_source(at, &end)) {
        at = strstr(end, "rank");
    }
    if (!at) {
        return false;
    }
    at += 4;
    at += *at == 's';
    while (*at == ' ') {
        long number = strtol(at + 1, &end, 10);

        if (end == at + 1) {
            return false;
        }
        if (number == rank) {
            return true;
        }
        if (*end != ',') {
            return false;
        }
        at = end + 1;
    }
    return false;
}

tally_group_config fault_config(int rank, int world, const char *rendezvous, double timeout_s,
                                double open_timeout_s)
{
    tally_group_config config;

    tally_group_config_init(&config, sizeof config);
    config.backend = "shm";
    config.rank = rank;
    config.world = world;
    config.rendezvous = rendezvous;
    config.timeout_s = timeout_s;
    config.open_timeout_s = open_timeout_s;
    config.lanes = 1;
    return config;
}
