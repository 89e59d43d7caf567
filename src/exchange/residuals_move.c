/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving owned residuals; see residuals.h. A piece is the run that one rank owns of one parameter.
 * All ranks learn of all pieces and allocate room; only then do pieces go from their owners to all
 * ranks, in rounds of some megabytes. So a lack of memory fails before anything has changed. In a
 * job; stateless.
 */
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "exchange/residuals.h"
#include "num/num.h"

/* Bytes that go around at once, unless a single piece is larger. */
#define ROUND_BYTES ((size_t)4 << 20)

struct piece {
    uint64_t param;
    uint64_t elements; /* of the parameter */
    uint64_t first;
    uint64_t n;
    uint64_t n_ranks;
    uint64_t owner; /* rank in the lane's group */
};

struct move {
    tally_lane *lane;
    struct tally__residuals *residuals;
    const struct tally__moving *moving;
    int rank;
    size_t world;
    size_t n; /* pieces of all ranks, one rank's after the other's */
    struct piece *pieces;
    size_t *first; /* per rank: its first piece; and the end */
    size_t *from;  /* per rank: the pieces of a round, */
    size_t *to;
    size_t *bytes; /* and how long they are */
    size_t most;   /* bytes in a round */
    float *values; /* of a round */
};

bool tally__lacks(int rank, int owner, int n_ranks)
{
    return rank / n_ranks == owner / n_ranks;
}

static size_t n_params(const struct tally__residuals *residuals, const struct tally__moving *moving)
{
    return moving->bucket ? (size_t)moving->bucket->n_params : residuals->n_params;
}

static size_t param_of(const struct tally__moving *moving, size_t k)
{
    return moving->bucket ? (size_t)moving->bucket->params[k].index : k;
}

static bool moves(const struct tally__moving *moving, const struct tally__owned *owned)
{
    return !moving->stays || !moving->stays(moving->user, owned->n_ranks);
}

bool tally__residuals_must_move(const struct tally__residuals *residuals,
                                const struct tally__moving *moving)
{
    for (size_t k = 0; k < n_params(residuals, moving); k++) {
        const struct tally__residual *residual = &residuals->params[param_of(moving, k)];

        for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
            if (moves(moving, owned)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- all pieces ---- */

static const char what[] = "residuals that change hands";

/* Lists this rank's pieces; without room it only counts them. */
static size_t list_own(const struct move *move, struct piece *pieces)
{
    size_t n = 0;

    for (size_t k = 0; k < n_params(move->residuals, move->moving); k++) {
        size_t i = param_of(move->moving, k);
        const struct tally__residual *residual = &move->residuals->params[i];

        for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
            if (owned->n == 0 || !moves(move->moving, owned)) {
                continue;
            }
            if (pieces) {
                pieces[n] = (struct piece){i,
                                           residual->n,
                                           owned->first,
                                           owned->n,
                                           (uint64_t)owned->n_ranks,
                                           (uint64_t)move->rank};
            }
            n++;
        }
    }
    return n;
}

/* The number of pieces of each rank. */
static int count_all(const struct move *move)
{
    uint64_t own = list_own(move, NULL);
    uint64_t *counts = tally__alloc_array(move->world, sizeof *counts, what);
    int rc;

    if (!counts) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < move->world; r++) {
        move->bytes[r] = sizeof own;
    }
    rc = tally_lane_all_gather(move->lane, &own, move->bytes, counts);
    for (size_t r = 0; r < move->world; r++) {
        move->first[r + 1] = move->first[r] + (size_t)counts[r];
    }
    tally__free(counts);
    return rc;
}

static int list_all(struct move *move)
{
    size_t world = move->world;
    struct piece *own;

    move->first = tally__alloc_array(4 * world + 1, sizeof *move->first, what);
    if (!move->first) {
        return TALLY_NOMEM;
    }
    move->from = move->first + world + 1;
    move->to = move->from + world;
    move->bytes = move->to + world;
    TRY(count_all(move));
    move->n = move->first[world];
    if (move->n == 0) {
        return TALLY_OK;
    }
    move->pieces = tally__alloc_array(move->n, sizeof *move->pieces, what);
    if (!move->pieces) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < world; r++) {
        move->bytes[r] = (move->first[r + 1] - move->first[r]) * sizeof *move->pieces;
    }
    own = move->pieces + move->first[move->rank];
    (void)list_own(move, own);
    return tally_lane_all_gather(move->lane, own, move->bytes, move->pieces);
}

