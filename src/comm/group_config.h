/* SPDX-License-Identifier: Apache-2.0 */
/* A group's settings: its config, completed from the environment. */
#ifndef TALLY_COMM_GROUP_CONFIG_H
#define TALLY_COMM_GROUP_CONFIG_H

#include "base/sized.h"
#include "tally.h"

#define TALLY__MAX_WORLD 4096
#define TALLY__MAX_LANES 64

#define TALLY__GROUP_CONFIG TALLY__SIZED(tally_group_config, lanes)

struct tally__settings {
    int rank;
    int world;
    char rendezvous[256]; /* "" in a world of one */
    double timeout_s;
    double open_timeout_s;
    int lanes;
    int is_self; /* the backend is "self" */
    int is_mpi;  /* the backend is "mpi": rank and world are as in the config, or -1 and 0 */
    const int *mpi_comm;
};

/* config may be NULL. Errors: ARG, UNSUPPORTED. */
int tally__group_config_resolve(const tally_group_config *config, struct tally__settings *settings);

/* Checks the number of MPI processes against the launchers' variables. Errors: ARG. */
int tally__check_mpi_world(const char *mpi, int n_processes);

#endif
