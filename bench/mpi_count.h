/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the messages that this process sends with MPI_Send, MPI_Ssend, MPI_Isend and MPI_Issend,
 * whoever calls them: the program itself, or libtally's part for MPI. Messages inside MPI's own
 * collectives are not counted. Link the library before MPI, or preload it (LD_PRELOAD).
 */
#ifndef TALLY_BENCH_MPI_COUNT_H
#define TALLY_BENCH_MPI_COUNT_H

#define MPI_COUNT_SHORT_BYTES 256 /* of a message without data, at most */

struct mpi_count {
    unsigned long long messages;
    unsigned long long short_messages;
    unsigned long long bytes;
};

/* Returns the counts since the program started. Any thread. */
struct mpi_count mpi_count_read(void);

#endif
