/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes of this machine; knows nothing of MPI. A pidfd per process, which stays valid
 * when another process gets the same pid, tells whether it runs. pidfds stay open until this
 * process ends. Before Linux 5.3, which has none, no process is watched. Any thread enters.
 */
#include "comm/mpi/mpi_process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

#define ON_ITS_WAY_NS 100000000u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct tally__process *all_processes; /* guarded by the mutex */

void tally__process_describe(struct tally__process_card *card)
{
    struct stat space = {0};

    memset(card, 0, sizeof *card);
    tally__machine_here(&card->machine);
    if (stat("/proc/self/ns/pid", &space) == 0) {
        card->pid_space = space.st_ino;
    }
    card->pid = getpid();
}

/* Whether the card is of another process of this machine, with a pid that is valid here. Hosts that
 * are network namespaces of one machine count as that machine. */
static bool is_neighbour(const struct tally__process_card *card)
{
    struct tally__process_card own;

    tally__process_describe(&own);
    return own.machine.boot_id[0] != '\0' && own.pid_space != 0 && card->pid != own.pid &&
           strcmp(card->machine.boot_id, own.machine.boot_id) == 0 &&
           card->pid_space == own.pid_space;
}

static struct tally__process *find(int64_t pid)
{
    struct tally__process *process = all_processes;

    while (process && process->pid != pid) {
        process = process->next;
    }
    return process;
}

/* With the mutex held. */
static struct tally__process *watch(int64_t pid)
{
    struct tally__process *made = NULL;
#ifdef SYS_pidfd_open
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

    if (fd < 0 && errno != ESRCH) {
        return NULL;
    }
    made = tally__alloc(sizeof *made, "a process");
    if (!made) {
        (void)(fd < 0 || close(fd));
        return NULL;
    }
    made->pid = pid;
    made->fd = fd;
    atomic_store(&made->gone_ns, fd < 0 ? tally__now_ns() : 0);
    made->next = all_processes;
    all_processes = made;
#endif
    return made;
}

struct tally__process *tally__process_watch(const struct tally__process_card *card)
{
    struct tally__process *process;

    if (!is_neighbour(card)) {
        return NULL;
    }
    (void)pthread_mutex_lock(&mutex);
    process = find(card->pid);
    if (!process) {
        process = watch(card->pid);
    }
    (void)pthread_mutex_unlock(&mutex);
    return process;
}

/* The time at which the end of the process was first seen; 0: it runs. */
static uint64_t gone_since(struct tally__process *process)
{
    struct pollfd ended = {.fd = process->fd, .events = POLLIN};
    uint64_t seen_ns = atomic_load(&process->gone_ns);

    /* If the program has closed the descriptor, the end is not seen. */
    if (seen_ns == 0 && poll(&ended, 1, 0) == 1 && (ended.revents & POLLIN)) {
        uint64_t now = tally__now_ns();

        seen_ns = atomic_compare_exchange_strong(&process->gone_ns, &seen_ns, now) ? now : seen_ns;
    }
    return seen_ns;
}

bool tally__process_has_ended(struct tally__process *process)
{
    uint64_t seen_ns = process ? gone_since(process) : 0;

    return seen_ns != 0 && tally__now_ns() - seen_ns >= ON_ITS_WAY_NS;
}

bool tally__process_any_ended(void)
{
    bool any = false;

    (void)pthread_mutex_lock(&mutex);
    for (struct tally__process *process = all_processes; process && !any; process = process->next) {
        any = gone_since(process) != 0;
    }
    (void)pthread_mutex_unlock(&mutex);
    return any;
}
