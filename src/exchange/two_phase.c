/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two-phase exchange. Data is divided into one shard per rank; that rank is the owner of the
 * shard. A contribution is one rank's encoded data for one shard. In the first phase every rank
 * sends each owner its contribution, and the owner reduces all contributions, its own included, in
 * rank order. In the second phase every rank takes the results. Rank r sends N + (W - 2) n_r
 * elements of the codec.
 *
 * two_phase_near.c has the two phases for ranks that reach each other's memory, two_phase_far.c for
 * ranks that send messages. Small data takes one phase, with the same bits: it goes with the line
 * of each rank in one round, and every rank reduces all of it. A codec that gathers has one phase
 * for data of any length: every rank gets all contributions and adds them, and the result is not
 * encoded.
 *
 * Only the thread that runs the lane's jobs enters with that lane.
 */
#include "exchange/two_phase.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/messages.h"
#include "exchange/message_size.h"
#include "exchange/phases.h"
#include "trace/ring.h"

/* Measured: beyond it, two phases are faster for two ranks in group memory. */
#define NEAR_ONE_PHASE_BYTES ((size_t)2 * 1024)

void tally_shard(size_t count, int size, int rank, size_t *offset, size_t *n)
{
    const struct tally__layout layout = {.n = count, .block = TALLY__SHARD_UNIT};
    struct tally__range shard;

    if (size < 1 || rank < 0 || rank >= size || !offset || !n) {
        return;
    }
    shard = tally__shard_of(&layout, size, rank);
    *offset = shard.start;
    *n = shard.n;
}

struct tally__range tally__exchange_shard(const struct tally__exchange *x, int rank)
{
    return tally__shard_of(&x->layout, x->lane->group->size, rank);
}

struct tally__range tally__exchange_piece(const struct tally__exchange *x, int rank, size_t c)
{
    struct tally__range shard = tally__exchange_shard(x, rank);
    size_t first = x->first_block + c * x->piece_blocks;
    size_t left;

    if (first >= shard.n_blocks) {
        return (struct tally__range){0};
    }
    assert(x->piece_blocks > 0);
    left = shard.n_blocks - first;
    return tally__range_of(&x->layout, shard.first_block + first,
                           left < x->piece_blocks ? left : x->piece_blocks);
}

size_t tally__exchange_n_pieces(const struct tally__exchange *x)
{
    size_t most_blocks = 0;

    for (int r = 0; r < x->lane->group->size; r++) {
        size_t n_blocks = tally__exchange_shard(x, r).n_blocks;

        most_blocks = n_blocks > most_blocks ? n_blocks : most_blocks;
    }
    most_blocks -= most_blocks < x->first_block ? most_blocks : x->first_block;
    return most_blocks / x->piece_blocks + (most_blocks % x->piece_blocks != 0);
}

/* The round of one phase in which lines go to far ranks, maybe in parts. */
static int round_in_parts(struct tally__exchange *x, size_t bytes)
{
    uint64_t begin_ns = tally__now_ns();

    x->call.word = tally__parts_choose(x->lane, bytes);
    TRY(tally__round_with(x->lane, &x->call, bytes));
    tally__parts_note(x->lane, bytes, tally__now_ns() - begin_ns);
    return TALLY_OK;
}

static int run_one_phase(struct tally__exchange *x)
{
    tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    struct tally__range all = tally__range_of(&x->layout, 0, tally__layout_blocks(&x->layout));
    size_t bytes = x->codec->ops->wire_bytes(x->codec, &all);
    void *result;

    if (all.n > 0) {
        (void)tally__phase(TALLY__EVENT_ENCODE);
        TRY(x->codec->ops->encode(x->codec, &all, x->data, tally__next_stage(x->lane)));
    }
    TRY(group->far && !tally__is_spread(group) && bytes >= TALLY__LEAST_PARTED
            ? round_in_parts(x, bytes)
            : tally__round_with(x->lane, &x->call, bytes));
    if (all.n == 0) {
        return TALLY_OK;
    }
    for (int r = 0; r < group->size; r++) {
        inputs[r] = tally__stage_of(x->lane, r, x->lane->round.number);
    }
    if (x->codec->ops->wire_is_data) {
        void *data = x->data;

        return x->codec->ops->reduce_direct(
            x->codec, &all,
            &(struct tally__direct){
                .n_in = (size_t)group->size, .in = inputs, .n_out = 1, .out = &data});
    }
    /* No rank reads our next stage before the next round: room for the encoded result. */
    result = tally__next_stage(x->lane);
    (void)tally__phase(TALLY__EVENT_REDUCE);
    x->codec->ops->reduce(x->codec, &all, (size_t)group->size, inputs, result);
    (void)tally__phase(TALLY__EVENT_DECODE);
    x->codec->ops->decode(x->codec, &all, result, x->data);
    return TALLY_OK;
}

/* The properties of the codec that ranks must agree on: its kind, its block, its divisor. */
static uint64_t codec_detail(const struct tally__codec *codec)
{
    float divisor = (float)codec->divisor;
    uint32_t bits;

    memcpy(&bits, &divisor, sizeof bits);
    return (uint64_t)bits << 32 | (uint64_t)(codec->block & 0xffff) << 16 |
           (uint64_t)codec->ops->id << 8;
}

