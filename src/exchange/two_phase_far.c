/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two phases among ranks of which some are far. After one round, in which all ranks agree on the
 * call, pieces of the shards travel as messages:
 *
 *   going:  piece c of each other owner's shard, from this rank to its owner
 *   coming: piece c of this rank's shard, from the other ranks
 *   giving: the result of piece c of this rank's shard, to the other ranks
 *   taking: the results of piece c of the other owners' shards
 *
 * A rank sends piece c, reduces piece c - LAG and decodes piece c - 2 LAG in one turn, so that
 * messages are under way while it computes. Both sides of a message know its size, its order, and
 * that it comes. Plain data in group memory is sent from and received into its place. Near ranks
 * whose data lies in group memory take no messages: the owner reads their contribution there, and
 * writes the result there.
 *
 * A rank whose codec fails (a value that it cannot encode) still sends its messages, marked as
 * spoiled; ranks that see the mark compute nothing more and pass it on. The rank that failed
 * refuses the next round, so all ranks learn the reason there.
 *
 * Only the thread that runs the lane's jobs enters with that lane.
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "exchange/far_pieces.h"
#include "trace/ring.h"

#define LAG 2
_Static_assert(LAG < TALLY__N_WINDOWS, "a window is free when its turn comes again");

/* ---- the three parts of a turn ---- */

static int send_piece(struct tally__pieces *m, size_t c)
{
    for (int i = 1; i < m->x->lane->group->size; i++) {
        int r = tally__piece_peer(m, i);
        struct tally__range piece = tally__exchange_piece(m->x, r, c);

        if (piece.n > 0 && !tally__piece_reads_this(m, r) && !tally__piece_rode(m, r)) {
            TRY(tally__transfer_wait(m->x->lane, TALLY__GOING, c, r));
            tally__piece_encode(m, &piece, m->x->data, tally__piece_slot(m, TALLY__GOING, c, r));
            TRY(tally__piece_send(m, TALLY__GOING, c, r, &piece, r));
        }
    }
    return TALLY_OK;
}

/* Gets ready for the contributions to piece c of this rank's shard. */
static int receive_contributions(const struct tally__pieces *m, size_t c)
{
    struct tally__range piece = tally__exchange_piece(m->x, m->x->lane->group->rank, c);

    for (int i = 1; piece.n > 0 && i < m->x->lane->group->size; i++) {
        int r = tally__piece_peer(m, i);

        TRY(tally__piece_is_read(m, r) || tally__piece_rode(m, r)
                ? TALLY_OK
                : tally__piece_receive(m, TALLY__COMING, c, r, &piece));
    }
    return TALLY_OK;
}

/* Reduces plain data: each result goes to this rank's data, to the data of ranks whose memory this
 * one reaches, and, unless it is sent from its place, into the message. */
static int reduce_plain(struct tally__pieces *m, size_t c, const struct tally__range *piece)
{
    const struct tally__exchange *x = m->x;
    const tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    void **outputs = x->lists.outputs;
    struct tally__direct direct = {
        .n_in = (size_t)group->size, .ranks = group, .in = inputs, .out = outputs};

    outputs[direct.n_out++] = tally__piece_data(m, piece);
    for (int r = 0; r < group->size; r++) {
        if (r == group->rank) {
            inputs[r] = tally__piece_data(m, piece);
        } else if (tally__piece_is_read(m, r)) {
            unsigned char *theirs =
                tally__peer_data(x->lane, r) + piece->start * x->codec->element_bytes;

            inputs[r] = theirs;
            if (!x->codec->scatters) {
                outputs[direct.n_out++] = theirs;
            }
        } else {
            inputs[r] = tally__piece_contribution(m, c, r);
        }
    }
    if (!m->is_in_place && !x->codec->scatters) {
        outputs[direct.n_out++] = tally__piece_slot(m, TALLY__GIVING, c, group->rank);
    }
    return x->codec->ops->reduce_direct(x->codec, piece, &direct);
}

