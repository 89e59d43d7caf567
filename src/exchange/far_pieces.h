/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of an exchange as messages: their memory, marks, sending and receiving. Only the
 * thread that runs the lane's jobs enters with that lane.
 */
#ifndef TALLY_EXCHANGE_FAR_PIECES_H
#define TALLY_EXCHANGE_FAR_PIECES_H

#include "comm/agree.h"
#include "comm/messages.h"
#include "exchange/message_size.h"
#include "exchange/phases.h"

struct tally__pieces {
    struct tally__exchange *x;
    unsigned char *scratch;
    size_t slot_bytes; /* room for one message */
    bool is_coded;     /* messages begin with a mark */
    bool is_in_place;  /* plain data in group memory: no copies */
    bool rides;        /* small shards: contributions to far ranks go with the line of the round */
    bool is_spoiled;   /* a codec has failed, here or elsewhere */
    struct tally__outcome outcome; /* of this rank's codec */
};

/* Data in place needs memory for contributions only. */
size_t tally__piece_n_slots(const struct tally__pieces *m);

unsigned char *tally__piece_slot(const struct tally__pieces *m, enum tally__flow flow, size_t c,
                                 int rank);

/* Whether contributions between rank and this rank went with their lines. */
bool tally__piece_rode(const struct tally__pieces *m, int rank);

/* The message with the contribution of rank to piece c of this rank's shard. */
unsigned char *tally__piece_contribution(const struct tally__pieces *m, size_t c, int rank);

unsigned char *tally__piece_data(const struct tally__pieces *m, const struct tally__range *piece);

size_t tally__piece_bytes(const struct tally__pieces *m, const struct tally__range *piece);

/* The part of a message after its mark. */
unsigned char *tally__piece_behind_mark(const struct tally__pieces *m, unsigned char *slot);

bool tally__piece_is_marked(const unsigned char *slot);

/* Sends a message that is in a slot, or, in place, the data itself. */
int tally__piece_send(const struct tally__pieces *m, enum tally__flow flow, size_t c, int rank,
                      const struct tally__range *piece, int owner);

int tally__piece_receive(const struct tally__pieces *m, enum tally__flow flow, size_t c, int rank,
                         const struct tally__range *piece);

/* Whether rank gets its contribution to this rank's shard, and its result, through memory; and
 * whether this rank does for the shard of owner. */
bool tally__piece_is_read(const struct tally__pieces *m, int rank);

bool tally__piece_reads_this(const struct tally__pieces *m, int owner);

/* The ranks after this one come first, so that no rank gets all messages at once. */
int tally__piece_peer(const struct tally__pieces *m, int i);

/* Encodes a range of data into a slot. After a failure of the codec the exchange continues,
 * spoiled.
 */
void tally__piece_encode(struct tally__pieces *m, const struct tally__range *piece,
                         const void *data, unsigned char *slot);

#endif
