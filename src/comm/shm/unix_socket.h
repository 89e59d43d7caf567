/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets for the rendezvous: messages with or without two descriptors; every wait has a
 * deadline (of tally__now_ns). A name that starts with '@' has no file; any other is a path.
 */
#ifndef TALLY_COMM_UNIX_SOCKET_H
#define TALLY_COMM_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TALLY__UNIX_FDS 2

struct pollfd;

struct tally__unix_listener {
    const char *name;
    int fd;
    dev_t device; /* of the path, if there is one */
    ino_t inode;
};

/* Makes the socket, for this user only; replaces a path left behind by a dead process of this user.
 * The caller keeps the name. Errors: ARG when the name is taken or its path is not our socket,
 * SYSTEM. */
int tally__unix_listen(const char *name, int backlog, struct tally__unix_listener *listener);

/* Closes the listener and removes its path, if the path is still this socket. */
void tally__unix_close_listener(struct tally__unix_listener *listener);

/* Removes the path of a process that has just died while it listened. Its descriptors close one
 * after the other, so its listener may outlive its connections: tries again for half a second. */
void tally__unix_remove_left(const char *name);

/* A connection that waits to be accepted, or -1. Never blocks. Errors: SYSTEM. */
int tally__unix_accept(const struct tally__unix_listener *listener, int *connection);

/* Waits until one of n descriptors is ready; false when the deadline has passed. */
bool tally__unix_wait(struct pollfd *fds, size_t n, uint64_t deadline_ns);

/* Connects, retrying until a process listens. Errors: TIMEOUT, ARG, SYSTEM. */
int tally__unix_connect(const char *name, uint64_t deadline_ns, int *connection);

/* Whether the process at the other end runs under our user id. */
bool tally__unix_same_user(int connection);

/* Whether the other end is this process. */
bool tally__unix_same_process(int connection);

/* The number of the process at the other end if it is stopped, by a signal or a debugger; else 0.
 */
int tally__unix_stopped_peer(int connection);

/* Sends one message; fds may be NULL. Errors: PEER when the other end is closed, TIMEOUT. */
int tally__unix_send(int connection, const void *message, size_t bytes, const int *fds,
                     uint64_t deadline_ns);

/* Closes the open ones and sets all to -1. */
void tally__unix_close_fds(int *fds);

/* Receives one message of exactly bytes; all fds are -1 unless exactly that many came. Errors:
 * PEER, TIMEOUT, MISMATCH, SYSTEM. */
int tally__unix_receive(int connection, void *message, size_t bytes, int *fds,
                        uint64_t deadline_ns);

#endif
