/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two phases among ranks that reach each other's memory, in two ways:
 *
 *   direct: all data is in group memory, and the codec can work without a wire format; each owner
 *     reads its shard from all ranks and writes the result to all; two rounds.
 *
 *   staged: pieces of every shard go through the stages. Between two rounds a rank encodes piece
 *     c + 1, reduces piece c and decodes piece c - 1. Stages are small enough for the caches, so
 *     there are many rounds, and each needs all ranks. If rounds come late, because other
 *     programs take the CPUs of ranks, the rest of the data goes through wide stages, in fewer
 *     rounds. So do exchanges for which they were measured to be faster: some machines are slow to
 *     write lines that are in the cache of the other CPU. The bits do not depend on it.
 *
 * Only the thread that runs the lane's jobs enters with that lane.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/status.h"
#include "exchange/phases.h"
#include "trace/ring.h"

#define LINE_BYTES ((size_t)64)

/* A wide stage, for up to 8 ranks; more ranks share the same total. */
#define WIDE_BYTES ((size_t)4 << 20)
#define WIDE_TOTAL_BYTES ((size_t)32 << 20)
/* Less data, in stages of the usual size, is not worth it. */
#define MIN_WIDE_STAGES 8
/* A wait in a round that is late: this long, and this many times as long as the work before it.
 * Ranks have equal work, so such a wait is for a rank without a CPU. */
#define LATE_NS 300000u
#define LATE_TIMES 2
/* Rounds are late if one round in LATE_ROUNDS is, more than once. */
#define LATE_ROUNDS 16
/* Exchanges with wide stages after that; then the usual ones are tried again, and if they are slow
 * again, there are twice as many. Rounds may be late by chance, and wide stages leave the caches.
 */
#define MIN_WIDE_USES 2
#define MAX_WIDE_USES 32
/* An exchange of plain data is slow if it takes more CPU time than this for a byte: then wide
 * stages are measured, and again after N_SLOW slow exchanges. The measurements decide whether they
 * are used. */
#define SLOW_NS_PER_BYTE 0.25
#define N_SLOW 32
/* Pieces that are measured, of the usual size. */
#define N_MEASURED 8
/* The usual stages must take this many times as long: one exchange may be slow by chance. */
#define WIDE_TIMES 1.5

/* Data that goes through the stages. */
struct staging {
    struct tally__exchange *x;
    size_t stage_bytes;
    size_t piece_bytes;   /* room for a piece in a stage */
    uint64_t first_round; /* the round of piece 0 */
    uint64_t resumed_ns;  /* the end of the last round; 0: none yet */
    uint64_t cpu_ns;      /* CPU time of the pieces that are measured, and their bytes */
    size_t cpu_bytes;
    bool is_wide;
    bool is_new; /* wide stages that this exchange has allocated */
};

/* The address in holder's stage of piece c of owner's shard. */
static unsigned char *staged(const struct staging *s, int holder, int owner, size_t c)
{
    const tally_lane *lane = s->x->lane;
    uint64_t round = s->first_round + c;
    size_t at = (size_t)owner * s->piece_bytes;

    assert(owner >= 0 && at + s->piece_bytes <= s->stage_bytes);
    if (s->is_wide) {
        /* Reused by the same rules as the other stages. */
        return (unsigned char *)lane->wide.of[holder] + round % TALLY__N_STAGES * s->stage_bytes +
               at;
    }
    return tally__stage_of(lane, holder, round) + at;
}

/* Whether this rank's own shard goes through its stage: only where the codec changes it. */
static bool is_staged(const struct tally__exchange *x, int owner)
{
    return owner != x->lane->group->rank || !x->codec->ops->wire_is_data;
}

static int encode_piece(const struct staging *s, size_t c)
{
    const struct tally__exchange *x = s->x;
    int me = x->lane->group->rank;

    (void)tally__phase(TALLY__EVENT_ENCODE);
    for (int owner = 0; owner < x->lane->group->size; owner++) {
        struct tally__range piece = tally__exchange_piece(x, owner, c);

        if (piece.n > 0 && is_staged(x, owner)) {
            TRY(x->codec->ops->encode(x->codec, &piece, x->data, staged(s, me, owner, c)));
        }
    }
    return TALLY_OK;
}

