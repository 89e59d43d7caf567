/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that are processes of this machine, and whether they still run: MPI does not say. */
#ifndef TALLY_COMM_MPI_PROCESS_H
#define TALLY_COMM_MPI_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/machine.h"

/* A rank's announcement. */
struct tally__process_card {
    struct tally__machine machine;
    uint64_t pid_space; /* the pid namespace */
    int64_t pid;
};

/* A process that is watched until this one ends: MPI ends only when all processes do. */
struct tally__process {
    struct tally__process *next;
    int64_t pid;
    int fd;                   /* of the process; -1: it had ended before */
    _Atomic uint64_t gone_ns; /* when its end was first seen; 0: it was not */
};

void tally__process_describe(struct tally__process_card *card);

/* Begins to watch a process. NULL: it is on another machine, or cannot be watched. */
struct tally__process *tally__process_watch(const struct tally__process_card *card);

/*
 * Whether the process has ended; false for NULL. Its last messages may still be on their way when
 * its end is seen, so the answer is yes only a tenth of a second later.
 */
bool tally__process_has_ended(struct tally__process *process);

/* Whether any watched process has ended. */
bool tally__process_any_ended(void);

#endif
