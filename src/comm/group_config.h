/* SPDX-License-Identifier: Apache-2.0 */
/* What a group's config comes to, once the environment has filled its gaps. */
#ifndef TALLY_COMM_GROUP_CONFIG_H
#define TALLY_COMM_GROUP_CONFIG_H

#include "base/sized.h"
#include "tally.h"

#define TALLY__MAX_WORLD 4096

#define TALLY__GROUP_CONFIG TALLY__SIZED(tally_group_config, lanes)

struct tally__settings {
    int rank;
    int world;
    char rendezvous[256]; /* "" in a world of one */
    double timeout_s;
    double open_timeout_s;
    int lanes;
    int is_self; /* the backend is "self" */
    int is_mpi;  /* the backend is "mpi": rank and world are what the config asks for, or -1, 0 */
    const int *mpi_comm;
};

/* config may be NULL. Errors: ARG, UNSUPPORTED. */
int tally__group_config_resolve(const tally_group_config *config, struct tally__settings *settings);

/* tally_group_open for a group that is a part of one that is open: the log says nothing of it. */
int tally__open_inner(const tally_group_config *config, tally_group **group);

/* Whether the number of processes that an MPI sees fits what launchers say. Errors: ARG. */
int tally__check_mpi_world(const char *mpi, int n_processes);

#endif
