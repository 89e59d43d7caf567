/* SPDX-License-Identifier: Apache-2.0 */
/* The end of messengers and their domains, and, after the last, of the process's part in MPI. */
#ifndef TALLY_COMM_MPI_END_H
#define TALLY_COMM_MPI_END_H

#include "comm/mpi/mpi_messenger.h"

/* All below with the lock held, except the last one. */

/* Whether MPI has been finalized. */
bool tally__mpi_has_ended(void);

/* Begins to keep a messenger: it ends, with its domain, when the last rank has left it. */
void tally__mpi_keep(struct tally__messenger *messenger);

/* Frees the messengers that all ranks have left. */
void tally__mpi_reap(void);

/* A rank has not arrived, where there is no messenger yet. */
void tally__mpi_note_lost(void);

/* A communicator could not be duplicated here, and may have been elsewhere. */
void tally__mpi_note_half_duplicated(void);

/* As mpi_api.h says of at_end. */
void tally__mpi_end(uint64_t words_ns, struct tally__mpi_outlook *outlook);

#endif
