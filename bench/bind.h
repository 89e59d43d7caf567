/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place for every rank. Two ranks on one CPU beside an idle one, as they often are in their first
 * tenths of a second, measure the scheduler. Needs nothing of tally: the MPI peers use it too, so
 * that all sides stand alike.
 */
#ifndef TALLY_BENCH_BIND_H
#define TALLY_BENCH_BIND_H

/*
 * Binds the calling thread to its rank's equal share of the CPUs this process may use, if there is
 * a CPU for every rank; otherwise does nothing.
 */
void bench_bind(int rank, int ranks);

/* Number of CPUs that the calling thread may use; at least 1. */
int bench_cpus(void);

#endif
