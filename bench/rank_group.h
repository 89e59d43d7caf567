/* SPDX-License-Identifier: Apache-2.0 */
/* The group of a bench whose application's thread works beside the lanes. */
#ifndef TALLY_BENCH_RANK_GROUP_H
#define TALLY_BENCH_RANK_GROUP_H

#include <tally.h>

struct rank_group {
    int rank;
    int ranks;
    const char *rendezvous;
    int lanes;
    double open_timeout_s;
    double timeout_s;
};

/*
 * Opens the group and binds the calling thread and all lanes to the rank's share of the CPUs, as
 * bench_bind does. Collective; blocks. Errors: those of tally_group_open and of a job.
 */
int rank_group_open(const struct rank_group *wanted, tally_group **group);

#endif