/* ---- room ---- */

static struct tally__residual *residual_of(const struct move *move, const struct piece *piece)
{
    return &move->residuals->params[piece->param];
}

/* The destination of a piece on this rank; NULL: none. */
static float *destination_of(const struct move *move, const struct piece *piece)
{
    const struct tally__residual *residual = residual_of(move, piece);
    const struct tally__owned *owned = tally__residual_owned(residual, (int)piece->n_ranks);

    if (!tally__lacks(move->rank, (int)piece->owner, (int)piece->n_ranks)) {
        return NULL;
    }
    if (move->moving->how == TALLY__MOVE_SENT) {
        return residual->sent;
    }
    return owned ? owned->pending : NULL;
}

static int make_room_for(const struct move *move, const struct piece *piece)
{
    struct tally__residual *residual = residual_of(move, piece);
    struct tally__owned *owned = tally__residual_owned(residual, (int)piece->n_ranks);

    if (!tally__lacks(move->rank, (int)piece->owner, (int)piece->n_ranks)) {
        return TALLY_OK;
    }
    if (move->moving->how == TALLY__MOVE_SENT) {
        return tally__residual_allocate(residual, (size_t)piece->elements);
    }
    /* A rank that takes no part in exchanges, because its leader does, needs none. */
    if (owned && !owned->pending) {
        owned->pending = tally__alloc_array((size_t)piece->elements, sizeof(float), "a residual");
    }
    return !owned || owned->pending ? TALLY_OK : TALLY_NOMEM;
}

static int make_room(const struct move *move)
{
    for (size_t k = 0; k < move->n; k++) {
        const struct piece *piece = &move->pieces[k];

        if (piece->param >= move->residuals->n_params || piece->n_ranks == 0 ||
            piece->n > piece->elements || piece->first > piece->elements - piece->n) {
            return tally__fail(TALLY_INTERNAL, "a residual does not fit its parameter");
        }
        TRY(make_room_for(move, piece));
    }
    return TALLY_OK;
}

/* ---- rounds ---- */

static size_t bytes_of(const struct piece *piece)
{
    return (size_t)piece->n * sizeof(float);
}

/* Chooses the pieces of one group for the next round; returns their bytes. */
static size_t choose(const struct move *move, uint64_t group)
{
    size_t total = 0;

    for (size_t r = 0; r < move->world; r++) {
        size_t k = move->from[r];
        size_t bytes = 0;

        for (; k < move->first[r + 1]; k++) {
            size_t more = move->pieces[k].n_ranks == group ? bytes_of(&move->pieces[k]) : 0;

            if (bytes > 0 && bytes + more > ROUND_BYTES / move->world) {
                break;
            }
            bytes += more;
        }
        move->to[r] = k;
        move->bytes[r] = bytes;
        total += bytes;
    }
    return total;
}

/* This rank's part of a round. */
static void put_own(const struct move *move, uint64_t group, float *to)
{
    for (size_t k = move->from[move->rank]; k < move->to[move->rank]; k++) {
        const struct piece *piece = &move->pieces[k];

        if (piece->n_ranks == group) {
            const struct tally__owned *owned =
                tally__residual_owned(residual_of(move, piece), (int)piece->n_ranks);

            memcpy(to, owned->values + (owned->is_whole ? owned->first : 0), bytes_of(piece));
            to += piece->n;
        }
    }
}

