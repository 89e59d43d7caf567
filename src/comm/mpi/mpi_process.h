/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that are processes of this machine, and whether they still run. MPI does not tell. */
#ifndef TALLY_COMM_MPI_PROCESS_H
#define TALLY_COMM_MPI_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A rank's announcement. */
struct tally__process_card {
    char machine[48];   /* host name and boot ID */
    uint64_t pid_space; /* where the number means this process */
    int64_t pid;
};

/* A process that is watched, for as long as this one runs: MPI ends only when all do. */
struct tally__process {
    struct tally__process *next;
    int64_t pid;
    int fd;                   /* of the process; -1: it had ended before */
    _Atomic uint64_t gone_ns; /* when its end was first seen; 0: it was not */
};

void tally__process_describe(struct tally__process_card *card);

/* From here on the process is watched. NULL: it is not one of this machine, or cannot be watched.
 */
struct tally__process *tally__process_watch(const struct tally__process_card *card);

/*
 * Whether the process has ended; of NULL nobody knows. What it sent before may still be on its way
 * when its end is seen, so that is said a tenth of a second later.
 */
bool tally__process_has_ended(struct tally__process *process);

/* Whether any that is watched has ended. */
bool tally__process_any_ended(void);

#endif
