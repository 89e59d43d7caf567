/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of the processes of one job at the start: over a Unix socket they exchange the
 * descriptors of their memory and of their sign of life. Nothing of it remains afterwards.
 */
#ifndef TALLY_COMM_RENDEZVOUS_H
#define TALLY_COMM_RENDEZVOUS_H

#include <stdint.h>

#include "comm/group_config.h"
#include "comm/shm/unix_socket.h"

/* A rank's arrival: sent to all others. */
struct tally__arrival {
    int fds[TALLY__UNIX_FDS]; /* of its memory and of its sign of life; -1 until known */
    uint64_t first_slot;
};

enum { TALLY__MEMORY_FD, TALLY__LIFE_FD };

/*
 * Fills all entries of arrivals (settings->world of them); our own entry is given. On failure
 * received descriptors are closed. Blocks until all ranks have arrived or the deadline has passed.
 * Errors: ARG, TIMEOUT, MISMATCH, PEER, SYSTEM.
 */
int tally__meet(const struct tally__settings *settings, struct tally__arrival *arrivals);

#endif
