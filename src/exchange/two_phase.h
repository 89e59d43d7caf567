/* SPDX-License-Identifier: Apache-2.0 */
/* The two-phase exchange: all hooks and the public reductions use it. */
#ifndef TALLY_EXCHANGE_TWO_PHASE_H
#define TALLY_EXCHANGE_TWO_PHASE_H

#include "comm/round.h"
#include "exchange/codec.h"

/* Exchanges of at most this many bytes on the wire take one phase. Measured: beyond it, two phases
 * are faster for two ranks in group memory. */
#define TALLY__ONE_PHASE_BYTES ((size_t)2 * 1024)

/*
 * Reduces the data of all ranks as the codec says and leaves the result, with the same bits, on
 * every rank; if the codec scatters, only in this rank's shard. call describes the exchange to the
 * application (kind, dtype, op, root); the exchange fills in the rest. On a lane only. Errors:
 * UNSUPPORTED when a block does not fit in a stage, those of any round.
 */
int tally__exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n);

#endif
