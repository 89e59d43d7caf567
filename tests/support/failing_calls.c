/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapped functions. Any thread enters; one is armed at a time. A row of WRAP is all that a
 * function needs: fault.cmake reads the names from here.
 */
#include "support/failing_calls.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sequentially consistent throughout: these are tests, not hot paths. */
static _Atomic(const char *) armed;
static atomic_size_t left; /* calls before the one that fails; 0: that has been */
static atomic_bool is_hit;
static atomic_bool kills;

void failing_calls_arm(const char *name, size_t n)
{
    atomic_store(&armed, NULL);
    atomic_store(&left, n);
    atomic_store(&is_hit, false);
    atomic_store(&armed, name);
}

void failing_calls_kill(bool kill)
{
    atomic_store(&kills, kill);
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

static void end_if_asked(void)
{
    if (atomic_load(&kills)) {
        (void)raise(SIGKILL);
    }
}

/* type name(parameters) fails with a value and an errno; pthread functions return their errno. */
#define WRAP(type, name, parameters, arguments, value, error) \
    type __real_##name parameters;                            \
    type __wrap_##name parameters;                            \
    type __wrap_##name parameters                             \
    {                                                         \
        if (fails_now(#name, (error))) {                      \
            end_if_asked();                                   \
            return (value);                                   \
        }                                                     \
        return __real_##name arguments;                       \
    }

/* The wrapper is written out. */
#define OWN(type, name, parameters) \
    type __real_##name parameters;  \
    type __wrap_##name parameters;  \
    type __wrap_##name parameters

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
WRAP(int, fsync, (int fd), (fd), -1, EIO)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
WRAP(int, unlink, (const char *path), (path), -1, EIO)
WRAP(int, rmdir, (const char *path), (path), -1, EIO)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, ENOSPC)

/* The disk is full after half of the bytes. */
OWN(ssize_t, write, (int fd, const void *bytes, size_t n))
{
    if (fails_now("write", ENOSPC)) {
        (void)__real_write(fd, bytes, n / 2);
        end_if_asked();
        errno = ENOSPC;
        return -1;
    }
    return __real_write(fd, bytes, n);
}

/* Those of opening a group. */
const char *const failing_calls_names[] = {"memfd_create", "mmap",    "madvise",        "fallocate",
                                           "fstat",        "socket",  "bind",           "listen",
                                           "accept4",      "connect", "getsockopt",     "sendmsg",
                                           "recvmsg",      "poll",    "pthread_create", NULL};
