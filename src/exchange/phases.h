/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange under way, as the files two_phase*.c share it. */
#ifndef TALLY_EXCHANGE_PHASES_H
#define TALLY_EXCHANGE_PHASES_H

#include "exchange/codec.h"

struct tally__exchange {
    tally_lane *lane;
    const struct tally__codec *codec;
    struct tally__call call;
    unsigned char *data;
    struct tally__layout layout;
    size_t first_block;  /* of every shard: blocks before it are done */
    size_t piece_blocks; /* blocks of a shard per turn */
    struct tally__lists lists;
    struct tally__codec with_lists; /* the caller's codec, and these */
};

/* The shard of rank, and piece c of it, maybe empty. */
struct tally__range tally__exchange_shard(const struct tally__exchange *x, int rank);
struct tally__range tally__exchange_piece(const struct tally__exchange *x, int rank, size_t c);

/* The number of pieces of the largest shard. */
size_t tally__exchange_n_pieces(const struct tally__exchange *x);

/* Counts the payload of both phases. */
void tally__exchange_count(const struct tally__exchange *x);

/* Two phases among ranks that are all near, and among ranks of which some are far. */
int tally__two_phase_near(struct tally__exchange *x);
int tally__two_phase_far(struct tally__exchange *x);

/* One phase in which all ranks get all data, for codecs that gather. */
int tally__gather_far(struct tally__exchange *x);

#endif
