/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of the harness: ranks.c, and ranks_mpi.c for ranks that mpirun
 * has started.
 */
#ifndef TALLY_TESTS_RANKS_INNER_H
#define TALLY_TESTS_RANKS_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/ranks.h"

#define MAX_RANKS 16
#define DEADLINE_S 240

/* Shared by all ranks of a run, of any kind. */
struct board {
    _Atomic uint32_t gate; /* counts processes of MPI that have come to a gate */
    struct {
        _Atomic uint32_t words[RANKS_N_WORDS];
        _Atomic uint32_t done[MAX_RANKS];
        uint64_t everywhere[MAX_RANKS];
        uint64_t this_run[MAX_RANKS];
    } of_run;
};

struct rank_context {
    const struct ranks *ranks;
    tally_group *group;
    ranks_body *body;
    void *user;
    int rank;
    int n_failures;
    pthread_t thread;
};

struct board *ranks_board(void);

/* One rank from beginning to end, its group being open. */
void ranks_run_one(struct rank_context *context);

void ranks_fill_config(const struct ranks *ranks, tally_group_config *config);

/* Whether all ranks noted the same for this run. Returns the number of failures. */
int ranks_compare_notes(const struct ranks *ranks);

/* Number of ranks that mpirun has started for this test; 0: it has not. */
int ranks_mpi_world(void);

/* Whether this process is the only one, or the first of mpirun's. */
bool ranks_mpi_is_first(void);

/* The file that the board of mpirun's ranks lies in, or -1. */
int ranks_mpi_board(void);

/* This process's part in a run over MPI. Returns the number of things that went wrong. */
void ranks_note_one_phase(const tally_group *group);

int ranks_run_mpi(const struct ranks *ranks, ranks_body *body, void *user);

#endif