static void take(const struct move *move, const struct piece *piece, const float *values)
{
    float *to = destination_of(move, piece);

    if (to && move->moving->how == TALLY__MOVE_SENT) {
        tally__axpy_f32((size_t)piece->n, values, 1, to + piece->first);
    } else if (to) {
        memcpy(to + piece->first, values, bytes_of(piece));
    }
}

static int go_around(const struct move *move, uint64_t group)
{
    const float *values = move->values;
    size_t before = 0;

    for (int r = 0; r < move->rank; r++) {
        before += move->bytes[r] / sizeof *move->values;
    }
    put_own(move, group, move->values + before);
    TRY(tally_lane_all_gather(move->lane, move->values + before, move->bytes, move->values));
    for (size_t r = 0; r < move->world; r++) {
        for (size_t k = move->from[r]; k < move->to[r]; k++) {
            if (move->pieces[k].n_ranks == group) {
                take(move, &move->pieces[k], values);
                values += move->pieces[k].n;
            }
        }
    }
    return TALLY_OK;
}

/* The smallest group above this one that has pieces; 0: none. */
static uint64_t next_group(const struct move *move, uint64_t above)
{
    uint64_t next = 0;

    for (size_t k = 0; k < move->n; k++) {
        uint64_t n_ranks = move->pieces[k].n_ranks;

        if (n_ranks > above && (next == 0 || n_ranks < next)) {
            next = n_ranks;
        }
    }
    return next;
}

/* All rounds; without room it only computes the bytes. Ordered by group size: an element's sum must
 * not depend on which ranks own its pieces. */
static int go_all_around(struct move *move)
{
    for (uint64_t group = next_group(move, 0); group > 0; group = next_group(move, group)) {
        size_t bytes;

        memcpy(move->from, move->first, move->world * sizeof *move->from);
        while ((bytes = choose(move, group)) > 0) {
            move->most = bytes > move->most ? bytes : move->most;
            TRY(move->values ? go_around(move, group) : TALLY_OK);
            memcpy(move->from, move->to, move->world * sizeof *move->from);
        }
    }
    return TALLY_OK;
}

static int pass_pieces(struct move *move)
{
    TRY(list_all(move));
    TRY(make_room(move));
    if (move->n == 0) {
        return TALLY_OK;
    }
    TRY(go_all_around(move));
    move->values = tally__alloc(move->most, what);
    return move->values ? go_all_around(move) : TALLY_NOMEM;
}

/* Takes over the moved residuals, or drops them after a failure. */
static void end_owned(struct tally__owned *owned, bool has_arrived)
{
    if (has_arrived && owned->pending) {
        tally__free(owned->values);
        owned->values = owned->pending;
        owned->is_whole = true;
    } else {
        tally__free(owned->pending);
    }
    owned->pending = NULL;
}

static void end(const struct move *move, bool has_arrived)
{
    for (size_t k = 0; k < n_params(move->residuals, move->moving); k++) {
        struct tally__residual *residual = &move->residuals->params[param_of(move->moving, k)];
        struct tally__owned *next;

        for (struct tally__owned *owned = residual->owned; owned; owned = next) {
            next = owned->next;
            if (!moves(move->moving, owned)) {
                continue;
            }
            if (move->moving->how == TALLY__MOVE_SENT && has_arrived) {
                tally__residual_disown(residual, owned->n_ranks);
            } else {
                end_owned(owned, has_arrived);
            }
        }
    }
}

int tally__residuals_move(tally_lane *lane, struct tally__residuals *residuals,
                          const struct tally__moving *moving)
{
    struct move move = {.lane = lane,
                        .residuals = residuals,
                        .moving = moving,
                        .rank = tally_group_rank(tally_lane_group(lane)),
                        .world = (size_t)tally_group_size(tally_lane_group(lane))};
    int rc = pass_pieces(&move);

    end(&move, rc == TALLY_OK);
    tally__free(move.pieces);
    tally__free(move.first);
    tally__free(move.values);
    return rc;
}
