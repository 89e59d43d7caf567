/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a directory of checkpoints: one job, and one ddp of a program, saves into it. Writes
 * nothing to the file. Keeps a list of the locks of this process; any thread enters.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "state/files.h"

/* A lock of the system is one of the whole process, and is gone when any descriptor of the file is
 * closed. This list knows the folders that this process holds, so that it never opens their locks
 * twice. */
struct held {
    int fd;
    dev_t device;
    ino_t inode;
    struct held *next;
};
static struct held *all_held;
static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;

static int lock_file(const char *folder, int *fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct tally__path file;
    int opened;
    int error;

    TRY(tally__path_join(folder, "lock", &file));
    opened = open(file.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (opened < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot open '%.300s'", file.text);
    }
    if (fcntl(opened, F_SETLK, &lock) == 0) {
        *fd = opened;
        return TALLY_OK;
    }
    error = errno;
    lock.l_pid = 0;
    if (error == EACCES || error == EAGAIN) {
        (void)fcntl(opened, F_GETLK, &lock);
    }
    (void)close(opened);
    if (error == EACCES || error == EAGAIN) {
        return tally__fail(TALLY_STATE,
                           "another job (process %ld) saves into '%.300s': each job needs its own "
                           "directory",
                           (long)lock.l_pid, folder);
    }
    tally__log(TALLY_LOG_WARN, "checkpoint: '%.300s' cannot be locked against other jobs: error %d",
               folder, error);
    *fd = -1;
    return TALLY_OK;
}

/* With the mutex: locks a folder and adds it to the list. */
static int hold(const char *folder, int *fd)
{
    struct stat about;
    struct held *held;
    int rc;

    if (stat(folder, &about) != 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot open '%.300s'", folder);
    }
    for (held = all_held; held; held = held->next) {
        if (held->device == about.st_dev && held->inode == about.st_ino) {
            return tally__fail(TALLY_STATE,
                               "another ddp of this program saves into '%.300s': each ddp needs "
                               "its own directory",
                               folder);
        }
    }
    held = tally__alloc(sizeof *held, "a lock");
    if (!held) {
        return TALLY_NOMEM;
    }
    *held = (struct held){.fd = -1, .device = about.st_dev, .inode = about.st_ino};
    rc = lock_file(folder, &held->fd);
    if (rc != TALLY_OK || held->fd < 0) {
        tally__free(held);
        return rc;
    }
    held->next = all_held;
    all_held = held;
    *fd = held->fd;
    return TALLY_OK;
}

int tally__folder_lock(const char *path, int *fd)
{
    int rc;

    (void)pthread_mutex_lock(&held_mutex);
    rc = hold(path, fd);
    (void)pthread_mutex_unlock(&held_mutex);
    return rc;
}

void tally__folder_unlock(int fd)
{
    struct held **at = &all_held;

    if (fd < 0) {
        return;
    }
    (void)pthread_mutex_lock(&held_mutex);
    while (*at && (*at)->fd != fd) {
        at = &(*at)->next;
    }
    if (*at) {
        struct held *held = *at;

        *at = held->next;
        tally__free(held);
    }
    (void)close(fd);
    (void)pthread_mutex_unlock(&held_mutex);
}

bool tally__folder_is_locked(const char *path, int fd)
{
    struct tally__path file;
    struct stat held;
    struct stat there;

    return fd >= 0 && tally__path_join(path, "lock", &file) == TALLY_OK && fstat(fd, &held) == 0 &&
           stat(file.text, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}
