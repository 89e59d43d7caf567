/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets with deadlines and descriptor passing. Stateless. */
#include "comm/shm/unix_socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

#define RETRY_NS 5000000
#define N_RETRIES 100

/* A control message with room for the descriptors, aligned as the kernel wants it. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(TALLY__UNIX_FDS * sizeof(int))];
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

/* Makes a non-blocking socket: callers wait in poll or in a loop, with a deadline. */
static int make_socket(int *made)
{
    *made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*made < 0) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot make a Unix socket");
    }
    return TALLY_OK;
}

/* Whether the path is a socket of this user without a listener; fills info. */
static bool is_stale(const char *name, struct stat *info)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(name, &address);
    int probe;
    bool refused;

    if (!has_path(name) || lstat(name, info) != 0 || !S_ISSOCK(info->st_mode) ||
        info->st_uid != geteuid() || make_socket(&probe) != TALLY_OK) {
        return false;
    }
    refused =
        connect(probe, (const struct sockaddr *)&address, length) != 0 && errno == ECONNREFUSED;
    (void)close(probe);
    return refused;
}

/* Removes the path, unless it is another file by now. */
static void unlink_own(const char *name, dev_t device, ino_t inode)
{
    struct stat info;

    if (lstat(name, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_dev == device &&
        info.st_ino == inode) {
        (void)unlink(name);
    }
}

static bool remove_stale(const char *name)
{
    struct stat info;

    if (!is_stale(name, &info)) {
        return false;
    }
    unlink_own(name, info.st_dev, info.st_ino);
    return true;
}

void tally__unix_remove_left(const char *name)
{
    for (int i = 0; i < N_RETRIES && has_path(name) && !remove_stale(name); i++) {
        if (access(name, F_OK) != 0) {
            return;
        }
        tally__sleep_ns(RETRY_NS);
    }
}

/* Reports that the name is in use. */
static int fail_in_use(const char *name)
{
    struct stat info;

    if (has_path(name) &&
        (lstat(name, &info) != 0 || !S_ISSOCK(info.st_mode) || info.st_uid != geteuid())) {
        return tally__fail(
            TALLY_ARG,
            "rendezvous %s exists already and belongs to another user or is not a socket", name);
    }
    return tally__fail(TALLY_ARG,
                       "rendezvous %s exists already: another rank 0 of this job, or another job, "
                       "listens there; give each process another rank, and each job "
                       "another rendezvous or MASTER_PORT",
                       name);
}

static int bind_listener(const char *name, int listener)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(name, &address);

    /* The mode of the path: other users cannot connect. */
    (void)fchmod(listener, S_IRUSR | S_IWUSR);
    if (bind(listener, (const struct sockaddr *)&address, length) == 0) {
        return TALLY_OK;
    }
    if (errno == EADDRINUSE) {
        (void)remove_stale(name);
        if (bind(listener, (const struct sockaddr *)&address, length) == 0) {
            return TALLY_OK;
        }
    }
    if (errno == EADDRINUSE) {
        return fail_in_use(name);
    }
    return tally__fail_errno(TALLY_SYSTEM, errno, "cannot make rendezvous %s", name);
}

int tally__unix_listen(const char *name, int backlog, struct tally__unix_listener *listener)
{
    struct stat info = {0};
    int made;
    int rc;

    TRY(make_socket(&made));
    rc = bind_listener(name, made);
    if (rc == TALLY_OK && has_path(name)) {
        (void)lstat(name, &info);
    }
    if (rc == TALLY_OK && listen(made, backlog) != 0) {
        rc = tally__fail_errno(TALLY_SYSTEM, errno, "cannot listen at rendezvous %s", name);
    }
    if (rc != TALLY_OK) {
        (void)close(made);
        return rc;
    }
    *listener = (struct tally__unix_listener){name, made, info.st_dev, info.st_ino};
    return TALLY_OK;
}

void tally__unix_close_listener(struct tally__unix_listener *listener)
{
    if (has_path(listener->name)) {
        unlink_own(listener->name, listener->device, listener->inode);
    }
    (void)close(listener->fd);
    listener->fd = -1;
}

bool tally__unix_wait(struct pollfd *fds, size_t n, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = tally__now_ns();
        uint64_t left_ms = now < deadline_ns ? (deadline_ns - now) / 1000000 + 1 : 0;

        if (poll(fds, n, left_ms > 60000 ? 60000 : (int)left_ms) > 0) {
            return true;
        }
        if (left_ms == 0) {
            return false;
        }
    }
}

int tally__unix_accept(const struct tally__unix_listener *listener, int *connection)
{
    int made = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (made < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
        return tally__fail_errno(TALLY_SYSTEM, errno, "cannot accept a connection");
    }
    *connection = made;
    return TALLY_OK;
}

/* Reports why no process can ever listen at this name, if so. */
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
    int made;

    TRY(make_socket(&made));
    while (connect(made, (const struct sockaddr *)&address, length) != 0) {
        int error = errno;
        int rc = check_connectable(name, error);

        if (rc == TALLY_OK && tally__now_ns() >= deadline_ns) {
            rc = tally__fail(TALLY_TIMEOUT,
                             error == EAGAIN ? "rank 0 does not take connections at %s"
                                             : "rank 0 did not come to %s in time",
                             name);
        }
        if (rc != TALLY_OK) {
            (void)close(made);
            return rc;
        }
        tally__sleep_ns(RETRY_NS);
    }
    *connection = made;
    return TALLY_OK;
}