/* Reduces coded data. The contribution of a rank whose memory this one reaches is encoded here. */
static void reduce_coded(struct tally__pieces *m, size_t c, const struct tally__range *piece)
{
    const struct tally__exchange *x = m->x;
    const tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    unsigned char *result =
        tally__piece_behind_mark(m, tally__piece_slot(m, TALLY__GIVING, c, group->rank));

    for (int r = 0; r < group->size; r++) {
        unsigned char *slot = tally__piece_contribution(m, c, r);

        if (r == group->rank) {
            tally__piece_encode(m, piece, x->data, slot);
        } else if (tally__piece_is_read(m, r)) {
            tally__piece_encode(m, piece, tally__peer_data(x->lane, r), slot);
        }
        inputs[r] = tally__piece_behind_mark(m, slot);
    }
    if (m->is_spoiled) {
        return;
    }
    x->codec->ops->reduce(x->codec, piece, (size_t)group->size, inputs, result);
    x->codec->ops->decode(x->codec, piece, result, x->data);
    for (int r = 0; r < group->size && !x->codec->scatters; r++) {
        if (r != group->rank && tally__piece_is_read(m, r)) {
            x->codec->ops->decode(x->codec, piece, result, tally__peer_data(x->lane, r));
        }
    }
}

/* Waits for the contributions to piece c of this rank's shard. */
static int await_contributions(struct tally__pieces *m, size_t c)
{
    for (int i = 1; i < m->x->lane->group->size; i++) {
        int r = tally__piece_peer(m, i);

        if (!tally__piece_is_read(m, r)) {
            TRY(tally__transfer_wait(m->x->lane, TALLY__COMING, c, r));
            m->is_spoiled =
                m->is_spoiled ||
                (m->is_coded && tally__piece_is_marked(tally__piece_contribution(m, c, r)));
        }
    }
    return TALLY_OK;
}

/* Gets ready for the results of piece c. Data in place was sent from where they go. */
static int receive_results(const struct tally__pieces *m, size_t c)
{
    for (int i = 1; i < m->x->lane->group->size; i++) {
        int r = tally__piece_peer(m, i);
        struct tally__range piece = tally__exchange_piece(m->x, r, c);

        if (piece.n > 0 && !tally__piece_reads_this(m, r)) {
            TRY(m->is_in_place ? tally__transfer_wait(m->x->lane, TALLY__GOING, c, r) : TALLY_OK);
            TRY(tally__piece_receive(m, TALLY__TAKING, c, r, &piece));
        }
    }
    return TALLY_OK;
}

static int reduce_piece(struct tally__pieces *m, size_t c)
{
    const tally_group *group = m->x->lane->group;
    struct tally__range piece = tally__exchange_piece(m->x, group->rank, c);

    if (piece.n == 0) {
        return TALLY_OK;
    }
    TRY(await_contributions(m, c));
    for (int r = 0; r < group->size; r++) {
        TRY(tally__transfer_wait(m->x->lane, TALLY__GIVING, c, r));
    }
    (void)tally__phase(TALLY__EVENT_REDUCE);
    if (m->is_coded) {
        reduce_coded(m, c, &piece);
    } else {
        TRY(reduce_plain(m, c, &piece));
    }
    for (int i = 1; i < group->size && !m->x->codec->scatters; i++) {
        int r = tally__piece_peer(m, i);

        if (!tally__piece_is_read(m, r)) {
            TRY(tally__piece_send(m, TALLY__GIVING, c, r, &piece, group->rank));
        }
    }
    return TALLY_OK;
}

static int take_piece(struct tally__pieces *m, size_t c)
{
    const struct tally__codec *codec = m->x->codec;

    for (int i = 1; i < m->x->lane->group->size; i++) {
        int r = tally__piece_peer(m, i);
        struct tally__range piece = tally__exchange_piece(m->x, r, c);
        unsigned char *slot = tally__piece_slot(m, TALLY__TAKING, c, r);

        if (piece.n == 0 || tally__piece_reads_this(m, r)) {
            continue;
        }
        TRY(tally__transfer_wait(m->x->lane, TALLY__TAKING, c, r));
        m->is_spoiled = m->is_spoiled || (m->is_coded && tally__piece_is_marked(slot));
        if (!m->is_in_place && !m->is_spoiled) {
            (void)tally__phase(TALLY__EVENT_DECODE);
            codec->ops->decode(codec, &piece, tally__piece_behind_mark(m, slot), m->x->data);
        }
    }
    return TALLY_OK;
}

/* ---- the exchange ---- */

/* In each turn a rank first sends what the others wait for. The receives of a piece are posted one
 * turn before it is sent, and those of results after this rank's own. */
