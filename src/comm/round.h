/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one primitive under all collectives: a round. Every rank says what it is doing, and nobody
 * goes on before everybody has said it. A round orders memory: what a rank wrote before it arrived,
 * every rank may read after it went on.
 */
#ifndef TALLY_COMM_ROUND_H
#define TALLY_COMM_ROUND_H

#include "comm/group.h"

#define TALLY__KIND_LIST(X)             \
    X(END, "end of the job")            \
    X(BARRIER, "barrier")               \
    X(ALL_REDUCE, "all-reduce")         \
    X(REDUCE_SCATTER, "reduce-scatter") \
    X(ALL_GATHER, "all-gather")         \
    X(ALL_TO_ALL, "all-to-all")         \
    X(BROADCAST, "broadcast")           \
    X(EXCHANGE, "exchange")             \
    X(ALLOC, "tally_group_alloc")       \
    X(FREE, "tally_group_free")         \
    X(SPLIT, "tally_group_split")       \
    X(DDP, "tally_ddp_create")          \
    X(OPEN, "tally_group_open")         \
    X(AGREE, "agreement")

enum tally__kind {
#define TALLY__KIND_ENUM(name, text) TALLY__KIND_##name,
    TALLY__KIND_LIST(TALLY__KIND_ENUM)
#undef TALLY__KIND_ENUM
};

/*
 * Arrives at the lane's next round with this call (job is filled in) and waits for the others. When
 * a rank's call carries a status, the job fails here on all ranks with that status and text. On a
 * blocking lane only. Errors: that status; MISMATCH, PEER, TIMEOUT, after which the group is given
 * up; ABORTED.
 */
int tally__round(tally_lane *lane, const struct tally__call *call);

/* The two halves of a round, for work in between that needs nobody. Who has arrived must wait, also
 * when that work fails. */
int tally__arrive(tally_lane *lane, const struct tally__call *call);
int tally__await(tally_lane *lane);

/* What rank said in the round just finished, and what it is doing; valid until the next one. */
const struct tally__call *tally__said(const tally_lane *lane, int rank);
const struct tally__doing *tally__doing_of(const tally_lane *lane, int rank);

/*
 * Tells the others, in place of the round they are about to wait in, that this rank's job has
 * failed with status and the thread's error text. Returns the status that all ranks agree on.
 */
int tally__refuse(tally_lane *lane, enum tally__kind kind, int status);

/* The stage a rank's data of the next round goes to, and where to find rank's of a past round. */
unsigned char *tally__next_stage(const tally_lane *lane);
unsigned char *tally__stage_of(const tally_lane *lane, int rank, uint64_t round);

/* Where data lies for the other ranks, as call.offset says it, or TALLY__NOT_SHARED. */
uint64_t tally__offset_for_peers(const tally_group *group, const void *data, size_t bytes);

/* Where the data lies that rank said an offset of in the round just finished. */
unsigned char *tally__peer_data(const tally_lane *lane, int rank);

/* Whether every rank said an offset in the round just finished. */
bool tally__all_share(const tally_lane *lane);

/* Counts payload that this rank has sent to others. */
void tally__count_sent(tally_lane *lane, uint64_t bytes);

#endif
