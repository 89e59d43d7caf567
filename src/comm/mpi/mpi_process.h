/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are processes of this machine, and whether they still run. MPI does not tell. */
#ifndef TALLY_COMM_MPI_PROCESS_H
#define TALLY_COMM_MPI_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a rank says of itself. */
struct tally__process_card {
    char machine[48];   /* which start of which machine */
    uint64_t pid_space; /* where the number means this process */
    int64_t pid;
};

/* What a rank keeps of another. */
struct tally__process {
    int fd;                   /* of the process, if it is watched; else -1 */
    _Atomic uint64_t gone_ns; /* when its end was first seen; 0: it was not */
};

void tally__process_describe(struct tally__process_card *card);

/* From here on the process is watched, if it is one of this machine. */
void tally__process_watch(struct tally__process *process, const struct tally__process_card *card);

/*
 * Whether the process has ended; of one that is not watched nobody knows. What it sent before may
 * still be on its way when its end is seen, so that is said a tenth of a second later.
 */
bool tally__process_has_ended(struct tally__process *process);

void tally__process_forget(struct tally__process *process);

#endif
