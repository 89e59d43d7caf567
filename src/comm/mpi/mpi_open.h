/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes of MPI, on any number of machines. */
#ifndef TALLY_COMM_MPI_OPEN_H
#define TALLY_COMM_MPI_OPEN_H

#include "comm/group_config.h"

/* Errors: ARG, STATE, TIMEOUT, MISMATCH, PEER, SYSTEM, NOMEM, UNSUPPORTED. */
int tally__open_mpi(const struct tally__settings *settings, tally_group **group);

#endif
