/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI domain, as mpi_open.c makes it and mpi_end.c ends it. */
#ifndef TALLY_COMM_MPI_DOMAIN_H
#define TALLY_COMM_MPI_DOMAIN_H

#include "comm/group.h"
#include "comm/mpi/mpi_post.h"
#include "comm/mpi/mpi_process.h"
#include "comm/shm/extents.h"

/* Sums of one lane do not meet those of another: each has a communicator. */
struct tally__mpi_lane {
    struct tally__mpi_handle comm;
    struct tally__mpi_handle request;
    bool is_summing; /* MPI may write to what is summed, also when nobody waits for it any more */
};

struct tally__mpi_domain {
    struct tally__domain common;
    pthread_mutex_t mutex; /* guards extents and data */
    struct tally__extents extents;
    struct tally__mpi_data *data; /* what applications have of this rank's memory */
    int n_local;                  /* ranks on this machine, as far as known; 0: not yet asked */
    size_t map_bytes;
    struct tally__post post;
    struct tally__mpi_lane *lanes; /* for sums of MPI's own */
    int n_lanes;
    struct tally__process **processes; /* of all ranks; NULL: not watched */
    struct tally__slot *slots;         /* ours, of the group that spans the domain */
    uint64_t timeout_ns;               /* that group's deadline */
    bool is_kept;                      /* it is in the list of all */
    bool is_left;                      /* the group is closed */
    struct tally__mpi_domain *next;    /* in that list */
};

/* One lock for all calls of MPI in this process. Nobody waits for another rank while holding it. */
void tally__mpi_lock(void);
void tally__mpi_unlock(void);

/* All below with the lock held. */

/* A domain without ranks and memory. NULL: no memory. */
struct tally__mpi_domain *tally__mpi_make(const struct tally__mpi_api *api);

/* Once it knows its rank and the number of ranks: memory, mirrors, slots. Errors: NOMEM, SYSTEM. */
int tally__mpi_map(struct tally__mpi_domain *mpi, int n_slots);

/* Frees one that is not kept. */
void tally__mpi_free(struct tally__mpi_domain *mpi);

/* mpi_memory.c: this rank's memory, as tally__domain_ops wants it; and its end. */
int tally__mpi_memory_alloc(struct tally__domain *domain, enum tally__memory_use use, size_t bytes,
                            void **memory);
void tally__mpi_memory_free(struct tally__domain *domain, void *memory);
bool tally__mpi_memory_owns(struct tally__domain *domain, const void *memory);
bool tally__mpi_memory_shares(const struct tally__domain *domain, const void *memory, size_t bytes);
void tally__mpi_memory_end(struct tally__mpi_domain *mpi);

#endif
