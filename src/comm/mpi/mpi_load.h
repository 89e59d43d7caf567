/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and loading the shared object for the MPI of this process. */
#ifndef TALLY_COMM_MPI_LOAD_H
#define TALLY_COMM_MPI_LOAD_H

#include "comm/mpi/mpi_api.h"

/*
 * The object's table; loaded once, and never unloaded. It is for the MPI that TALLY_MPI names, else
 * the one that the program uses already, else the one whose launcher has started it, else the first
 * one installed. The caller holds the MPI lock. Errors: UNSUPPORTED, saying what to install; ARG.
 */
int tally__mpi_load(const struct tally__mpi_api **api);

#endif
