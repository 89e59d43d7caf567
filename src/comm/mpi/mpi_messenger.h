/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messenger of an MPI domain: takes messages to the far ranks. Two kinds: lines (messages.h),
 * which any rank may send at any time and for which receives are always posted; and transfers, for
 * which both ranks know size and order. Transfers between two ranks with one tag are received in
 * the order in which they were sent.
 *
 * One lock per process guards all MPI calls; no thread waits for another rank while it holds it.
 */
#ifndef TALLY_COMM_MPI_MESSENGER_H
#define TALLY_COMM_MPI_MESSENGER_H

#include "comm/group.h"
#include "comm/mpi/mpi_api.h"
#include "comm/mpi/mpi_process.h"

/* The longest message of lines, and the number of receives posted for them. */
#define TALLY__LINES_BYTES ((size_t)34 * 1024)
#define TALLY__N_RECEIVES 32

/* MPI's sums of one lane do not meet those of another lane: each has its own communicator. */
struct tally__mpi_lane {
    struct tally__mpi_handle comm;
    struct tally__mpi_handle request; /* of the duplication of comm */
    atomic_int pending;
};

/* A request that MPI has not finished. */
struct tally__under_way {
    atomic_int *pending; /* decremented at the end; NULL: no lane waits for it any more */
    void *buffer;        /* freed at the end, if not NULL */
    size_t bytes;
    bool is_receive;
};

/* A message of lines, or one line in parts: the first message has all but the last more bytes, and
 * the others are at most as long. */
struct tally__lines {
    unsigned char *data;
    size_t bytes;
    size_t more;
};

/* The rest of a line of which the first part has come. */
struct tally__parts {
    size_t left;
    unsigned char *to;        /* NULL: drop them */
    struct tally__line *line; /* that has arrived when they are complete */
    uint32_t round;
};

struct tally__messenger {
    struct tally__domain *domain;
    const struct tally__mpi_api *api;
    struct tally__mpi_handle comm;
    bool may_linger; /* lane threads may call MPI while no job runs */
    uint32_t channel_span;
    _Atomic uint32_t next_channel;
    tally_group *groups;               /* that messages may be for: far->next */
    bool *has_left;                    /* per rank: it has left the group that spans the domain */
    struct tally__parts *parts;        /* per rank */
    struct tally__process **processes; /* of all ranks; NULL: not watched */
    unsigned char *in[TALLY__N_RECEIVES];
    struct tally__mpi_handle in_requests[TALLY__N_RECEIVES];
    int next_in;                        /* the receive that the next message fills */
    struct tally__mpi_handle *requests; /* of the messages under way */
    struct tally__under_way *under_way;
    int n_under_way;
    atomic_bool is_busy;           /* n_under_way > 0; for threads without the lock */
    int room;                      /* entries of these two */
    struct tally__mpi_lane *lanes; /* for MPI's sums */
    int n_lanes;
    uint64_t timeout_ns;           /* of the group that spans the domain */
    bool is_kept;                  /* it is in the list of all messengers (mpi_end.c) */
    bool is_left;                  /* that group is closed */
    struct tally__messenger *next; /* in the list */
    bool is_broken;
    char why[256]; /* it is broken */
};

void tally__mpi_lock(void);
void tally__mpi_unlock(void);

/* ---- with the lock held ---- */

/* api and comm are set. On failure tally__messenger_free is still to be called. Errors: NOMEM,
 * SYSTEM. */
int tally__messenger_begin(struct tally__messenger *messenger, struct tally__domain *domain);

/* Receives lines and finishes requests; adds the bytes that moved to *moved. Errors: SYSTEM. */
int tally__messenger_look(struct tally__messenger *messenger, size_t *moved);

/* Sends a message of lines. With pending NULL, message is freed when it is sent, or now. Errors:
 * NOMEM, SYSTEM. */
int tally__messenger_put_lines(struct tally__messenger *messenger, int rank, void *message,
                               size_t bytes, atomic_int *pending);

/* Cancels the receives, and frees the buffers that MPI does not use any more. */
void tally__messenger_end(struct tally__messenger *messenger);
void tally__messenger_free(struct tally__messenger *messenger);

/* ---- these take the lock ---- */

/*
 * Send and receive bytes of one transfer. *pending counts it until MPI has done with the memory,
 * which stays valid until then, also when the group is given up. Never block. Errors: NOMEM,
 * SYSTEM.
 */
int tally__messenger_send(struct tally__messenger *messenger, int rank, uint32_t channel,
                          const void *data, size_t bytes, atomic_int *pending);
int tally__messenger_receive(struct tally__messenger *messenger, int rank, uint32_t channel,
                             void *data, size_t bytes, atomic_int *pending);

/* As tally__messenger_put_lines. The parts of a line follow each other. */
int tally__messenger_send_lines(struct tally__messenger *messenger, int rank,
                                const struct tally__lines *lines, atomic_int *pending);

int tally__messenger_progress(struct tally__messenger *messenger, size_t *moved);

/* The same without lines: half as many calls of MPI. */
int tally__messenger_finish(struct tally__messenger *messenger, size_t *moved);

/* A channel for n lanes that no other group of this domain has, if rank is the first of a group. */
uint32_t tally__messenger_new_channel(struct tally__messenger *messenger, int n);

/* From here on messages reach the group; from here on they do not, and no request counts in
 * its lanes. */
void tally__messenger_add(struct tally__messenger *messenger, tally_group *group);
void tally__messenger_remove(struct tally__messenger *messenger, tally_group *group);

/* Whether messages are under way. */
bool tally__messenger_is_busy(struct tally__messenger *messenger);

/* Begins a sum of all ranks of the domain by MPI, in place, one at a time on each lane. All ranks
 * begin it; it is done when *pending is 0. n is at most 2^30. Errors: NOMEM, SYSTEM. */
int tally__messenger_sum(struct tally__messenger *messenger, int lane, float *data, size_t n,
                         const atomic_int **pending);

/* mpi_end.c: the group that spans the domain is closed, and its last words have been sent. */
void tally__messenger_leave(struct tally__messenger *messenger);

#endif