/* The credentials of the other end, from when it connected or began to listen. */
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

int tally__unix_stopped_peer(int connection)
{
    struct ucred peer;
    char text[512] = "";
    const char *state;
    FILE *file;

    if (!get_peer(connection, &peer) || peer.pid <= 0) {
        return 0;
    }
    (void)snprintf(text, sizeof text, "/proc/%d/stat", (int)peer.pid);
    file = fopen(text, "re");
    if (!file) {
        return 0;
    }
    text[0] = '\0';
    (void)fgets(text, sizeof text, file);
    (void)fclose(file);
    /* "number (name) state ...", and a name may have anything in it. */
    state = strrchr(text, ')');
    return state && (strncmp(state, ") T", 3) == 0 || strncmp(state, ") t", 3) == 0) ? peer.pid : 0;
}

/* Sends; false when the receiver's buffer is full; then it pauses. */
static bool send_or_pause(int connection, const struct msghdr *header, ssize_t *sent)
{
    *sent = sendmsg(connection, header, MSG_NOSIGNAL);
    /* ETOOMANYREFS: this user has too many descriptors in flight. */
    if (*sent >= 0 || (errno != EINTR && errno != EAGAIN && errno != ETOOMANYREFS)) {
        return true;
    }
    tally__sleep_ns(RETRY_NS);
    return false;
}

/* A transfer failed: because the other end is gone, or for a reason of the system's. */
static int fail_transfer(int error, const char *what)
{
    bool is_gone = error == EPIPE || error == ECONNRESET || error == ENOTCONN;

    return tally__fail_errno(is_gone ? TALLY_PEER : TALLY_SYSTEM, error,
                             "cannot %s another rank while the group is being opened", what);
}

int tally__unix_send(int connection, const void *message, size_t bytes, const int *fds,
                     uint64_t deadline_ns)
{
    union control control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (fds) {
        const size_t fds_bytes = TALLY__UNIX_FDS * sizeof *fds;
        struct cmsghdr *cmsg;

        header.msg_control = control.bytes;
        header.msg_controllen = sizeof control.bytes;
        cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fds_bytes);
        memcpy(CMSG_DATA(cmsg), fds, fds_bytes);
    }
    while (!send_or_pause(connection, &header, &sent)) {
        if (tally__now_ns() >= deadline_ns) {
            return tally__fail(TALLY_TIMEOUT, "a rank does not receive messages");
        }
    }
    if (sent != (ssize_t)bytes) {
        return fail_transfer(sent < 0 ? errno : EMSGSIZE, "send to");
    }
    return TALLY_OK;
}

/* Extracts the descriptors of a message, if there are exactly n; otherwise closes them. Returns how
 * many came; the kernel drops those without room. */
static size_t take_descriptors(struct msghdr *header, int *fds)
{
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(header);
    bool is_cut = (header->msg_flags & MSG_CTRUNC) != 0;
    size_t n = 0;

    for (size_t i = 0; i < TALLY__UNIX_FDS; i++) {
        fds[i] = -1;
    }
    if (!cmsg || cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
        return 0;
    }
    n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
    memcpy(fds, CMSG_DATA(cmsg), n * sizeof *fds);
    if (n != TALLY__UNIX_FDS || is_cut) {
        tally__unix_close_fds(fds);
    }
    return n;
}

void tally__unix_close_fds(int *fds)
{
    for (size_t i = 0; i < TALLY__UNIX_FDS; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
        fds[i] = -1;
    }
}

int tally__unix_receive(int connection, void *message, size_t bytes, int *fds, uint64_t deadline_ns)
{
    union control control = {0};
    struct iovec part = {.iov_base = message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct pollfd readable = {.fd = connection, .events = POLLIN};
    ssize_t received;
    size_t n_fds;

    do {
        if (!tally__unix_wait(&readable, 1, deadline_ns)) {
            return tally__fail(TALLY_TIMEOUT, "no message came in time");
        }
        received = recvmsg(connection, &header, MSG_CMSG_CLOEXEC);
    } while (received < 0 && (errno == EINTR || errno == EAGAIN));
    if (received <= 0) {
        return fail_transfer(received < 0 ? errno : ECONNRESET, "receive from");
    }
    n_fds = take_descriptors(&header, fds);
    /* Truncated with too few descriptors: this process may have no more. With too many the message
     * is garbage. */
    if ((header.msg_flags & MSG_CTRUNC) && n_fds < TALLY__UNIX_FDS) {
        return tally__fail_errno(TALLY_SYSTEM, EMFILE, "cannot take a descriptor");
    }
    if ((size_t)received != bytes) {
        tally__unix_close_fds(fds);
        return tally__fail(TALLY_MISMATCH, "a message of %zd bytes came, %zu were expected",
                           received, bytes);
    }
    return TALLY_OK;
}
