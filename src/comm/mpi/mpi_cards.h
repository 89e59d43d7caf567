/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group over MPI that is being opened, and the cards by which its ranks learn the machine of each
 * rank. Application threads enter, with the MPI lock held.
 */
#ifndef TALLY_COMM_MPI_CARDS_H
#define TALLY_COMM_MPI_CARDS_H

#include "base/machine.h"
#include "comm/group_config.h"
#include "comm/mpi/mpi_messenger.h"

/* The first message of a rank. All versions of tally must keep this form. */
struct tally__mpi_hello {
    char version[32];
    uint32_t card_bytes;
    int32_t status; /* not TALLY_OK: this rank cannot open the group */
    char text[216]; /* why */
};

/* The card of one rank. */
struct tally__mpi_card {
    struct tally__process_card process;
    struct tally__cpus cpus;
    uint64_t random[2]; /* for the name of a rendezvous */
    int32_t lanes;
    int32_t shares; /* ranks of a machine that have the same number, not 0, share memory */
};

/* A group that is being opened. */
struct tally__mpi_opening {
    const struct tally__settings *settings;
    struct tally__messenger *messenger;
    int rank;
    int n_ranks;
    int most_tag;
    struct tally__mpi_hello hello;
    struct tally__mpi_hello *hellos; /* of all ranks */
    struct tally__mpi_card own;
    struct tally__mpi_card *cards; /* of all ranks */
    int32_t outcome;               /* whether this rank has met the near ones */
    int32_t *outcomes;             /* of all ranks */
    int *near; /* the ranks of this machine that share memory, this one included */
    int n_near;
    struct tally__domain *domain;
    struct tally__slot *slots;
};

/* Fails with the text of the last MPI call. */
int tally__fail_mpi(const struct tally__mpi_api *api);

/* Waits until all ranks have done their part of a request. Releases the lock while it waits.
 * Errors: TIMEOUT, SYSTEM. */
int tally__mpi_wait_request(const struct tally__mpi_api *api,
                            const struct tally__settings *settings,
                            struct tally__mpi_handle *request);

/*
 * All ranks greet each other and exchange cards; then the ranks of each machine map each other's
 * memory. Makes the domain; if its near ranks cannot share memory, with this rank alone near.
 * Releases the lock while it waits. Errors: MISMATCH, NOMEM, TIMEOUT, SYSTEM, and that of a rank
 * that cannot open the group.
 */
int tally__mpi_make_domain(struct tally__mpi_opening *opening);

#endif
