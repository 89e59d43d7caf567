/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets with deadlines and descriptor passing. Keeps no state. */
#include "comm/shm/unix_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

#define RETRY_NS 5000000

/* A control message with room for one descriptor, aligned as the kernel wants it. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static bool has_path(const char *name)
{
    return name[0] != '@';
}

static socklen_t fill_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strlen(name);

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length >= sizeof address->sun_path) {
        length = sizeof address->sun_path - 1;
    }
    memcpy(address->sun_path, name, length);
    if (!has_path(name)) {
        address->sun_path[0] = '\0';
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + has_path(name));
}

/* Never blocks: who waits does it in poll or in a loop, with a deadline. */
static int make_socket(int *made)
{
    *made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*made < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot make a Unix socket");
    }
    return TALLY_OK;
}

/* Whether the path is a socket of ours at which nobody listens any more. */
static bool is_stale(const char *name, const struct sockaddr_un *address, socklen_t length)
{
    struct stat info;
    int probe;
    bool refused;

    if (!has_path(name) || lstat(name, &info) != 0 || !S_ISSOCK(info.st_mode) ||
        info.st_uid != geteuid() || make_socket(&probe) != TALLY_OK) {
        return false;
    }
    refused =
        connect(probe, (const struct sockaddr *)address, length) != 0 && errno == ECONNREFUSED;
    (void)close(probe);
    return refused;
}

static int bind_listener(const char *name, int listener)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(name, &address);
    int error;

    /* The mode of the path to be: nobody else may even connect. */
    (void)fchmod(listener, S_IRUSR | S_IWUSR);
    if (bind(listener, (const struct sockaddr *)&address, length) == 0) {
        return TALLY_OK;
    }
    error = errno;
    if (error == EADDRINUSE && is_stale(name, &address, length) && unlink(name) == 0 &&
        bind(listener, (const struct sockaddr *)&address, length) == 0) {
        return TALLY_OK;
    }
    if (error == EADDRINUSE) {
        return tally__fail(TALLY_ARG, "rendezvous %s exists already and is not ours to use", name);
    }
    return tally__fail_errno(TALLY_SYSTEM, error, "cannot make rendezvous %s", name);
}

int tally__unix_listen(const char *name, int backlog, int *listener)
{
    int made;
    int rc;

    TRY(make_socket(&made));
    rc = bind_listener(name, made);
    if (rc == TALLY_OK && listen(made, backlog) != 0) {
        rc = tally__fail_errno(TALLY_SYSTEM, errno, "cannot listen at rendezvous %s", name);
    }
    if (rc != TALLY_OK) {
        (void)close(made);
        return rc;
    }
    *listener = made;
    return TALLY_OK;
}

void tally__unix_close_listener(const char *name, int listener)
{
    if (has_path(name)) {
        (void)unlink(name);
    }
    (void)close(listener);
}

/* Waits until something can be read: 1, or 0 when the deadline has passed. */
static int wait_readable(int fd, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        uint64_t now = tally__now_ns();
        uint64_t left_ms = now < deadline_ns ? (deadline_ns - now) / 1000000 + 1 : 0;
        int ready = poll(&poller, 1, left_ms > 60000 ? 60000 : (int)left_ms);

        if (ready > 0) {
            return 1;
        }
        if (left_ms == 0) {
            return 0;
        }
    }
}

int tally__unix_accept(int listener, uint64_t deadline_ns, int *connection)
{
    int made;

    if (!wait_readable(listener, deadline_ns)) {
        *connection = -1;
        return TALLY_OK;
    }
    made = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (made < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot accept a connection");
    }
    *connection = made;
    return TALLY_OK;
}

/* Why nobody will ever listen at this name, if that is so. */
static int check_connectable(const char *name, int error)
{
    struct stat info;

    if (error == ENOENT || error == EAGAIN || error == EINTR) {
        return TALLY_OK;
    }
    if (error == ECONNREFUSED) {
        if (has_path(name) && lstat(name, &info) == 0 && !S_ISSOCK(info.st_mode)) {
            return tally__fail(TALLY_ARG, "rendezvous %s exists already and is not a socket", name);
        }
        return TALLY_OK;
    }
    return tally__fail_errno(TALLY_SYSTEM, error, "cannot connect to rendezvous %s", name);
}

