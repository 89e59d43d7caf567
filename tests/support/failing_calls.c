/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapped functions. Any thread enters; one is armed at a time. A row of WRAP is all that a
 * function needs: fault.cmake reads the names from here.
 */
#include "support/failing_calls.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Sequentially consistent throughout: these are tests, not hot paths. */
static _Atomic(const char *) armed;
static atomic_size_t left; /* calls before the one that fails; 0: that has been */
static atomic_bool is_hit;

void failing_calls_arm(const char *name, size_t n)
{
    atomic_store(&armed, NULL);
    atomic_store(&left, n);
    atomic_store(&is_hit, false);
    atomic_store(&armed, name);
}

bool failing_calls_hit(void)
{
    return atomic_load(&is_hit);
}

static bool fails_now(const char *name, int error)
{
    const char *wanted = atomic_load(&armed);

    if (!wanted || strcmp(wanted, name) != 0 || atomic_load(&left) == 0 ||
        atomic_fetch_sub(&left, 1) != 1) {
        return false;
    }
    atomic_store(&is_hit, true);
    errno = error;
    return true;
}

/* type name(parameters) fails with a value and an errno; pthread functions return their errno. */
#define WRAP(type, name, parameters, arguments, value, error)                 \
    type __real_##name parameters;                                            \
    type __wrap_##name parameters;                                            \
    type __wrap_##name parameters                                             \
    {                                                                         \
        return fails_now(#name, (error)) ? (value) : __real_##name arguments; \
    }

WRAP(int, memfd_create, (const char *n, unsigned f), (n, f), -1, EMFILE)
WRAP(void *, mmap, (void *a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o),
     MAP_FAILED, ENOMEM)
WRAP(int, madvise, (void *a, size_t n, int advice), (a, n, advice), -1, EINVAL)
WRAP(int, fallocate, (int fd, int mode, off_t o, off_t n), (fd, mode, o, n), -1, ENOSPC)
WRAP(int, fstat, (int fd, struct stat *s), (fd, s), -1, EIO)
WRAP(int, socket, (int d, int t, int p), (d, t, p), -1, EMFILE)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, EACCES)
WRAP(int, listen, (int fd, int n), (fd, n), -1, EOPNOTSUPP)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), -1, EMFILE)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, EACCES)
WRAP(int, getsockopt, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n), -1, EINVAL)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), -1, ENOBUFS)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), -1, ENOMEM)
WRAP(int, poll, (struct pollfd * p, nfds_t n, int t), (p, n, t), -1, ENOMEM)
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*f)(void *), void *u),
     (t, a, f, u), EAGAIN, EAGAIN)
WRAP(FILE *, fopen, (const char *p, const char *m), (p, m), NULL, EMFILE)
WRAP(size_t, fwrite, (const void *d, size_t s, size_t n, FILE *f), (d, s, n, f), 0, ENOSPC)
WRAP(size_t, fread, (void *d, size_t s, size_t n, FILE *f), (d, s, n, f), 0, EIO)
WRAP(int, fflush, (FILE * f), (f), EOF, ENOSPC)
WRAP(int, fsync, (int fd), (fd), -1, EIO)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, ENOSPC)

const char *const failing_calls_names[] = {
    "memfd_create",   "mmap",    "madvise", "fallocate",  "fstat",   "socket",  "bind",
    "listen",         "accept4", "connect", "getsockopt", "sendmsg", "recvmsg", "poll",
    "pthread_create",

    "fopen",          "fwrite",  "fread",   "fflush",     "fsync",   "rename",  NULL};
