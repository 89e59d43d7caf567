/* SPDX-License-Identifier: Apache-2.0 */
/* The two-phase exchange: all hooks and the public reductions use it. */
#ifndef TALLY_EXCHANGE_TWO_PHASE_H
#define TALLY_EXCHANGE_TWO_PHASE_H

#include "comm/round.h"
#include "exchange/codec.h"

/* Exchanges of at most this many bytes on the wire take one phase: few in shared memory, where a
 * round is cheap; as many as go with a line where a round is a message. */
size_t tally__one_phase_bytes(const tally_group *group);

/*
 * Reduces the data of all ranks as the codec says and leaves the result, with the same bits, on
 * every rank; if the codec scatters, only in this rank's shard. call describes the exchange to the
 * application (kind, dtype, op, root); the exchange fills in the rest. On a lane only. Errors:
 * UNSUPPORTED when a block does not fit in a stage, those of any round.
 */
int tally__exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n);

#endif
