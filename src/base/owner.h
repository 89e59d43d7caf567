/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that owns an object. A forked child has copies of its parent's objects, but not its
 * threads, and it is not a rank: it must not use them.
 */
#ifndef TALLY_BASE_OWNER_H
#define TALLY_BASE_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tally__owner {
    uint64_t number; /* differs between a process and all processes it descends from */
    pid_t pid;       /* for messages */
};

/* The calling process as the owner of an object that it makes. Any thread. */
struct tally__owner tally__owner_here(void);

/* Whether the calling process is the owner: one load, no system call. Takes no lock, because a
 * thread that fork did not copy may have held it. */
bool tally__is_owner(const struct tally__owner *owner);

/* TALLY_OK, or STATE in a forked child. */
int tally__check_owner(const struct tally__owner *owner);

#endif
