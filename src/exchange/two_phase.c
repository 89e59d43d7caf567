/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two-phase exchange. Words: data is cut into one shard per rank; the rank is that shard's
 * owner. A contribution is one rank's encoded data for one shard. In the first phase every rank
 * gives every owner its contribution; the owner reduces all of them, its own among them, in rank
 * order. In the second phase everybody takes the results. Sent by rank r: N + (W - 2) n_r elements
 * of the codec.
 *
 * Three ways, with the same bits:
 *   one phase  small data: everybody puts all of it in its stage and reduces all of it, one round;
 *   direct     all data is in group memory and the codec can do the whole way in registers: each
 *              owner reads its shard from all ranks and writes the result to all, two rounds;
 *   staged     pieces of every shard pass through the stages. In one turn, between two rounds, a
 *              rank encodes piece c + 1, reduces piece c and decodes piece c - 1.
 *
 * Only the thread that runs a lane's jobs enters with that lane.
 */
#include "exchange/two_phase.h"

#include <string.h>

#include "base/status.h"

/* Inputs of one reduction: a rank more than the largest world that fits a stage is not possible. */
#define MAX_INPUTS 4096
#define LINE_BYTES ((size_t)64)

struct exchange {
    tally_lane *lane;
    const struct tally__codec *codec;
    struct tally__call call;
    unsigned char *data;
    size_t n;
    size_t piece;       /* elements of a shard that pass in one turn */
    size_t piece_bytes; /* room for them in a stage */
    bool scatter_only;
    uint32_t first_round; /* the round that piece 0 passes in */
};

void tally__shard(size_t count, size_t block, int size, int rank, size_t *offset, size_t *n)
{
    size_t n_blocks = count / block + (count % block != 0);
    size_t share = n_blocks / (size_t)size;
    size_t rest = n_blocks % (size_t)size;
    size_t r = (size_t)rank;
    size_t first = (share * r + rest * r / (size_t)size) * block;
    size_t end = (share * (r + 1) + rest * (r + 1) / (size_t)size) * block;

    first = first < count ? first : count;
    end = end < count ? end : count;
    *offset = first;
    *n = end - first;
}

void tally_shard(size_t count, int size, int rank, size_t *offset, size_t *n)
{
    struct tally__codec plain = tally__codec_plain(TALLY_F32, TALLY_SUM);

    if (size < 1 || rank < 0 || rank >= size || !offset || !n) {
        return;
    }
    tally__shard(count, plain.block, size, rank, offset, n);
}

static unsigned char *element(const struct exchange *x, size_t i)
{
    return x->data + i * x->codec->element_bytes;
}

/* Piece number c of rank's shard: where it starts and how many elements it has, maybe none. */
static size_t piece_of(const struct exchange *x, int rank, size_t c, size_t *start)
{
    size_t offset;
    size_t n;

    tally__shard(x->n, x->codec->block, x->lane->group->size, rank, &offset, &n);
    *start = offset + c * x->piece;
    if (c * x->piece >= n) {
        return 0;
    }
    return n - c * x->piece < x->piece ? n - c * x->piece : x->piece;
}

/* Where, in `holder`'s stage, piece c of owner's shard lies. */
static unsigned char *staged(const struct exchange *x, int holder, int owner, size_t c)
{
    return tally__stage_of(x->lane, holder, x->first_round + (uint32_t)c) +
           (size_t)owner * x->piece_bytes;
}

static void encode_piece(const struct exchange *x, size_t c)
{
    int me = x->lane->group->rank;

    for (int owner = 0; owner < x->lane->group->size; owner++) {
        size_t start;
        size_t n = piece_of(x, owner, c, &start);

        if (n > 0) {
            x->codec->ops->encode(x->codec, n, element(x, start), staged(x, me, owner, c));
        }
    }
}

static void reduce_piece(const struct exchange *x, size_t c)
{
    const tally_group *group = x->lane->group;
    const void *inputs[MAX_INPUTS];
    unsigned char *own = staged(x, group->rank, group->rank, c);
    size_t start;
    size_t n = piece_of(x, group->rank, c, &start);

    if (n == 0) {
        return;
    }
    for (int r = 0; r < group->size; r++) {
        inputs[r] = staged(x, r, group->rank, c);
    }
    /* Nobody but the owner looks at this part of its stage before the next round. */
    x->codec->ops->reduce(x->codec, n, (size_t)group->size, inputs, own);
    if (x->scatter_only) {
        x->codec->ops->decode(x->codec, n, own, element(x, start));
    }
}

static void decode_piece(const struct exchange *x, size_t c)
{
    for (int owner = 0; owner < x->lane->group->size; owner++) {
        size_t start;
        size_t n = piece_of(x, owner, c, &start);

        if (n > 0) {
            x->codec->ops->decode(x->codec, n, staged(x, owner, owner, c), element(x, start));
        }
    }
}

/* The largest number of whole blocks of which one stage holds a piece per rank. */
static int choose_piece(struct exchange *x)
{
    size_t room = TALLY__STAGE_BYTES / (size_t)x->lane->group->size / LINE_BYTES * LINE_BYTES;
    size_t block_bytes = x->codec->ops->wire_bytes(x->codec, x->codec->block);

    if (block_bytes > room) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "a block of %zu elements (%zu bytes) does not fit for %d ranks",
                           x->codec->block, block_bytes, x->lane->group->size);
    }
    x->piece = room / block_bytes * x->codec->block;
    x->piece_bytes = room;
    return TALLY_OK;
}

