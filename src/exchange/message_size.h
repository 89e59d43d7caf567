/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of bytes per message to far ranks. It fits the transport: rank 0 measures the first
 * exchanges of a lane with several sizes, and keeps the fastest for data of about that length. The
 * number changes no bits. Large data has separate messages, whose size all ranks agree on before.
 * Small data goes with a line, in one message or in parts: an MPI sends messages up to some length
 * at once, and longer ones only after the receiver has answered. Only the thread that runs a lane's
 * jobs enters with that lane.
 */
#ifndef TALLY_EXCHANGE_MESSAGE_SIZE_H
#define TALLY_EXCHANGE_MESSAGE_SIZE_H

#include "comm/group.h"

/* Room in a message besides the data. */
#define TALLY__MARK_BYTES ((size_t)64)

/* The most bytes per message in a group: those of all windows and ranks must fit in memory. */
size_t tally__message_most(const tally_group *group);

/* For call.word: the size that this rank proposes for an exchange of this many bytes; rank 0's
 * counts. */
uint64_t tally__message_propose(const tally_lane *lane, size_t bytes);

/* The size that rank 0 proposed in the round just finished. */
size_t tally__message_agreed(const tally_lane *lane);

/* An exchange of this many bytes took ns. */
void tally__message_note(const tally_lane *lane, size_t bytes, uint64_t ns);

/* Shorter payload goes with its line in one message. */
#define TALLY__LEAST_PARTED ((size_t)3 << 10)

/* Before a round in which this many bytes go with each line: sets the size of parts. Returns
 * call.word for that round: the choice that this rank proposes for the next; rank 0's counts. */
uint64_t tally__parts_choose(const tally_lane *lane, size_t bytes);

/* After that round, which took ns: learns rank 0's choice. */
void tally__parts_note(const tally_lane *lane, size_t bytes, uint64_t ns);

#endif