static int reduce_piece(const struct staging *s, size_t c)
{
    const struct tally__exchange *x = s->x;
    const tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    unsigned char *own = staged(s, group->rank, group->rank, c);
    struct tally__range piece = tally__exchange_piece(x, group->rank, c);
    unsigned char *data = x->data + piece.start * x->codec->element_bytes;

    if (piece.n == 0) {
        return TALLY_OK;
    }
    (void)tally__phase(TALLY__EVENT_REDUCE);
    for (int r = 0; r < group->size; r++) {
        inputs[r] = staged(s, r, group->rank, c);
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

static void decode_piece(const struct staging *s, size_t c)
{
    const struct tally__exchange *x = s->x;

    (void)tally__phase(TALLY__EVENT_DECODE);
    for (int owner = 0; owner < x->lane->group->size; owner++) {
        struct tally__range piece = tally__exchange_piece(x, owner, c);

        if (piece.n > 0 && is_staged(x, owner)) {
            x->codec->ops->decode(x->codec, &piece, staged(s, owner, owner, c), x->data);
        }
    }
}

/* The piece is the largest number of whole blocks of which a stage holds one piece per rank; may be
 * 0. */
static struct staging prepare(struct tally__exchange *x, size_t stage_bytes)
{
    size_t room = stage_bytes / (size_t)x->lane->group->size / LINE_BYTES * LINE_BYTES;

    x->piece_blocks = room / x->codec->ops->block_bytes(x->codec);
    return (struct staging){.x = x,
                            .stage_bytes = stage_bytes,
                            .piece_bytes = room,
                            .first_round = x->lane->round.number + 1};
}

/* ---- wide stages ---- */

/* The size of a wide stage; no larger than the others if there are too many ranks. */
static size_t wide_bytes(const tally_group *group)
{
    size_t share = WIDE_TOTAL_BYTES / (size_t)group->size / LINE_BYTES * LINE_BYTES;

    return share < WIDE_BYTES ? share : WIDE_BYTES;
}

/* Asks for wide stages in the next exchanges. */
static void want_wide(struct tally__lane_wide *wide)
{
    wide->n_uses = wide->n_last > 0 ? 2 * wide->n_last : MIN_WIDE_USES;
    wide->n_uses = wide->n_uses < MAX_WIDE_USES ? wide->n_uses : MAX_WIDE_USES;
    wide->n_last = wide->n_uses;
}

/* Notes the speed of an exchange with the stages that it used, and asks for wide ones if they were
 * faster the last time. In CPU time, because a backward pass may run on the same CPU. Coded data is
 * not compared: each codec has its own speed. */
static void note_speed(const struct staging *s)
{
    struct tally__lane_wide *wide = &s->x->lane->wide;
    double ns_per_byte = s->cpu_bytes > 0 ? (double)s->cpu_ns / (double)s->cpu_bytes : 0;
    double limit = wide->ns_per_byte > 0 ? WIDE_TIMES * wide->ns_per_byte : SLOW_NS_PER_BYTE;

    if (s->is_wide) {
        wide->ns_per_byte = s->is_new || s->cpu_bytes == 0 ? wide->ns_per_byte : ns_per_byte;
        wide->n_slow = 0;
        return;
    }
    wide->n_slow += ns_per_byte > SLOW_NS_PER_BYTE;
    if (ns_per_byte > limit || wide->n_slow >= N_SLOW) {
        want_wide(wide);
    } else if (wide->n_uses == 0) {
        wide->n_last = 0;
    }
}

/* A round of the usual stages. Notes whether this rank waited long in it, and in the next round
 * says whether it wants wide stages. */
static int round_noted(struct staging *s)
{
    struct tally__exchange *x = s->x;
    struct tally__lane_wide *wide = &x->lane->wide;
    uint64_t begin_ns = tally__now_ns();
    uint64_t work_ns = s->resumed_ns > 0 ? begin_ns - s->resumed_ns : 0;
    uint64_t waited_ns;

    TRY(tally__round(x->lane, &x->call));
    s->resumed_ns = tally__now_ns();
    waited_ns = s->resumed_ns - begin_ns;
    if (waited_ns > LATE_NS && waited_ns > LATE_TIMES * work_ns) {
        wide->slowness += LATE_ROUNDS;
    } else if (wide->slowness > 0) {
        wide->slowness--;
    }
    if (wide->slowness > LATE_ROUNDS) {
        wide->slowness = 0;
        want_wide(wide);
    }
    x->call.word = wide->n_uses > 0;
    return TALLY_OK;
}

/* Whether all ranks should use wide stages: known to all of them since the round just finished. */
static bool is_wide_wanted(const struct tally__exchange *x)
{
    const tally_lane *lane = x->lane;
    bool is_wanted = false;

    for (int r = 0; r < lane->group->size; r++) {
        is_wanted = is_wanted || tally__said(lane, r)->word != 0;
    }
    return is_wanted && !lane->wide.is_refused && wide_bytes(lane->group) > 2 * TALLY__STAGE_BYTES;
}

/* Allocates the wide stages of all ranks, or remembers that a rank has no memory for them. */
static int get_wide(tally_lane *lane, bool *is_new)
{
    size_t bytes = wide_bytes(lane->group);
    bool got;

    *is_new = false;
    if (lane->wide.bytes > 0 || lane->wide.is_refused) {
        return TALLY_OK;
    }
    TRY(tally__memory_in_job(lane, TALLY__N_STAGES * bytes, lane->wide.of, &got));
    lane->wide.bytes = got ? bytes : 0;
    lane->wide.is_refused = !got;
    *is_new = got;
    return TALLY_OK;
}

/* ---- the pieces ---- */

/* Whether the work of a turn is measured. Of the usual stages only the first whole turns, in which
 * one piece is encoded, one reduced and one decoded, because reading the clock takes time; of wide
 * ones, which are few, all. */
static bool is_measured(const struct staging *s, size_t c, size_t n_pieces)
{
    bool is_whole = c > 0 && c <= N_MEASURED && c + 1 < n_pieces;

    return s->x->codec->ops->wire_is_data && !s->x->codec->scatters && (s->is_wide || is_whole);
}

static size_t bytes_of_piece(const struct tally__exchange *x, size_t c)
{
    size_t n = 0;

    for (int owner = 0; owner < x->lane->group->size; owner++) {
        n += tally__exchange_piece(x, owner, c).n;
    }
    return n * x->codec->element_bytes;
}

/* The work between two rounds: piece c + 1 is encoded, c reduced and c - 1 decoded, if they exist.
 */
static int take_turn(struct staging *s, size_t c, size_t n_pieces)
{
    struct tally__exchange *x = s->x;
    bool counts = is_measured(s, c, n_pieces);
    uint64_t begin_ns = counts ? tally__thread_ns() : 0;

    TRY(c + 1 < n_pieces ? encode_piece(s, c + 1) : TALLY_OK);
    TRY(c < n_pieces ? reduce_piece(s, c) : TALLY_OK);
    if (c > 0 && !x->codec->scatters) {
        decode_piece(s, c - 1);
    }
    if (counts) {
        s->cpu_ns += tally__thread_ns() - begin_ns;
        s->cpu_bytes += c < n_pieces ? bytes_of_piece(x, c) : 0;
    }
    return TALLY_OK;
}

/* Sends pieces 0 to n_pieces - 1. started: piece 0 was encoded before the round just finished.
 * Returns in n_done how many were sent before the ranks decided to use wide stages. */
static int send_pieces(struct staging *s, size_t n_pieces, bool started, size_t *n_done)
{
    struct tally__exchange *x = s->x;

    for (size_t c = 0; c < n_pieces + !x->codec->scatters; c++) {
        if (c > 0 || !started) {
            TRY(s->is_wide ? tally__round(x->lane, &x->call) : round_noted(s));
        }
        if (!s->is_wide && n_pieces > c + MIN_WIDE_STAGES && is_wide_wanted(x)) {
            n_pieces = c + 1;
        }
        TRY(take_turn(s, c, n_pieces));
    }
    *n_done = n_pieces;
    return TALLY_OK;
}

/* The pieces from n_done on go through wide stages. */
static int resume_wide(struct staging *s, size_t n_done)
{
    struct tally__exchange *x = s->x;
    struct tally__lane_wide *wide = &x->lane->wide;
    uint64_t begin_ns;
    bool is_new;

    x->first_block = n_done * x->piece_blocks;
    TRY(get_wide(x->lane, &is_new));
    *s = prepare(x, wide->bytes > 0 ? wide->bytes : TALLY__STAGE_BYTES);
    s->is_wide = wide->bytes > 0;
    s->is_new = is_new;
    wide->n_uses -= wide->n_uses > 0;
    begin_ns = tally__thread_ns();
    TRY(encode_piece(s, 0));
    s->cpu_ns = tally__thread_ns() - begin_ns;
    return send_pieces(s, tally__exchange_n_pieces(x), false, &n_done);
}

static int run_staged(struct staging *s, bool started)
{
    struct tally__exchange *x = s->x;
    size_t n_pieces;
    size_t n_done;

    if (x->piece_blocks == 0) {
        return tally__fail(TALLY_UNSUPPORTED, "a block of %zu elements does not fit for %d ranks",
                           x->codec->block, x->lane->group->size);
    }
    n_pieces = tally__exchange_n_pieces(x);
    if (!started) {
        s->first_round = x->lane->round.number + 1;
        TRY(encode_piece(s, 0));
    }
    TRY(send_pieces(s, n_pieces, started, &n_done));
    if (n_done < n_pieces) {
        TRY(resume_wide(s, n_done));
    }
    note_speed(s);
    return TALLY_OK;
}

static int run_direct(struct tally__exchange *x)
{
    tally_group *group = x->lane->group;
    const void **inputs = x->lists.inputs;
    const void **told = x->lists.told;
    void **outputs = x->lists.outputs;
    struct tally__range shard = tally__exchange_shard(x, group->rank);
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
        (void)tally__phase(TALLY__EVENT_REDUCE);
        TRY(x->codec->ops->reduce_direct(x->codec, &shard, &direct));
    }
    return tally__round(x->lane, &x->call);
}

/* The offset at which others find the data, if they can use it; also publishes what they must know.
 */
static uint64_t offset_for_peers(const struct tally__exchange *x)
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

int tally__two_phase_near(struct tally__exchange *x)
{
    struct staging s = prepare(x, TALLY__STAGE_BYTES);

    x->call.word = x->lane->wide.n_uses > 0;
    x->call.offset = offset_for_peers(x);
    /* Unreachable data will be staged in any case: its first piece travels in the round in which
     * the ranks learn that. */
    if (x->call.offset == TALLY__NOT_SHARED && x->piece_blocks > 0) {
        TRY(encode_piece(&s, 0));
    }
    TRY(tally__round(x->lane, &x->call));
    tally__exchange_count(x);
    x->call.detail |= 1;
    return tally__reads_all(x->lane) ? run_direct(x) : run_staged(&s, none_shares(x->lane));
}
