/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: the primitive under all collectives. Every rank announces its call, and no rank
 * continues before all have. A round orders memory: data that a rank wrote before it arrived is
 * visible to every rank that has continued.
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
        TALLY__N_KINDS
};

/*
 * Arrives at the lane's next round with this call (job is filled in) and waits for the others. If a
 * rank's call has a status, the job fails here on all ranks with that status and text. Only inside
 * a job. Errors: that status; MISMATCH, PEER, TIMEOUT, after which the group is given up; ABORTED.
 */
int tally__round(tally_lane *lane, const struct tally__call *call);

/* As tally__round; the first bytes of this rank's next stage go with its line to far ranks. bytes
 * is at most tally__payload_bytes. */
int tally__round_with(tally_lane *lane, const struct tally__call *call, size_t bytes);

/* As tally__round; the bytes to send of riders[r], at most tally__rider_bytes, go with the line to
 * far rank r (messages.h). */
struct tally__stream;
int tally__round_each(tally_lane *lane, const struct tally__call *call,
                      const struct tally__stream *riders);

/* The most bytes that can go with a line to all ranks: of the whole stage, if all are near; and to
 * each far rank: 0 where lines are spread. */
size_t tally__payload_bytes(const tally_group *group);
size_t tally__rider_bytes(const tally_group *group);

/* A round of the near ranks only, in a group that may have far ranks. All ranks make it. */
int tally__round_near(tally_lane *lane, const struct tally__call *call);

/* The call of rank in the round just finished, what it is doing, and its stamps; valid until the
 * next round. */
const struct tally__call *tally__said(const tally_lane *lane, int rank);
const struct tally__doing *tally__doing_of(const tally_lane *lane, int rank);
const struct tally__stamps *tally__stamps_of(const tally_lane *lane, int rank);

/*
 * Replaces the round that the others are about to wait in: tells them that this rank's job has
 * failed with status and the thread's error text. Returns the status that all ranks agree on.
 */
int tally__refuse(tally_lane *lane, enum tally__kind kind, int status);

/* This rank's stage for the next round, and rank's stage of the current round; of a far rank, the
 * payload of its line. Of near ranks also stages of the last rounds. */
unsigned char *tally__next_stage(const tally_lane *lane);
unsigned char *tally__stage_of(const tally_lane *lane, int rank, uint64_t round);

/* The offset of data for other ranks, for call.offset, or TALLY__NOT_SHARED. */
uint64_t tally__offset_for_peers(const tally_group *group, const void *data, size_t bytes);

/* The data whose offset a near rank announced in the round just finished. */
unsigned char *tally__peer_data(const tally_lane *lane, int rank);

/* Whether this rank can read the data of rank, which announced an offset in the round just
 * finished; whether it can read every rank's. */
bool tally__reads(const tally_lane *lane, int rank);
bool tally__reads_all(const tally_lane *lane);

/* Counts payload that this rank has sent to others. */
void tally__count_sent(tally_lane *lane, uint64_t bytes);

#endif