void tally__exchange_count(const struct tally__exchange *x)
{
    const tally_group *group = x->lane->group;
    uint64_t bytes = 0;

    for (int r = 0; r < group->size; r++) {
        struct tally__range shard = tally__exchange_shard(x, r);
        size_t shard_bytes = x->codec->ops->wire_bytes(x->codec, &shard);

        if (r != group->rank) {
            bytes += shard_bytes;
        } else if (!x->codec->scatters) {
            bytes += (uint64_t)(group->size - 1) * shard_bytes;
        }
    }
    tally__count_sent(x->lane, bytes);
}

/* Piece c of all data, which all ranks get. */
static struct tally__range gathered_piece(const struct tally__exchange *x, size_t c)
{
    size_t n_blocks = tally__layout_blocks(&x->layout);
    size_t first = c * x->piece_blocks;
    size_t left = n_blocks - first;

    return tally__range_of(&x->layout, first, left < x->piece_blocks ? left : x->piece_blocks);
}

static int encode_gathered(const struct tally__exchange *x, size_t c)
{
    struct tally__range piece = gathered_piece(x, c);

    (void)tally__phase(TALLY__EVENT_ENCODE);
    return x->codec->ops->encode(x->codec, &piece, x->data, tally__next_stage(x->lane));
}

/* One phase, in pieces; the result is not encoded again. */
static int gather_near(struct tally__exchange *x)
{
    const void **inputs = x->lists.inputs;
    size_t n_blocks = tally__layout_blocks(&x->layout);
    size_t n_pieces;

    x->piece_blocks = TALLY__STAGE_BYTES / x->codec->ops->block_bytes(x->codec);
    n_pieces = n_blocks / x->piece_blocks + (n_blocks % x->piece_blocks != 0);
    TRY(n_pieces > 0 ? encode_gathered(x, 0) : TALLY_OK);
    TRY(tally__round(x->lane, &x->call));
    for (size_t c = 0; c < n_pieces; c++) {
        struct tally__range piece = gathered_piece(x, c);

        for (int r = 0; r < x->lane->group->size; r++) {
            inputs[r] = tally__stage_of(x->lane, r, x->lane->round.number);
        }
        if (c + 1 < n_pieces) {
            TRY(encode_gathered(x, c + 1));
        }
        (void)tally__phase(TALLY__EVENT_REDUCE);
        x->codec->ops->mean(x->codec, &piece, (size_t)x->lane->group->size, inputs, x->data);
        if (c + 1 < n_pieces) {
            TRY(tally__round(x->lane, &x->call));
        }
    }
    return TALLY_OK;
}

size_t tally__one_phase_bytes(const tally_group *group)
{
    return group->far ? tally__payload_bytes(group) : NEAR_ONE_PHASE_BYTES;
}

/* The lane's lists, for this exchange and its codec. */
static void take_lists(struct tally__exchange *x, const struct tally__codec *codec)
{
    void **lists = x->lane->scratch.lists;
    size_t size = (size_t)x->lane->group->size;

    x->lists = (struct tally__lists){.inputs = (const void **)lists,
                                     .told = (const void **)(lists + size),
                                     .outputs = lists + 2 * size,
                                     .run_inputs = (const void **)(lists + 3 * size),
                                     .run_outputs = lists + 4 * size,
                                     .codes = (const uint8_t **)(void *)(lists + 5 * size),
                                     .maps = lists + 6 * size};
    x->with_lists = *codec;
    x->with_lists.lists = &x->lists;
    x->codec = &x->with_lists;
}

static int exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n)
{
    struct tally__exchange x = {.lane = lane,
                                .call = call,
                                .data = data,
                                .layout = {n, codec->block, codec->segments, codec->shard_starts}};
    struct tally__range all = tally__range_of(&x.layout, 0, tally__layout_blocks(&x.layout));
    size_t wire_bytes = codec->ops->wire_bytes(codec, &all);
    struct tally__reduction *reduction = tally__reduction_here();

    if (reduction) {
        reduction->counts.offered_bytes += wire_bytes;
        reduction->counts.exchanges++;
    }
    take_lists(&x, codec);
    x.call.count = n;
    x.call.detail = codec_detail(codec);
    /* One phase cannot add the residual that only the owner of a shard has. */
    if (!codec->gathers &&
        (codec->scatters || codec->feedback || wire_bytes > tally__one_phase_bytes(lane->group))) {
        return (lane->group->far ? tally__two_phase_far : tally__two_phase_near)(&x);
    }
    if (codec->gathers) {
        TRY((lane->group->far ? tally__gather_far : gather_near)(&x));
    } else {
        TRY(run_one_phase(&x));
    }
    tally__count_sent(lane, (uint64_t)(lane->group->size - 1) * wire_bytes);
    return TALLY_OK;
}

int tally__exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n)
{
    int rc = exchange(lane, codec, call, data, n);

    (void)tally__phase(TALLY__EVENT_NONE);
    return rc;
}
