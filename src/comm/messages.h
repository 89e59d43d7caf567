/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to far ranks: ranks whose memory this rank does not reach. The line that a rank writes
 * in a round goes to them as a message, with its payload, the first bytes of its stage, or in
 * several where MPI is faster with short ones (exchange/message_size.h). The receiver keeps it in
 * its slot for that rank. In groups where every rank has few far ranks, each rank sends its
 * line to all of them. In others lines are spread: in step k a rank sends the lines of itself and
 * of the 2^k - 1 ranks before it to the rank 2^k after it, so a round takes log2 W messages per
 * rank.
 *
 * Transfers carry large data between two ranks, after a round in which both have said the same.
 *
 * Only the thread that runs a lane's jobs enters with that lane, unless stated otherwise.
 */
#ifndef TALLY_COMM_MESSAGES_H
#define TALLY_COMM_MESSAGES_H

#include "comm/group.h"

/* Most far ranks to which each rank sends its line itself. */
#define TALLY__MOST_DIRECT 8

/* Bytes that go with a line to one rank, with room for a mark (exchange/far_pieces.h). */
#define TALLY__RIDER_BYTES ((size_t)32 * 1024 + 64)

/* The most that goes with a line to all ranks, of which there are size, n_far of them far from the
 * rank that has most far ranks. */
size_t tally__payload_for(int size, int n_far);

/* Pieces of an exchange that are under way at once, in each direction. */
#define TALLY__N_WINDOWS 3
/* Kinds of transfers of an exchange, with a counter per kind, window and rank each. */
enum tally__flow { TALLY__GOING, TALLY__COMING, TALLY__GIVING, TALLY__TAKING, TALLY__N_FLOWS };

/* Bytes to send to a rank and to receive from it; neither need be memory of the group. */
struct tally__stream {
    const unsigned char *send;
    size_t send_bytes;
    unsigned char *receive;
    size_t receive_bytes;
};

/* Data of similar length: the size of its messages is chosen by measuring
 * (exchange/message_size.c). */
#define TALLY__N_MESSAGE_SIZES 3
#define TALLY__N_MESSAGE_CLASSES 9
/* Of one size; payload has one more exchange with the first size. */
#define TALLY__MOST_MEASURED 9
struct tally__message_class {
    int n_exchanges; /* with sizes in turn */
    struct {
        int n;
        float ns[TALLY__MOST_MEASURED]; /* per byte, ascending */
    } of[TALLY__N_MESSAGE_SIZES];
    int choice; /* the index of the fastest, when all are measured */
    int part;   /* of payload: the index that all ranks use next */
};

/* The messages of one lane. */
struct tally__far_lane {
    unsigned char **inbox;  /* per round parity and rank: the message with its line */
    unsigned char *packed;  /* messages of several lines */
    atomic_int *sending;    /* messages of lines that MPI has not finished */
    atomic_int *pending;    /* TALLY__N_FLOWS * TALLY__N_WINDOWS per rank: transfers */
    size_t part_bytes;      /* the longest message of a line where lines are not spread */
    bool has_told_all;      /* this round's line went to all far ranks: the round is late */
    unsigned char *scratch; /* for transfers, in the domain's memory; NULL: not yet needed */
    size_t scratch_bytes;
    struct tally__stream *streams; /* per rank */
    struct tally__message_class classes[TALLY__N_MESSAGE_CLASSES];
};

/* The messages of a group; groups whose ranks are all near have none. Machines may have different
 * numbers of ranks: what decides how ranks exchange must be the same on all of them. */
struct tally__far {
    uint32_t channel;          /* of lane 0; lane i has channel + i */
    int n;                     /* far ranks of the rank that has most */
    bool has_near;             /* some rank has a near one */
    size_t payload_bytes;      /* the most that goes with a line to all ranks */
    size_t inbox_bytes;        /* and to one rank */
    struct tally__slot *slots; /* per lane and rank: the words of far ranks */
    uint32_t *left_after;      /* per lane and rank that has closed the group: its last round */
    struct tally__far_lane *lanes;
    struct tally__stream *streams; /* per lane and rank */
    unsigned char **inboxes;       /* per lane, round parity and rank */
    unsigned char *packed;         /* of all lanes, in the domain's memory */
    atomic_int *pending;           /* of all lanes */
    size_t n_pending;
    tally_group *next; /* in the messenger's list */
};

/* A line as part of a message. */
#define TALLY__MAGIC 0x746c6c79u

enum tally__entry_kind { TALLY__A_LINE, TALLY__LEAVING };

