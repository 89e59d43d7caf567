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

struct pass {
    tally_lane *lane;
    struct tally__residuals *residuals;
    const struct tally__moving *passing;
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

static size_t n_params(const struct tally__residuals *residuals,
                       const struct tally__moving *passing)
{
    return passing->bucket ? (size_t)passing->bucket->n_params : residuals->n_params;
}

static size_t param_of(const struct tally__moving *passing, size_t k)
{
    return passing->bucket ? (size_t)passing->bucket->params[k].index : k;
}

static bool passes(const struct tally__moving *passing, const struct tally__owned *owned)
{
    return !passing->stays || !passing->stays(passing->user, owned->n_ranks);
}

bool tally__residuals_must_move(const struct tally__residuals *residuals,
                                const struct tally__moving *passing)
{
    for (size_t k = 0; k < n_params(residuals, passing); k++) {
        const struct tally__residual *residual = &residuals->params[param_of(passing, k)];

        for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
            if (passes(passing, owned)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- all pieces ---- */

static const char what[] = "residuals that change hands";

/* Lists this rank's pieces; without room it only counts them. */
static size_t list_own(const struct pass *pass, struct piece *pieces)
{
    size_t n = 0;

    for (size_t k = 0; k < n_params(pass->residuals, pass->passing); k++) {
        size_t i = param_of(pass->passing, k);
        const struct tally__residual *residual = &pass->residuals->params[i];

        for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
            if (owned->n == 0 || !passes(pass->passing, owned)) {
                continue;
            }
            if (pieces) {
                pieces[n] = (struct piece){i,
                                           residual->n,
                                           owned->first,
                                           owned->n,
                                           (uint64_t)owned->n_ranks,
                                           (uint64_t)pass->rank};
            }
            n++;
        }
    }
    return n;
}

/* The number of pieces of each rank. */
static int count_all(const struct pass *pass)
{
    uint64_t own = list_own(pass, NULL);
    uint64_t *counts = tally__alloc_array(pass->world, sizeof *counts, what);
    int rc;

    if (!counts) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < pass->world; r++) {
        pass->bytes[r] = sizeof own;
    }
    rc = tally_lane_all_gather(pass->lane, &own, pass->bytes, counts);
    for (size_t r = 0; r < pass->world; r++) {
        pass->first[r + 1] = pass->first[r] + (size_t)counts[r];
    }
    tally__free(counts);
    return rc;
}

static int list_all(struct pass *pass)
{
    size_t world = pass->world;
    struct piece *own;

    pass->first = tally__alloc_array(4 * world + 1, sizeof *pass->first, what);
    if (!pass->first) {
        return TALLY_NOMEM;
    }
    pass->from = pass->first + world + 1;
    pass->to = pass->from + world;
    pass->bytes = pass->to + world;
    TRY(count_all(pass));
    pass->n = pass->first[world];
    if (pass->n == 0) {
        return TALLY_OK;
    }
    pass->pieces = tally__alloc_array(pass->n, sizeof *pass->pieces, what);
    if (!pass->pieces) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < world; r++) {
        pass->bytes[r] = (pass->first[r + 1] - pass->first[r]) * sizeof *pass->pieces;
    }
    own = pass->pieces + pass->first[pass->rank];
    (void)list_own(pass, own);
    return tally_lane_all_gather(pass->lane, own, pass->bytes, pass->pieces);
}

/* ---- room ---- */

static struct tally__residual *residual_of(const struct pass *pass, const struct piece *piece)
{
    return &pass->residuals->params[piece->param];
}

/* The destination of a piece on this rank; NULL: none. */
static float *place_of(const struct pass *pass, const struct piece *piece)
{
    const struct tally__residual *residual = residual_of(pass, piece);
    const struct tally__owned *owned = tally__residual_owned(residual, (int)piece->n_ranks);

    if (!tally__lacks(pass->rank, (int)piece->owner, (int)piece->n_ranks)) {
        return NULL;
    }
    if (pass->passing->how == TALLY__MOVE_SENT) {
        return residual->sent;
    }
    return owned ? owned->pending : NULL;
}

static int make_room_for(const struct pass *pass, const struct piece *piece)
{
    struct tally__residual *residual = residual_of(pass, piece);
    struct tally__owned *owned = tally__residual_owned(residual, (int)piece->n_ranks);

    if (!tally__lacks(pass->rank, (int)piece->owner, (int)piece->n_ranks)) {
        return TALLY_OK;
    }
    if (pass->passing->how == TALLY__MOVE_SENT) {
        return tally__residual_send(residual, (size_t)piece->elements);
    }
    /* A rank that takes no part in exchanges, such as one behind a leader, needs none. */
    if (owned && !owned->pending) {
        owned->pending = tally__alloc_array((size_t)piece->elements, sizeof(float), "a residual");
    }
    return !owned || owned->pending ? TALLY_OK : TALLY_NOMEM;
}

static int make_room(const struct pass *pass)
{
    for (size_t k = 0; k < pass->n; k++) {
        const struct piece *piece = &pass->pieces[k];

        if (piece->param >= pass->residuals->n_params || piece->n_ranks == 0 ||
            piece->n > piece->elements || piece->first > piece->elements - piece->n) {
            return tally__fail(TALLY_INTERNAL, "a residual does not fit its parameter");
        }
        TRY(make_room_for(pass, piece));
    }
    return TALLY_OK;
}

/* ---- rounds ---- */

static size_t bytes_of(const struct piece *piece)
{
    return (size_t)piece->n * sizeof(float);
}

/* Chooses the pieces of one group for the next round; returns their bytes. */
static size_t choose(const struct pass *pass, uint64_t group)
{
    size_t total = 0;

    for (size_t r = 0; r < pass->world; r++) {
        size_t k = pass->from[r];
        size_t bytes = 0;

        for (; k < pass->first[r + 1]; k++) {
            size_t more = pass->pieces[k].n_ranks == group ? bytes_of(&pass->pieces[k]) : 0;

            if (bytes > 0 && bytes + more > ROUND_BYTES / pass->world) {
                break;
            }
            bytes += more;
        }
        pass->to[r] = k;
        pass->bytes[r] = bytes;
        total += bytes;
    }
    return total;
}

/* This rank's part of a round. */
static void put_own(const struct pass *pass, uint64_t group, float *to)
{
    for (size_t k = pass->from[pass->rank]; k < pass->to[pass->rank]; k++) {
        const struct piece *piece = &pass->pieces[k];

        if (piece->n_ranks == group) {
            const struct tally__owned *owned =
                tally__residual_owned(residual_of(pass, piece), (int)piece->n_ranks);

            memcpy(to, owned->values + (owned->is_whole ? owned->first : 0), bytes_of(piece));
            to += piece->n;
        }
    }
}

static void take(const struct pass *pass, const struct piece *piece, const float *values)
{
    float *place = place_of(pass, piece);

    if (place && pass->passing->how == TALLY__MOVE_SENT) {
        tally__axpy_f32((size_t)piece->n, values, 1, place + piece->first);
    } else if (place) {
        memcpy(place + piece->first, values, bytes_of(piece));
    }
}

static int go_around(const struct pass *pass, uint64_t group)
{
    const float *values = pass->values;
    size_t before = 0;

    for (int r = 0; r < pass->rank; r++) {
        before += pass->bytes[r] / sizeof *pass->values;
    }
    put_own(pass, group, pass->values + before);
    TRY(tally_lane_all_gather(pass->lane, pass->values + before, pass->bytes, pass->values));
    for (size_t r = 0; r < pass->world; r++) {
        for (size_t k = pass->from[r]; k < pass->to[r]; k++) {
            if (pass->pieces[k].n_ranks == group) {
                take(pass, &pass->pieces[k], values);
                values += pass->pieces[k].n;
            }
        }
    }
    return TALLY_OK;
}

/* The smallest group above this one that has pieces; 0: none. */
static uint64_t next_group(const struct pass *pass, uint64_t above)
{
    uint64_t next = 0;

    for (size_t k = 0; k < pass->n; k++) {
        uint64_t n_ranks = pass->pieces[k].n_ranks;

        if (n_ranks > above && (next == 0 || n_ranks < next)) {
            next = n_ranks;
        }
    }
    return next;
}

/* All rounds; without room it only computes the bytes. Ordered by group size: an element's sum must
 * not depend on which ranks own its pieces. */
static int go_all_around(struct pass *pass)
{
    for (uint64_t group = next_group(pass, 0); group > 0; group = next_group(pass, group)) {
        size_t bytes;

        memcpy(pass->from, pass->first, pass->world * sizeof *pass->from);
        while ((bytes = choose(pass, group)) > 0) {
            pass->most = bytes > pass->most ? bytes : pass->most;
            TRY(pass->values ? go_around(pass, group) : TALLY_OK);
            memcpy(pass->from, pass->to, pass->world * sizeof *pass->from);
        }
    }
    return TALLY_OK;
}

static int pass_pieces(struct pass *pass)
{
    TRY(list_all(pass));
    TRY(make_room(pass));
    if (pass->n == 0) {
        return TALLY_OK;
    }
    TRY(go_all_around(pass));
    pass->values = tally__alloc(pass->most, what);
    return pass->values ? go_all_around(pass) : TALLY_NOMEM;
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

static void end(const struct pass *pass, bool has_arrived)
{
    for (size_t k = 0; k < n_params(pass->residuals, pass->passing); k++) {
        struct tally__residual *residual = &pass->residuals->params[param_of(pass->passing, k)];
        struct tally__owned *next;

        for (struct tally__owned *owned = residual->owned; owned; owned = next) {
            next = owned->next;
            if (!passes(pass->passing, owned)) {
                continue;
            }
            if (pass->passing->how == TALLY__MOVE_SENT && has_arrived) {
                tally__residual_disown(residual, owned->n_ranks);
            } else {
                end_owned(owned, has_arrived);
            }
        }
    }
}

int tally__residuals_move(tally_lane *lane, struct tally__residuals *residuals,
                          const struct tally__moving *passing)
{
    struct pass pass = {.lane = lane,
                        .residuals = residuals,
                        .passing = passing,
                        .rank = tally_group_rank(tally_lane_group(lane)),
                        .world = (size_t)tally_group_size(tally_lane_group(lane))};
    int rc = pass_pieces(&pass);

    end(&pass, rc == TALLY_OK);
    tally__free(pass.pieces);
    tally__free(pass.first);
    tally__free(pass.values);
    return rc;
}