static int run(struct tally__pieces *m)
{
    size_t n = tally__exchange_n_pieces(m->x);
    bool scatters = m->x->codec->scatters;

    for (size_t c = 0; c < n + 2 * LAG; c++) {
        size_t reduced = c - LAG;
        bool reduces = c >= LAG && reduced < n;

        TRY(c < n ? send_piece(m, c) : TALLY_OK);
        TRY(c == 0 ? receive_contributions(m, 0) : TALLY_OK);
        TRY(reduces ? reduce_piece(m, reduced) : TALLY_OK);
        TRY(c + 1 < n ? receive_contributions(m, c + 1) : TALLY_OK);
        TRY(reduces && !scatters ? receive_results(m, reduced) : TALLY_OK);
        TRY(c >= 2 * LAG && !scatters ? take_piece(m, c - 2 * LAG) : TALLY_OK);
    }
    for (int r = 0; r < m->x->lane->group->size; r++) {
        for (size_t c = 0; c < TALLY__N_WINDOWS; c++) {
            TRY(tally__transfer_wait(m->x->lane, TALLY__GOING, c, r));
            TRY(tally__transfer_wait(m->x->lane, TALLY__GIVING, c, r));
        }
    }
    return TALLY_OK;
}

/* Gets memory, before the round: a lack of it is this rank's failure, which the others learn there.
 */
static int prepare(struct tally__pieces *m)
{
    const struct tally__exchange *x = m->x;
    size_t most = tally__message_most(x->lane->group);
    size_t block = x->codec->ops->block_bytes(x->codec);

    m->slot_bytes = ((most > block ? most : block) + TALLY__MARK_BYTES + 63) / 64 * 64;
    return tally__transfer_scratch(x->lane, tally__piece_n_slots(m) * m->slot_bytes, &m->scratch);
}

static void choose_pieces(struct tally__pieces *m)
{
    struct tally__exchange *x = m->x;
    size_t block = x->codec->ops->block_bytes(x->codec);

    x->piece_blocks = tally__message_agreed(x->lane) / block;
    x->piece_blocks = x->piece_blocks > 0 ? x->piece_blocks : 1;
}