struct tally__entry {
    uint32_t magic;
    uint16_t kind; /* enum tally__entry_kind */
    uint16_t more; /* of the bytes: those that follow in messages without an entry */
    uint32_t channel;
    int32_t rank;   /* of the group, whose line it is */
    uint32_t round; /* of TALLY__LEAVING: the status */
    uint32_t bytes; /* of what follows: payload or text; of TALLY__LEAVING a text and, per lane, the
                       last round. The next entry is aligned to 8 bytes */
    struct tally__call call;
    struct tally__doing doing;
    struct tally__stamps stamps;
};

static inline size_t tally__padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Whether lines are spread, and messages may have several. */
static inline bool tally__is_spread(const tally_group *group)
{
    return group->far && group->far->n > TALLY__MOST_DIRECT;
}

/* Gives the group its messages, if it has far ranks. Its lanes' slots for them are filled in.
 * Errors: NOMEM. */
int tally__far_make(tally_group *group, uint32_t channel);
void tally__far_unmake(tally_group *group);

static inline bool tally__is_near(const tally_group *group, int rank)
{
    return !group->far || !tally__is_far(group->domain, group->domain_rank[rank]);
}

/* Sends this rank's line of the current round. Errors: those of the messenger; the group is then
 * given up. */
int tally__send_line(tally_lane *lane);

/* The same with other bytes for each far rank, where lines are not spread. */
int tally__send_line_each(tally_lane *lane, const struct tally__stream *riders);

/* The number of steps if lines are spread; otherwise 0. tally__send_line is step 0. */
int tally__n_spread_steps(const tally_lane *lane);

/* A further step, once the lines of this rank and the 2^step - 1 ranks before it have arrived. */
int tally__spread_step(tally_lane *lane, int step);

/* Sends this rank's line to all far ranks, so that they can tell which rank is late. */
void tally__tell_all(tally_lane *lane);

/* Tells the far ranks that this rank has left the group, as its slot says. Any thread. The second
 * form is for threads that hold the MPI lock. */
void tally__send_leaving(tally_group *group);
void tally__send_leaving_locked(tally_group *group);

/* ---- inbox.c ---- */

/* Room for the messages of far ranks. Errors: NOMEM; tally__inboxes_free is still to be called. */
int tally__inboxes_make(const tally_group *group);
void tally__inboxes_free(const tally_group *group);

/* Takes a message of lines from a rank of the domain apart. It may keep the buffer, of
 * TALLY__LINES_BYTES, and leave another one in its place. False: the message is not sound. With the
 * MPI lock held. */
bool tally__deliver(struct tally__messenger *messenger, int source, unsigned char **message,
                    size_t bytes);

/* The group takes no more messages: drops the rest of lines of which a part has come. With the MPI
 * lock held. */
void tally__drop_parts(struct tally__messenger *messenger, const tally_group *group);

/* Whether the line of a far rank that has closed the group is on its way: where lines are spread,
 * other ranks pass it on, and the word of the close may be faster. */
bool tally__is_passed_on(const tally_lane *lane, int rank);

/* The payload of a far rank's line. */
unsigned char *tally__inbox_of(const tally_lane *lane, int rank, uint64_t round);

/* ---- transfers ---- */

/* Begin a transfer of a flow; a failure gives the group up. data stays valid, and does not change,
 * until it is over, or for ever if the group is given up: memory of the group. Both ranks begin the
 * transfers of a flow in the same order, one to send and the other to receive. MPI may copy data in
 * the call: to send first keeps the other rank busy, too. */
int tally__transfer_send(tally_lane *lane, enum tally__flow flow, size_t window, int rank,
                         const void *data, size_t bytes);
int tally__transfer_receive(tally_lane *lane, enum tally__flow flow, size_t window, int rank,
                            void *data, size_t bytes);

/* Waits until the transfers of a window are over. Errors: those of a round. */
int tally__transfer_wait(tally_lane *lane, enum tally__flow flow, size_t window, int rank);

/* Waits until a counter of messages is 0; rank is named if that does not happen. */
int tally__await_counter(tally_lane *lane, int rank, const atomic_int *pending);

/* Memory of this lane for transfers, at least bytes. Errors: NOMEM. */
int tally__transfer_scratch(tally_lane *lane, size_t bytes, unsigned char **scratch);

/* Before the round that precedes tally__run_streams: gets the memory for it, if the group has far
 * ranks. Errors: NOMEM. */
int tally__streams_prepare(tally_lane *lane);

/* The lane's list of streams, one per rank. */
struct tally__stream *tally__streams_of(const tally_lane *lane);

/* Sends and receives all streams, one per rank; those to near ranks go as messages too. */
int tally__run_streams(tally_lane *lane, const struct tally__stream *of);

#endif