int tally__unix_connect(const char *name, uint64_t deadline_ns, int *connection)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(name, &address);
    const struct timespec pause = {0, RETRY_NS};
    int made;

    TRY(make_socket(&made));
    while (connect(made, (const struct sockaddr *)&address, length) != 0) {
        int rc = check_connectable(name, errno);

        if (rc == TALLY_OK && tally__now_ns() >= deadline_ns) {
            rc = tally__fail(TALLY_TIMEOUT, "rank 0 did not come to %s in time", name);
        }
        if (rc != TALLY_OK) {
            (void)close(made);
            return rc;
        }
        (void)nanosleep(&pause, NULL);
    }
    *connection = made;
    return TALLY_OK;
}

/* Who is at the other end: as it was when it connected, or began to listen. */
static bool get_peer(int connection, struct ucred *peer)
{
    socklen_t length = sizeof *peer;

    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0;
}

bool tally__unix_same_user(int connection)
{
    struct ucred peer;

    return get_peer(connection, &peer) && peer.uid == geteuid();
}

bool tally__unix_same_process(int connection)
{
    struct ucred peer;

    return get_peer(connection, &peer) && peer.pid == getpid();
}

/* Sends; false when the other has to take something first, which the pause gives it time for. */
static bool send_or_pause(int connection, const struct msghdr *header, ssize_t *sent)
{
    const struct timespec pause = {0, RETRY_NS};

    *sent = sendmsg(connection, header, MSG_NOSIGNAL);
    /* The last one: this user has as many descriptors under way as the system allows. */
    if (*sent >= 0 || (errno != EINTR && errno != EAGAIN && errno != ETOOMANYREFS)) {
        return true;
    }
    (void)nanosleep(&pause, NULL);
    return false;
}

int tally__unix_send(int connection, const void *message, size_t bytes, int fd,
                     uint64_t deadline_ns)
{
    union control control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (fd >= 0) {
        struct cmsghdr *cmsg;

        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(cmsg), &fd, sizeof fd);
    }
    while (!send_or_pause(connection, &header, &sent)) {
        if (tally__now_ns() >= deadline_ns) {
            return tally__fail(TALLY_TIMEOUT, "a rank does not take what it is sent");
        }
    }
    if (sent != (ssize_t)bytes) {
        return tally__fail_errno(TALLY_PEER, errno, "cannot send to a rank");
    }
    return TALLY_OK;
}

/* The one descriptor of a message; of more than one, all are closed and none is taken. */
static int take_descriptor(struct msghdr *header)
{
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(header);
    size_t n;
    int fd = -1;

    if (!cmsg || cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
        return -1;
    }
    n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof fd;
    for (size_t i = 0; i < n; i++) {
        memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof fd, sizeof fd);
        if (n > 1) {
            (void)close(fd);
        }
    }
    return n == 1 ? fd : -1;
}

int tally__unix_receive(int connection, void *message, size_t bytes, int *fd, uint64_t deadline_ns)
{
    union control control = {0};
    struct iovec part = {.iov_base = message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    ssize_t received;

    do {
        if (!wait_readable(connection, deadline_ns)) {
            return tally__fail(TALLY_TIMEOUT, "nothing came in time");
        }
        received = recvmsg(connection, &header, MSG_CMSG_CLOEXEC);
    } while (received < 0 && (errno == EINTR || errno == EAGAIN));
    if (received <= 0) {
        return tally__fail(TALLY_PEER, "the other end is gone");
    }
    *fd = take_descriptor(&header);
    /* Cut off with none in it: there was no room for one. With several it is nonsense. */
    if (*fd < 0 && (header.msg_flags & MSG_CTRUNC) && !CMSG_FIRSTHDR(&header)) {
        return tally__fail_errno(TALLY_SYSTEM, EMFILE, "cannot take a descriptor");
    }
    if ((size_t)received != bytes) {
        if (*fd >= 0) {
            (void)close(*fd);
            *fd = -1;
        }
        return tally__fail(TALLY_MISMATCH, "a message of %zd bytes came, %zu were expected",
                           received, bytes);
    }
    return TALLY_OK;
}
