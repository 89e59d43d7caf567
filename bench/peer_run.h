/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same measurement made by somebody else: runs bench/mpi_peer.c, as compiled for an MPI, under
 * that MPI's launcher. The programs stand in bench/ beside the running executable, where the build
 * puts them if the MPI was there when it was configured.
 */
#ifndef TALLY_BENCH_PEER_RUN_H
#define TALLY_BENCH_PEER_RUN_H

#include <stdbool.h>

#include "bench/collective_rank.h"

enum peer { PEER_OPENMPI, PEER_MPICH, N_PEERS };

extern const char *const peer_names[N_PEERS];

/* Whether its program was built. */
bool peer_exists(enum peer peer);

struct peer_times {
    char version[32];
    size_t n;
    double us[COLLECTIVE_MAX_REPEATS];
};

/*
 * Runs all_reduce of this number of bytes on this number of ranks once. Errors: SYSTEM with the
 * command line that failed, TIMEOUT after timeout_s; the launcher and its children have ended then.
 */
int peer_run(enum peer peer, int ranks, size_t bytes, const struct repeat_limits *limits,
             double timeout_s, struct peer_times *times);

#endif
