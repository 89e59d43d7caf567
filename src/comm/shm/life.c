/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life. The kernel refuses to seal a file against writing (EBUSY) while a process has it
 * mapped for writing, and seals it otherwise. So other processes ask by sealing the file: if that
 * works, or if it is sealed already, the process has ended. Compared with the alternatives: locks
 * are lost when the process closes another descriptor of the file; a descriptor of the process
 * (pidfd) does not show that it has called exec; the end of a pipe closes when a program closes all
 * descriptors, and does not when a child has it too. Stateless.
 */
#include "comm/shm/life.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

int tally__life_begin(int *fd, void **page)
{
    int made = memfd_create("tally-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map;

    if (made < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot make shared memory (memfd_create)");
    }
    /* No process ever touches the page: the file stays empty. */
    map = mmap(NULL, TALLY__PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (map == MAP_FAILED || madvise(map, TALLY__PAGE_BYTES, MADV_DONTFORK) != 0) {
        int error = errno;

        tally__life_end(map == MAP_FAILED ? NULL : map);
        (void)close(made);
        return tally__fail_errno(TALLY_SYSTEM, error, "cannot map shared memory");
    }
    *fd = made;
    *page = map;
    return TALLY_OK;
}

void tally__life_end(void *page)
{
    if (page) {
        (void)munmap(page, TALLY__PAGE_BYTES);
    }
}

bool tally__is_life(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

bool tally__life_has_ended(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && ((seals & F_SEAL_WRITE) || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
}
