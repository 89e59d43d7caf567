/* SPDX-License-Identifier: Apache-2.0 */
/* The two-phase exchange under every hook and under the public all-reduce. */
#ifndef TALLY_EXCHANGE_TWO_PHASE_H
#define TALLY_EXCHANGE_TWO_PHASE_H

#include "comm/round.h"
#include "exchange/codec.h"

/* Messages of at most so many bytes on the wire take one phase. Measured: beyond it, two phases are
 * faster for two ranks in group memory. */
#define TALLY__ONE_PHASE_BYTES ((size_t)2 * 1024)

/*
 * Reduces data of all ranks by the codec's way and leaves the result, the same bits, on every rank.
 * call says what the application calls it (kind, dtype, op, root); the rest is filled in. On a lane
 * only. Errors: UNSUPPORTED when a block does not fit in a stage, those of any round.
 */
int tally__exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n);

/* The first phase alone: only this rank's shard of data gets its result. Shards are those of the
 * codec's shard_starts, if it has them. */
int tally__exchange_scatter(tally_lane *lane, const struct tally__codec *codec,
                            struct tally__call call, void *data, size_t n);

#endif
