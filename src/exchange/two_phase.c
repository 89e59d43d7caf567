/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two-phase exchange. Data is divided into one shard per rank; that rank is the owner of the
 * shard. A contribution is one rank's encoded data for one shard. In the first phase every rank
 * sends each owner its contribution, and the owner reduces all contributions, its own included, in
 * rank order. In the second phase every rank takes the results. Rank r sends N + (W - 2) n_r
 * elements of the codec.
 *
 * A codec that gathers has one phase for data of any length: every rank gets all contributions and
 * adds them, and the result is not encoded. For all other codecs there are three ways, with the
 * same bits:
 *
 *   one phase: small data; every rank writes all of it to its stage and reduces it; one round.
 *
 *   direct: all data is in group memory, and the codec can work without a wire format; each owner
 *     reads its shard from all ranks and writes the result to all; two rounds.
 *
 *   staged: pieces of every shard go through the stages. Between two rounds a rank encodes piece
 *     c + 1, reduces piece c and decodes piece c - 1. With a carrier, it encodes and sends piece
 *     c + 1 before it waits for the round of piece c.
 *
 * Only the thread that runs the lane's jobs enters with that lane.
 */
#include "exchange/two_phase.h"

#include <assert.h>
#include <string.h>

#include "base/status.h"
#include "comm/parcel.h"

#define LINE_BYTES ((size_t)64)
/* The same limit as TALLY__ONE_PHASE_BYTES, between two ranks where bytes travel: one phase sends
 * the bytes of two phases in one round less. Not sensitive: limits up to 2 MiB measured the same.
 */
#define CARRIED_ONE_PHASE_BYTES ((size_t)64 * 1024)

struct exchange {
    tally_lane *lane;
    const struct tally__codec *codec;
    struct tally__call call;
    unsigned char *data;
    struct tally__layout layout;
    size_t piece_blocks;  /* blocks of a shard per turn */
    size_t piece_bytes;   /* room for them in a stage */
    uint64_t first_round; /* the round of piece 0 */
    struct tally__lists lists;
    struct tally__codec with_lists; /* the caller's codec, and these */
};

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

static struct tally__range shard_of(const struct exchange *x, int rank)
{
    return tally__shard_of(&x->layout, x->lane->group->size, rank);
}

/* Piece number c of rank's shard, maybe empty. */
static struct tally__range piece_of(const struct exchange *x, int rank, size_t c)
{
    struct tally__range shard = shard_of(x, rank);
    size_t first = c * x->piece_blocks;
    size_t n_blocks;

    if (first >= shard.n_blocks) {
        return (struct tally__range){0};
    }
    assert(x->piece_blocks > 0);
    n_blocks = shard.n_blocks - first;
    return tally__range_of(&x->layout, shard.first_block + first,
                           n_blocks < x->piece_blocks ? n_blocks : x->piece_blocks);
}

/* The address in holder's stage of piece c of owner's shard. */
static unsigned char *staged(const struct exchange *x, int holder, int owner, size_t c)
{
    assert(owner >= 0 && (size_t)(owner + 1) * x->piece_bytes <= x->lane->stage_bytes);
    return tally__stage_of(x->lane, holder, x->first_round + c) + (size_t)owner * x->piece_bytes;
}

/* Whether this rank's own shard goes through its stage: only where the codec changes it. */
static bool is_staged(const struct exchange *x, int owner)
{
    return owner != x->lane->group->rank || !x->codec->ops->wire_is_data;
}

/* Sends piece c of a shard, which is in our stage, to its owner, or, if we are the owner, to all.
 */
static int send_piece(const struct exchange *x, int owner, size_t c,
                      const struct tally__range *piece)
{
    uint64_t round = x->first_round + c;
    size_t offset = (size_t)owner * x->piece_bytes;
    size_t bytes;

    if (!tally__carries(x->lane)) {
        return TALLY_OK;
    }
    bytes = x->codec->ops->wire_bytes(x->codec, piece);
    assert(bytes <= x->piece_bytes);
    return owner == x->lane->group->rank ? tally__parcel_to_all(x->lane, round, offset, bytes)
                                         : tally__parcel(x->lane, owner, round, offset, bytes);
}

