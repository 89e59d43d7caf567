/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that created an object. A forked child has copies of its parent's objects, but not
 * its threads, and it is not a rank: it must not use them.
 */
#ifndef TALLY_BASE_CREATOR_H
#define TALLY_BASE_CREATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tally__creator {
    uint64_t number; /* differs between a process and all processes it descends from */
    pid_t pid;       /* for messages */
};

/* The calling process, as the creator of an object. Any thread. */
struct tally__creator tally__creator_here(void);

/* Whether the calling process is the creator: one load, no system call. Takes no lock, because a
 * thread that fork did not copy may have held it. */
bool tally__is_creator(const struct tally__creator *creator);

/* TALLY_OK, or STATE in a forked child. */
int tally__check_creator(const struct tally__creator *creator);

#endif
