/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads /proc/meminfo. Pages of shared memory are promised beyond what there is, and then somebody
 * is killed to keep the promise: so we look first. Keeps no state; any thread enters.
 */
#include "comm/shm/free_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The bytes after a name like "SwapFree:"; nothing when it is not there. */
static uint64_t bytes_of(const char *text, const char *name, uint64_t nothing)
{
    const char *at = strstr(text, name);

    return at ? (uint64_t)strtoull(at + strlen(name), NULL, 10) * 1024 : nothing;
}

uint64_t tally__free_memory(void)
{
    char text[2048]; /* the lines we want are among the first */
    uint64_t available;
    ssize_t n;
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return UINT64_MAX;
    }
    n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    available = bytes_of(text, "MemAvailable:", UINT64_MAX);
    return available == UINT64_MAX ? available : available + bytes_of(text, "SwapFree:", 0);
}