static int encode_piece(const struct exchange *x, size_t c)
{
    int me = x->lane->group->rank;

    /* Begin with the ranks after ours: then no owner gets all contributions at once. */
    for (int i = 1; i <= x->lane->group->size; i++) {
        int owner = (me + i) % x->lane->group->size;
        struct tally__range piece = piece_of(x, owner, c);

        if (piece.n > 0 && is_staged(x, owner)) {
            TRY(x->codec->ops->encode(x->codec, &piece, x->data, staged(x, me, owner, c)));
            TRY(owner != me ? send_piece(x, owner, c, &piece) : TALLY_OK);
        }
    }
    return TALLY_OK;
}

static int reduce_own(const struct exchange *x, size_t c)
{
    const tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    unsigned char *own = staged(x, group->rank, group->rank, c);
    struct tally__range piece = piece_of(x, group->rank, c);
    unsigned char *data = x->data + piece.start * x->codec->element_bytes;

    if (piece.n == 0) {
        return TALLY_OK;
    }
    for (int r = 0; r < group->size; r++) {
        inputs[r] = staged(x, r, group->rank, c);
    }
    /* Only the owner reads this part of its stage before the next round. */
    if (x->codec->ops->wire_is_data) {
        void *outputs[2] = {data, own};
        const struct tally__direct direct = {.n_in = (size_t)group->size,
                                             .ranks = group,
                                             .in = inputs,
                                             .n_out = x->codec->scatters ? 1 : 2,
                                             .out = outputs};

        inputs[group->rank] = data;
        return x->codec->ops->reduce_direct(x->codec, &piece, &direct);
    }
    x->codec->ops->reduce(x->codec, &piece, (size_t)group->size, inputs, own);
    if (x->codec->scatters) {
        x->codec->ops->decode(x->codec, &piece, own, x->data);
    }
    return TALLY_OK;
}

static int reduce_piece(const struct exchange *x, size_t c)
{
    int me = x->lane->group->rank;
    struct tally__range piece = piece_of(x, me, c);

    TRY(reduce_own(x, c));
    return x->codec->scatters || piece.n == 0 ? TALLY_OK : send_piece(x, me, c, &piece);
}

static void decode_piece(const struct exchange *x, size_t c)
{
    for (int owner = 0; owner < x->lane->group->size; owner++) {
        struct tally__range piece = piece_of(x, owner, c);

        if (piece.n > 0 && is_staged(x, owner)) {
            x->codec->ops->decode(x->codec, &piece, staged(x, owner, owner, c), x->data);
        }
    }
}

/* Sets the piece to the largest number of whole blocks of which a stage holds one piece per rank;
 * may be 0. */
static void choose_piece(struct exchange *x)
{
    size_t room = x->lane->stage_bytes / (size_t)x->lane->group->size / LINE_BYTES * LINE_BYTES;

    x->piece_blocks = room / x->codec->ops->block_bytes(x->codec);
    x->piece_bytes = room;
}

/*
 * The round of piece c. If pieces travel, the next one is sent before this rank waits for the
 * others: they receive it while ranks agree on this one, and the line is never idle.
 */
static int meet_for(struct exchange *x, size_t c, size_t n_pieces)
{
    int rc = TALLY_OK;
    int met;

    if (!tally__carries(x->lane)) {
        return tally__round(x->lane, &x->call);
    }
    TRY(tally__arrive(x->lane, &x->call));
    if (c + 1 < n_pieces) {
        rc = encode_piece(x, c + 1);
    }
    met = tally__await(x->lane);
    return rc == TALLY_OK ? met : rc;
}