/* The bytes of the largest shard, and of its mark. */
static size_t largest_shard(const struct tally__pieces *m)
{
    size_t most = 0;

    for (int r = 0; r < m->x->lane->group->size; r++) {
        struct tally__range shard = tally__exchange_shard(m->x, r);
        size_t bytes = tally__piece_bytes(m, &shard) + TALLY__MARK_BYTES;

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Prepares the contribution to the shard of a far rank, to go with the line. */
static int mount(const struct tally__pieces *m, int rank, struct tally__stream *rider)
{
    const struct tally__exchange *x = m->x;
    struct tally__range shard = tally__exchange_shard(x, rank);
    unsigned char *slot =
        m->is_in_place ? tally__piece_data(m, &shard) : tally__piece_slot(m, TALLY__GOING, 0, rank);

    *rider = (struct tally__stream){.send = slot};
    if (tally__is_near(x->lane->group, rank) || shard.n == 0) {
        return TALLY_OK;
    }
    if (!m->is_in_place) {
        TRY(x->codec->ops->encode(x->codec, &shard, x->data, tally__piece_behind_mark(m, slot)));
    }
    if (m->is_coded) {
        memset(slot, 0, TALLY__MARK_BYTES);
    }
    rider->send_bytes = tally__piece_bytes(m, &shard) + (m->is_coded ? TALLY__MARK_BYTES : 0);
    return TALLY_OK;
}

/* The most that goes with a line to a far rank: it must fit in a slot too. */
static size_t rider_bytes(const struct tally__pieces *m)
{
    size_t most = tally__rider_bytes(m->x->lane->group);

    return most < m->slot_bytes ? most : m->slot_bytes;
}

/* The round in which ranks agree. A failure before it is told in its place. */
static int agree(struct tally__pieces *m)
{
    struct tally__exchange *x = m->x;
    struct tally__stream *riders = tally__streams_of(x->lane);

    m->rides = largest_shard(m) <= rider_bytes(m);
    if (!m->rides) {
        TRY(tally__round(x->lane, &x->call));
        choose_pieces(m);
        return TALLY_OK;
    }
    (void)tally__parts_choose(x->lane, largest_shard(m));
    for (int r = 0; r < x->lane->group->size; r++) {
        TRY(mount(m, r, &riders[r]));
    }
    x->piece_blocks = tally__layout_blocks(&x->layout) + 1; /* of no data, too */
    return tally__round_each(x->lane, &x->call, riders);
}

/* Whether a rank reaches the next round only after messages that all others have sent since the
 * last one. What rides with a line is sent before: then a rank could be two rounds ahead. */
static bool awaits_all(const struct tally__pieces *m)
{
    const struct tally__exchange *x = m->x;

    if (m->rides && x->codec->scatters) {
        return false;
    }
    for (int r = 0; r < x->lane->group->size; r++) {
        if (tally__exchange_shard(x, r).n == 0) {
            return false;
        }
    }
    return true;
}

/* Near ranks have written to each other's data: no rank goes on before all have. */
static int end_direct(const struct tally__pieces *m)
{
    struct tally__exchange *x = m->x;

    x->call.detail |= 1;
    return awaits_all(m) ? tally__round_near(x->lane, &x->call) : tally__round(x->lane, &x->call);
}

int tally__two_phase_far(struct tally__exchange *x)
{
    const struct tally__codec_ops *ops = x->codec->ops;
    struct tally__pieces m = {.x = x, .is_coded = !ops->wire_is_data};
    size_t bytes = x->layout.n * x->codec->element_bytes;
    uint64_t offset = tally__offset_for_peers(x->lane->group, x->data, bytes);
    bool is_stateless = ops->reduce_direct && !ops->tell && !x->codec->feedback;
    uint64_t begin_ns;

    m.is_in_place = !m.is_coded && offset != TALLY__NOT_SHARED;
    TRY(prepare(&m));
    x->call.offset = is_stateless ? offset : TALLY__NOT_SHARED;
    x->call.word = tally__message_propose(x->lane, bytes);
    TRY(agree(&m));
    begin_ns = tally__now_ns();
    tally__exchange_count(x);
    TRY(run(&m));
    if (!m.rides) {
        tally__message_note(x->lane, bytes, tally__now_ns() - begin_ns);
    }
    /* Ranks without a near one count the round, too. */
    TRY(x->lane->group->far->has_near && is_stateless ? end_direct(&m) : TALLY_OK);
    return tally__outcome_return(&m.outcome);
}

/* Every piece goes to all ranks as a message; the results are not encoded. */
int tally__gather_far(struct tally__exchange *x)
{
    struct tally__pieces m = {.x = x, .is_coded = true};
    const tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    size_t n_blocks = tally__layout_blocks(&x->layout);

    TRY(prepare(&m));
    x->call.word = tally__message_propose(x->lane, x->layout.n * x->codec->element_bytes);
    TRY(tally__round(x->lane, &x->call));
    choose_pieces(&m);
    for (size_t first = 0; first < n_blocks; first += x->piece_blocks) {
        size_t left = n_blocks - first;
        struct tally__range piece =
            tally__range_of(&x->layout, first, left < x->piece_blocks ? left : x->piece_blocks);

        tally__piece_encode(&m, &piece, x->data,
                            tally__piece_slot(&m, TALLY__GOING, 0, group->rank));
        for (int i = 1; i < group->size; i++) {
            TRY(tally__piece_send(&m, TALLY__GOING, 0, tally__piece_peer(&m, i), &piece,
                                  group->rank));
            TRY(tally__piece_receive(&m, TALLY__COMING, 0, tally__piece_peer(&m, i), &piece));
        }
        for (int r = 0; r < group->size; r++) {
            unsigned char *slot =
                tally__piece_slot(&m, r == group->rank ? TALLY__GOING : TALLY__COMING, 0, r);

            TRY(tally__transfer_wait(x->lane, TALLY__COMING, 0, r));
            TRY(tally__transfer_wait(x->lane, TALLY__GOING, 0, r));
            m.is_spoiled = m.is_spoiled || (r != group->rank && tally__piece_is_marked(slot));
            inputs[r] = tally__piece_behind_mark(&m, slot);
        }
        if (!m.is_spoiled) {
            (void)tally__phase(TALLY__EVENT_REDUCE);
            x->codec->ops->mean(x->codec, &piece, (size_t)group->size, inputs, x->data);
        }
    }
    return tally__outcome_return(&m.outcome);
}
