/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce by MPI (MPI_Iallreduce), which chooses the order of summation.
 * Only the thread that runs a lane's jobs enters with that lane.
 */
#ifndef TALLY_COMM_MPI_ALL_REDUCE_H
#define TALLY_COMM_MPI_ALL_REDUCE_H

#include "comm/round.h"

/* Whether it is available on this lane: the same on all ranks. Not in groups of some of the ranks;
 * of several ddps of one group, one at a time has it. */
bool tally__has_mpi_all_reduce(const tally_lane *lane);

/*
 * Leaves the sum of all ranks' data on every rank. After a failure in mid-sum MPI may still
 * write to data. Errors: those of any round; SYSTEM.
 */
int tally__mpi_all_reduce(tally_lane *lane, float *data, size_t n);

#endif
