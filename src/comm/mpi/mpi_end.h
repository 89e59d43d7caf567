/* SPDX-License-Identifier: Apache-2.0 */
/* The end of MPI domains, and with the last of them of the process's part in MPI. */
#ifndef TALLY_COMM_MPI_END_H
#define TALLY_COMM_MPI_END_H

#include "comm/mpi/mpi_domain.h"

/* All below with the lock held, except the last two. */

/* Whether MPI has been finalized. */
bool tally__mpi_has_ended(void);

/* From here on the domain ends when the last rank has left it. */
void tally__mpi_keep(struct tally__mpi_domain *mpi);

/* Frees those that all ranks have left. */
void tally__mpi_reap(void);

/* A rank has not come to where no domain is yet. */
void tally__mpi_note_lost(void);

/* A communicator could not be duplicated here, and may have been elsewhere. */
void tally__mpi_note_half_duplicated(void);

/* The group of a domain that is kept is closed, and its last words have been put. */
void tally__mpi_leave(struct tally__mpi_domain *mpi);

/* As mpi_api.h says of at_end. */
void tally__mpi_end(uint64_t words_ns, struct tally__mpi_outlook *outlook);

#endif