/* started: piece 0 has travelled in the round just finished. */
static int run_staged(struct exchange *x, bool started)
{
    size_t most_blocks = 0;
    size_t n_pieces;

    if (x->piece_blocks == 0) {
        return tally__fail(TALLY_UNSUPPORTED, "a block of %zu elements does not fit for %d ranks",
                           x->codec->block, x->lane->group->size);
    }
    for (int r = 0; r < x->lane->group->size; r++) {
        size_t n_blocks = shard_of(x, r).n_blocks;

        most_blocks = n_blocks > most_blocks ? n_blocks : most_blocks;
    }
    n_pieces = most_blocks / x->piece_blocks + (most_blocks % x->piece_blocks != 0);
    if (!started) {
        x->first_round = x->lane->round.number + 1;
        TRY(encode_piece(x, 0));
    }
    for (size_t c = 0; c < n_pieces + !x->codec->scatters; c++) {
        bool met_already = c == 0 && started;

        TRY(met_already ? TALLY_OK : meet_for(x, c, n_pieces));
        if (c + 1 < n_pieces && (met_already || !tally__carries(x->lane))) {
            TRY(encode_piece(x, c + 1));
        }
        if (c < n_pieces) {
            TRY(reduce_piece(x, c));
        }
        if (c > 0 && !x->codec->scatters) {
            decode_piece(x, c - 1);
        }
    }
    return TALLY_OK;
}

static int run_direct(struct exchange *x)
{
    tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    const void **told = x->lists.told;
    void **outputs = x->lists.outputs;
    struct tally__range shard = shard_of(x, group->rank);
    const struct tally__direct direct = {.n_in = (size_t)group->size,
                                         .ranks = group,
                                         .in = inputs,
                                         .n_out = x->codec->scatters ? 1 : (size_t)group->size,
                                         .out = outputs,
                                         .told = told};

    for (int r = 0; r < group->size; r++) {
        unsigned char *data = tally__peer_data(x->lane, r);

        outputs[r] = data + shard.start * x->codec->element_bytes;
        inputs[r] = outputs[r];
        told[r] = tally__stage_of(x->lane, r, x->lane->round.number);
    }
    if (x->codec->scatters) {
        outputs[0] = outputs[group->rank];
    }
    if (shard.n > 0) {
        TRY(x->codec->ops->reduce_direct(x->codec, &shard, &direct));
    }
    return tally__round(x->lane, &x->call);
}

/* All ranks will read this range from our next stage. */
static int send_next_stage(const struct exchange *x, const struct tally__range *range)
{
    if (!tally__carries(x->lane)) {
        return TALLY_OK;
    }
    return tally__parcel_to_all(x->lane, x->lane->round.number + 1, 0,
                                x->codec->ops->wire_bytes(x->codec, range));
}

static int run_one_phase(struct exchange *x)
{
    tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    struct tally__range all = tally__range_of(&x->layout, 0, tally__layout_blocks(&x->layout));
    void *result;

    if (all.n > 0) {
        TRY(x->codec->ops->encode(x->codec, &all, x->data, tally__next_stage(x->lane)));
        TRY(send_next_stage(x, &all));
    }
    TRY(tally__round(x->lane, &x->call));
    if (all.n == 0) {
        return TALLY_OK;
    }
    for (int r = 0; r < group->size; r++) {
        inputs[r] = tally__stage_of(x->lane, r, x->lane->round.number);
    }
    /* No rank reads our next stage before the next round: room for the encoded result. */
    result = tally__next_stage(x->lane);
    x->codec->ops->reduce(x->codec, &all, (size_t)group->size, inputs, result);
    x->codec->ops->decode(x->codec, &all, result, x->data);
    return TALLY_OK;
}

/* The offset at which others find the data, if they can use it; also publishes what they must know.
 */
