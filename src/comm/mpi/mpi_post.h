/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The post between the ranks of an MPI domain: takes bytes of this rank's memory to the others'
 * mirrors of it. Every message says where it belongs, so receives stand ready for whatever comes.
 * What one rank sends to another is delivered in the order in which it was sent.
 *
 * Payload goes in messages that stay below the eager limit of both MPIs over TCP, and few of them
 * are under way to one rank at a time: measured, that reaches 0.95 of a line of 1 Gbit/s where
 * large messages reach half of it.
 *
 * The caller holds the MPI lock around every function.
 */
#ifndef TALLY_COMM_MPI_POST_H
#define TALLY_COMM_MPI_POST_H

#include "comm/domain.h"
#include "comm/mpi/mpi_api.h"

#define TALLY__POST_BYTES ((size_t)48 * 1024) /* payload of a message */
#define TALLY__POST_WINDOW 4                  /* such messages under way to one rank */
#define TALLY__POST_LONGS 32                  /* and to all together */
#define TALLY__POST_SHORTS 32                 /* short ones made in advance, per rank, */
#define TALLY__POST_MOST_SHORTS 2048          /* and in all */
#define TALLY__POST_WORD_BYTES ((size_t)640)  /* payload of a short one, which always finds room */
#define TALLY__POST_RECEIVES 16               /* receives that stand ready */

struct tally__post_out;

/* Messages under way, in the order of sending. */
struct tally__post_list {
    struct tally__post_out *first;
    struct tally__post_out *last;
    int n;
};

/* To one rank. Short ones may have to wait until the rank takes them in; long ones never do. */
struct tally__post_peer {
    struct tally__post_list longs;
    struct tally__post_list shorts;
};

struct tally__post_in {
    struct tally__mpi_handle request;
    unsigned char *message;
};

struct tally__post {
    const struct tally__mpi_api *api;
    struct tally__mpi_handle comm;
    int n_ranks;
    const uintptr_t *base; /* per rank: where the mirror of its memory starts */
    size_t map_bytes;
    struct tally__post_peer *peers;
    struct tally__post_out *free_long;
    struct tally__post_out *free_short;
    int n_under_way;
    struct tally__post_in in[TALLY__POST_RECEIVES];
    int next_in; /* the receive that stands first */
    bool is_broken;
    char why[256]; /* it is broken */
};

/* api, comm, n_ranks, base and map_bytes are set. On failure tally__post_end is still to be called.
 * Errors: NOMEM, SYSTEM. */
int tally__post_begin(struct tally__post *post);

/* As the carrier's operations of these names. own is this rank's memory. */
int tally__post_put(struct tally__post *post, int rank, const unsigned char *own,
                    struct tally__put *put);
int tally__post_progress(struct tally__post *post, size_t *moved);

/* Takes the receives back and frees what MPI has done with; what it has not, it keeps for good. */
void tally__post_end(struct tally__post *post);

#endif
