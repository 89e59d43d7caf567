/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates files in folders that other users may write to; see shared_folder.h. Not responsible for
 * files of checkpoints (state/files.c), whose folders must be new. Any thread.
 */
#include "base/shared_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int tally__create_in_shared_folder(const char *path)
{
    /* Without O_NONBLOCK a FIFO would wait for a reader. */
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat about;

    if (fd >= 0 && (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))) {
        (void)close(fd);
        errno = EEXIST;
        return -1;
    }
    return fd;
}
