/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of bytes per message of large data to far ranks. It fits the transport: rank 0
 * measures the first large exchanges of a lane with several sizes, and keeps the fastest for data
 * of about that length. The number changes no bits. Only the thread that runs a lane's jobs enters
 * with that lane.
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

#endif
