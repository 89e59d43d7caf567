/* SPDX-License-Identifier: Apache-2.0 */
/* The group of a bench whose application thread works at the same time as the lanes, and its
 * ranks. */
#ifndef TALLY_BENCH_RANK_GROUP_H
#define TALLY_BENCH_RANK_GROUP_H

#include <stdbool.h>
#include <tally_extend.h>

/* Whether this process is one of the ranks that a launcher of MPI has started; if not, the bench
 * forks its ranks. */
struct rank_launch {
    bool is_launched;
    int rank; /* 0 if it is not */
    int ranks;
};

/* Collective where a launcher has started several; blocks. Errors: those of tally_group_open. */
int rank_launch_find(struct rank_launch *launch);

struct rank_group {
    bool is_launched; /* rank, ranks and where they meet are the launcher's */
    int rank;
    int ranks;
    const char *rendezvous;
    int lanes;
    double open_timeout_s;
    double timeout_s;
};

/*
 * Opens the group and binds the calling thread and all lanes to the rank's share of the CPUs, as
 * bench_bind does, unless that is the launcher's to do. Collective; blocks. Errors: those of
 * tally_group_open and of a job.
 */
int rank_group_open(const struct rank_group *wanted, tally_group **group);

#endif