static int run_staged(struct exchange *x)
{
    size_t longest = 0;
    size_t n_pieces;

    TRY(choose_piece(x));
    for (int r = 0; r < x->lane->group->size; r++) {
        size_t offset;
        size_t n;

        tally__shard(x->n, x->codec->block, x->lane->group->size, r, &offset, &n);
        longest = n > longest ? n : longest;
    }
    n_pieces = longest / x->piece + (longest % x->piece != 0);
    x->first_round = x->lane->round + 1;
    if (n_pieces > 0) {
        encode_piece(x, 0);
    }
    for (size_t c = 0; c < n_pieces + !x->scatter_only; c++) {
        TRY(tally__round(x->lane, &x->call));
        if (c + 1 < n_pieces) {
            encode_piece(x, c + 1);
        }
        if (c < n_pieces) {
            reduce_piece(x, c);
        }
        if (c > 0 && !x->scatter_only) {
            decode_piece(x, c - 1);
        }
    }
    return TALLY_OK;
}

static int run_direct(struct exchange *x)
{
    tally_group *group = x->lane->group;
    const void *inputs[MAX_INPUTS];
    void *outputs[MAX_INPUTS];
    size_t start;
    size_t n;

    tally__shard(x->n, x->codec->block, group->size, group->rank, &start, &n);
    for (int r = 0; r < group->size; r++) {
        unsigned char *data =
            tally__at(group->domain, group->domain_rank[r], tally__said(x->lane, r)->offset);

        outputs[r] = data + start * x->codec->element_bytes;
        inputs[r] = outputs[r];
    }
    if (x->scatter_only) {
        outputs[0] = outputs[group->rank];
    }
    if (n > 0) {
        x->codec->ops->reduce_direct(x->codec, n, (size_t)group->size, inputs,
                                     x->scatter_only ? 1 : (size_t)group->size, outputs);
    }
    return tally__round(x->lane, &x->call);
}

static int run_one_phase(struct exchange *x)
{
    tally_group *group = x->lane->group;
    const void *inputs[MAX_INPUTS];
    void *result;

    if (x->n > 0) {
        x->codec->ops->encode(x->codec, x->n, x->data, tally__next_stage(x->lane));
    }
    TRY(tally__round(x->lane, &x->call));
    if (x->n == 0) {
        return TALLY_OK;
    }
    for (int r = 0; r < group->size; r++) {
        inputs[r] = tally__stage_of(x->lane, r, x->lane->round);
    }
    /* Nobody looks at our next stage before the next round: room for the encoded result. */
    result = tally__next_stage(x->lane);
    x->codec->ops->reduce(x->codec, x->n, (size_t)group->size, inputs, result);
    x->codec->ops->decode(x->codec, x->n, result, x->data);
    return TALLY_OK;
}

/* Whether all ranks' data can be reached by all, as they said in the round just finished. */
static bool all_share(const tally_lane *lane)
{
    for (int r = 0; r < lane->group->size; r++) {
        if (tally__said(lane, r)->offset == TALLY__NOT_SHARED) {
            return false;
        }
    }
    return true;
}

static uint64_t offset_for_peers(const struct exchange *x)
{
    const tally_group *group = x->lane->group;

    if (group->always_stages || !x->codec->ops->reduce_direct ||
        !group->domain->ops->shares(group->domain, x->data, x->n * x->codec->element_bytes)) {
        return TALLY__NOT_SHARED;
    }
    return tally__offset_of(group->domain, x->data);
}

/* What ranks must agree on about the codec: its kind, its block, its divisor. */
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
        size_t offset;
        size_t n;
        size_t shard_bytes;

        tally__shard(x->n, x->codec->block, group->size, r, &offset, &n);
        shard_bytes = x->codec->ops->wire_bytes(x->codec, n);
        if (r != group->rank) {
            bytes += shard_bytes;
        } else if (!x->scatter_only) {
            bytes += (uint64_t)(group->size - 1) * shard_bytes;
        }
    }
    tally__count_sent(x->lane, bytes);
}

static int run_two_phase(struct exchange *x)
{
    x->call.offset = offset_for_peers(x);
    TRY(tally__round(x->lane, &x->call));
    count_two_phase(x);
    x->call.detail |= 1;
    return all_share(x->lane) ? run_direct(x) : run_staged(x);
}

static int run(struct exchange *x)
{
    size_t wire_bytes = x->codec->ops->wire_bytes(x->codec, x->n);
    uint64_t n_others = (uint64_t)(x->lane->group->size - 1);

    x->call.count = x->n;
    x->call.detail = codec_detail(x->codec);
    if (x->scatter_only || wire_bytes > TALLY__ONE_PHASE_BYTES) {
        return run_two_phase(x);
    }
    TRY(run_one_phase(x));
    tally__count_sent(x->lane, n_others * wire_bytes);
    return TALLY_OK;
}

int tally__exchange(tally_lane *lane, const struct tally__codec *codec, struct tally__call call,
                    void *data, size_t n)
{
    struct exchange x = {.lane = lane, .codec = codec, .call = call, .data = data, .n = n};

    return run(&x);
}

int tally__exchange_scatter(tally_lane *lane, const struct tally__codec *codec,
                            struct tally__call call, void *data, size_t n)
{
    struct exchange x = {
        .lane = lane, .codec = codec, .call = call, .data = data, .n = n, .scatter_only = true};

    return run(&x);
}