static uint64_t offset_for_peers(const struct exchange *x)
{
    const struct tally__codec *codec = x->codec;
    uint64_t offset = TALLY__NOT_SHARED;

    if (codec->ops->reduce_direct && !codec->feedback) {
        offset =
            tally__offset_for_peers(x->lane->group, x->data, x->layout.n * codec->element_bytes);
    }
    if (offset != TALLY__NOT_SHARED && codec->ops->tell &&
        !codec->ops->tell(codec, x->data, tally__next_stage(x->lane))) {
        offset = TALLY__NOT_SHARED;
    }
    return offset;
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

static void count_two_phase(struct exchange *x)
{
    const tally_group *group = x->lane->group;
    uint64_t bytes = 0;

    for (int r = 0; r < group->size; r++) {
        struct tally__range shard = shard_of(x, r);
        size_t shard_bytes = x->codec->ops->wire_bytes(x->codec, &shard);

        if (r != group->rank) {
            bytes += shard_bytes;
        } else if (!x->codec->scatters) {
            bytes += (uint64_t)(group->size - 1) * shard_bytes;
        }
    }
    tally__count_sent(x->lane, bytes);
}

/* Whether no rank's data is reachable for the others. */
static bool none_shares(const tally_lane *lane)
{
    for (int r = 0; r < lane->group->size; r++) {
        if (tally__said(lane, r)->offset != TALLY__NOT_SHARED) {
            return false;
        }
    }
    return true;
}

static int run_two_phase(struct exchange *x)
{
    choose_piece(x);
    x->call.offset = offset_for_peers(x);
    /* Unreachable data will be staged in any case: its first piece travels in the round in which
     * the ranks learn that. */
    if (x->call.offset == TALLY__NOT_SHARED && x->piece_blocks > 0) {
        x->first_round = x->lane->round.number + 1;
        TRY(encode_piece(x, 0));
    }
    TRY(tally__round(x->lane, &x->call));
    count_two_phase(x);
    x->call.detail |= 1;
    return tally__all_share(x->lane) ? run_direct(x) : run_staged(x, none_shares(x->lane));
}

/* Piece c of all data, which all ranks get. */
static struct tally__range gathered_piece(const struct exchange *x, size_t c)
{
    size_t n_blocks = tally__layout_blocks(&x->layout);
    size_t first = c * x->piece_blocks;
    size_t left = n_blocks - first;

    return tally__range_of(&x->layout, first, left < x->piece_blocks ? left : x->piece_blocks);
}

static int encode_gathered(const struct exchange *x, size_t c)
{
    struct tally__range piece = gathered_piece(x, c);

    TRY(x->codec->ops->encode(x->codec, &piece, x->data, tally__next_stage(x->lane)));
    return send_next_stage(x, &piece);
}

/* One phase, in pieces; the result is not encoded again. */
static int run_gathered(struct exchange *x)
{
    const void **inputs = x->lists.inputs;
    size_t n_blocks = tally__layout_blocks(&x->layout);
    size_t n_pieces;

    x->piece_blocks = x->lane->stage_bytes / x->codec->ops->block_bytes(x->codec);
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
        x->codec->ops->mean(x->codec, &piece, (size_t)x->lane->group->size, inputs, x->data);
        if (c + 1 < n_pieces) {
            TRY(tally__round(x->lane, &x->call));
        }
    }
    return TALLY_OK;
}

/* Between two ranks one phase sends as much as two phases; where bytes travel, a round is the cost.
 */
static size_t one_phase_bytes(const tally_lane *lane)
{
    return tally__carries(lane) && lane->group->size == 2 ? CARRIED_ONE_PHASE_BYTES
                                                          : TALLY__ONE_PHASE_BYTES;
}

/* The lane's lists, for this exchange and its codec. */
static void take_lists(struct exchange *x, const struct tally__codec *codec)
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

int tally__exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n)
{
    struct exchange x = {.lane = lane,
                         .call = call,
                         .data = data,
                         .layout = {n, codec->block, codec->segments, codec->shard_starts}};
    struct tally__range all = tally__range_of(&x.layout, 0, tally__layout_blocks(&x.layout));
    size_t wire_bytes = codec->ops->wire_bytes(codec, &all);

    take_lists(&x, codec);
    x.call.count = n;
    x.call.detail = codec_detail(codec);
    /* One phase cannot add the residual that only the owner of a shard has. */
    if (!codec->gathers &&
        (codec->scatters || codec->feedback || wire_bytes > one_phase_bytes(lane))) {
        return run_two_phase(&x);
    }
    TRY(codec->gathers ? run_gathered(&x) : run_one_phase(&x));
    tally__count_sent(lane, (uint64_t)(lane->group->size - 1) * wire_bytes);
    return TALLY_OK;
}
