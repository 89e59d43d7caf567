/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets for the meeting: messages with at most one descriptor, every wait with a deadline
 * (of tally__now_ns). A name that starts with '@' has no file; any other is a path.
 */
#ifndef TALLY_COMM_UNIX_SOCKET_H
#define TALLY_COMM_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the socket, for this user only; a path left behind by a dead process of ours is replaced.
 * Errors: ARG when the name is taken or its path is no socket of ours, SYSTEM. */
int tally__unix_listen(const char *name, int backlog, int *listener);

/* Closes the listener and removes its path. */
void tally__unix_close_listener(const char *name, int listener);

/* The next connection, or -1 when the deadline has passed. Errors: SYSTEM. */
int tally__unix_accept(int listener, uint64_t deadline_ns, int *connection);

/* Connects, trying again until somebody listens. Errors: TIMEOUT, ARG, SYSTEM. */
int tally__unix_connect(const char *name, uint64_t deadline_ns, int *connection);

/* Whether the process at the other end runs under our user id. */
bool tally__unix_same_user(int connection);

/* Whether it is this very process. */
bool tally__unix_same_process(int connection);

/* One message; fd -1 sends none. Errors: PEER when nobody is at the other end, TIMEOUT. */
int tally__unix_send(int connection, const void *message, size_t bytes, int fd,
                     uint64_t deadline_ns);

/* One message of exactly bytes; *fd is -1 when none came. Errors: PEER, TIMEOUT, SYSTEM. */
int tally__unix_receive(int connection, void *message, size_t bytes, int *fd, uint64_t deadline_ns);

#endif
