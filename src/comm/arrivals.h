/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrivals: which rank came last to the rounds of a bucket, how long the others waited for it, and
 * why. Every rank stamps its line with the time of its arrival, and with the time when the bucket
 * was complete; so every rank of a round knows both of all ranks, without a message for it. Far
 * ranks have other clocks: the smallest time that a line has taken says how to read theirs.
 *
 * Only the thread that runs a lane's jobs enters with that lane; between steps, with no job under
 * way, any thread.
 */
#ifndef TALLY_COMM_ARRIVALS_H
#define TALLY_COMM_ARRIVALS_H

#include "comm/group.h"

/* Rounds of a step that are kept; of more, the first ones. */
#define TALLY__MOST_LATE_ROUNDS 256

/* A round in which one rank came noticeably later than all others. They waited from from_ns to
 * to_ns: until launched_ns because its bucket was not complete, until sent_ns because its lane was
 * late, and then because its line, or the data before it, was long under way. In this rank's
 * clock. */
struct tally__late_round {
    int rank; /* the launcher's number, as everywhere in this file */
    uint64_t from_ns;
    uint64_t launched_ns;
    uint64_t sent_ns;
    uint64_t to_ns;
};

/* Lines from a far rank: the time at which this rank saw one minus the time at which that rank sent
 * it, by two clocks. The smallest difference is that of the clocks plus a time under way that
 * nothing has delayed. It is forgotten after a while: clocks drift. */
struct tally__one_way {
    int64_t least_ns[2]; /* in this period, and in the one before; INT64_MAX: none */
    uint64_t until_ns;   /* the end of the period; 0: no line yet */
    int64_t back_ns; /* the same for lines of this rank, as that rank says; INT64_MAX: not known */
};

/* The arrivals at the rounds of one lane, in one step. A rank waits only from the moment at which
 * its application waits: before, a late rank costs it nothing. */
struct tally__arrivals {
    /* The bucket under way. */
    uint64_t launch_ns;
    uint64_t waited_before_ns; /* waited_ns when it began */
    bool is_last;              /* of the step */
    /* The lane. */
    uint64_t arrived_ns; /* this rank's last arrival */
    uint64_t waited_ns;  /* for other ranks, ever */
    int about;           /* the rank whose one way this rank tells next */
    bool has_transfers;  /* transfer_ns is not all 0 */
    /* The step. */
    uint64_t n_rounds;
    size_t n_late;
    struct tally__late_round late[TALLY__MOST_LATE_ROUNDS];
    bool has_called;
    /* The time at which this rank's application began to wait; 0: not yet. Relaxed: a lane that
     * reads it late says it in its next round. */
    const _Atomic uint64_t *called_here_ns;
    /* Per rank of the domain. */
    int n_ranks;
    uint64_t *called_ns;   /* if has_called: when its application began to wait; UINT64_MAX: it did
                              not   before the last round */
    uint64_t *transfer_ns; /* waited for its transfers since the last round */
    struct tally__one_way *one_way;
};

/* Fills zeroed arrivals. Errors: NOMEM; unmake is called then, too. */
int tally__arrivals_make(int n_ranks, const _Atomic uint64_t *called_here_ns,
                         struct tally__arrivals *arrivals);
void tally__arrivals_unmake(struct tally__arrivals *arrivals);

/* At the start of a bucket's job: its rounds are stamped and noted. */
void tally__arrivals_begin(tally_lane *lane, struct tally__arrivals *arrivals, uint64_t launch_ns,
                           bool is_last);
/* The next step begins. */
void tally__arrivals_reset(struct tally__arrivals *arrivals);

/* The clock of a far rank minus this rank's, and how wrong that may be. False: not known yet. */
bool tally__arrivals_offset(const struct tally__arrivals *arrivals, int rank, int64_t *offset_ns,
                            uint64_t *uncertainty_ns);

/* ---- for rounds and transfers; arrivals are those of the job ---- */

/* Of the job that uses the lane; NULL: it is not a bucket's. */
static inline struct tally__arrivals *tally__arrivals_of(const tally_lane *lane)
{
    return lane->loan.borrower ? lane->loan.borrower->job.arrivals : lane->job.arrivals;
}

/* This rank arrives: stamps its line. */
void tally__arrivals_stamp(const tally_lane *lane, struct tally__arrivals *arrivals,
                           struct tally__line *line);

/* This rank has waited for a rank's line; or for its transfer: then the others are told. */
enum tally__waited_for { TALLY__FOR_LINE, TALLY__FOR_SENDING, TALLY__FOR_TRANSFER };
void tally__arrivals_waited(struct tally__arrivals *arrivals, enum tally__waited_for what, int rank,
                            uint64_t ns);

/* All ranks of a round, or its near ones, have arrived: notes the last one. */
void tally__arrivals_note(tally_lane *lane, struct tally__arrivals *arrivals, bool is_near);

#endif
