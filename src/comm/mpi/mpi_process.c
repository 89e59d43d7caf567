/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes of this machine. Knows nothing of MPI. A process is watched by a file of its
 * own, which stays its own when the number goes to another process. Where Linux has no such files
 * (before 5.3), nobody is watched. Opened and forgotten by application threads; lanes ask.
 */
#include "comm/mpi/mpi_process.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/boot_id.h"
#include "base/clock.h"

#define ON_ITS_WAY_NS 100000000u

void tally__process_describe(struct tally__process_card *card)
{
    struct stat space = {0};

    memset(card, 0, sizeof *card);
    tally__boot_id(card->machine, sizeof card->machine);
    if (stat("/proc/self/ns/pid", &space) == 0) {
        card->pid_space = space.st_ino;
    }
    card->pid = getpid();
}

void tally__process_watch(struct tally__process *process, const struct tally__process_card *card)
{
    struct tally__process_card own;

    tally__process_describe(&own);
    if (own.machine[0] != '\0' && own.pid_space != 0 && card->pid != own.pid &&
        memcmp(card->machine, own.machine, sizeof own.machine) == 0 &&
        card->pid_space == own.pid_space) {
#ifdef SYS_pidfd_open
        process->fd = (int)syscall(SYS_pidfd_open, (pid_t)card->pid, 0);
        if (process->fd < 0 && errno == ESRCH) {
            atomic_store(&process->gone_ns, tally__now_ns());
        }
#endif
    }
}

bool tally__process_has_ended(struct tally__process *process)
{
    struct pollfd ended = {.fd = process->fd, .events = POLLIN};

    uint64_t seen_ns = 0;
    uint64_t now;

    if (process->fd < 0) {
        return atomic_load(&process->gone_ns) != 0;
    }
    /* A program may have closed the descriptor; then nobody knows. */
    if (poll(&ended, 1, 0) != 1 || !(ended.revents & POLLIN)) {
        return false;
    }
    now = tally__now_ns();
    return !atomic_compare_exchange_strong(&process->gone_ns, &seen_ns, now) &&
           now - seen_ns >= ON_ITS_WAY_NS;
}

void tally__process_forget(struct tally__process *process)
{
    if (process->fd >= 0) {
        (void)close(process->fd);
        process->fd = -1;
    }
}
