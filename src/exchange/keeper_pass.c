/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passing on what is owned; see keeper.h. A piece is the run that one rank owns of one parameter.
 * All ranks learn of all pieces, make room, and only then does each piece go from its owner to
 * everybody: whatever fails for lack of memory fails before anything has changed. Rare, so one
 * broadcast per piece is good enough. On a lane, in a job; keeps no state.
 */
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "exchange/keeper.h"
#include "num/num.h"

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
    struct tally__keeper *keeper;
    const struct tally__passing *passing;
    int rank;
    size_t world;
    size_t n; /* pieces of all ranks */
    struct piece *pieces;
    size_t *bytes; /* of each rank's pieces */
    float *values; /* of one piece */
};

bool tally__lacks(int rank, int owner, int n_ranks)
{
    return rank / n_ranks == owner / n_ranks;
}

static size_t n_params(const struct tally__keeper *keeper, const struct tally__passing *passing)
{
    return passing->bucket ? (size_t)passing->bucket->n_params : keeper->n_params;
}

static size_t param_of(const struct tally__passing *passing, size_t k)
{
    return passing->bucket ? (size_t)passing->bucket->params[k].index : k;
}

static bool passes(const struct tally__passing *passing, const struct tally__owned *owned)
{
    return !passing->stays || !passing->stays(passing->user, owned->n_ranks);
}

bool tally__keeper_has_to_pass(const struct tally__keeper *keeper,
                               const struct tally__passing *passing)
{
    for (size_t k = 0; k < n_params(keeper, passing); k++) {
        const struct tally__residual *residual = &keeper->params[param_of(passing, k)];

        for (const struct tally__owned *owned = residual->owned; owned; owned = owned->next) {
            if (passes(passing, owned)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- all pieces ---- */

/* This rank's pieces; without room only counts. */
static size_t list_own(const struct pass *pass, struct piece *pieces)
{
    size_t n = 0;

    for (size_t k = 0; k < n_params(pass->keeper, pass->passing); k++) {
        size_t i = param_of(pass->passing, k);
        const struct tally__residual *residual = &pass->keeper->params[i];

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

static int list_all(struct pass *pass)
{
    static const char what[] = "residuals that change hands";
    uint64_t own_bytes = list_own(pass, NULL) * sizeof *pass->pieces;
    uint64_t *counts = tally__alloc_array(pass->world, sizeof *counts, what);
    size_t before = 0;
    size_t total = 0;
    int rc = TALLY_NOMEM;

    pass->bytes = tally__alloc_array(pass->world, sizeof *pass->bytes, what);
    if (counts && pass->bytes) {
        for (size_t r = 0; r < pass->world; r++) {
            pass->bytes[r] = sizeof own_bytes;
        }
        rc = tally_lane_all_gather(pass->lane, &own_bytes, pass->bytes, counts);
    }
    for (size_t r = 0; rc == TALLY_OK && r < pass->world; r++) {
        pass->bytes[r] = (size_t)counts[r];
        before += r < (size_t)pass->rank ? pass->bytes[r] : 0;
        total += pass->bytes[r];
    }
    tally__free(counts);
    TRY(rc);
    pass->n = total / sizeof *pass->pieces;
    pass->pieces = tally__alloc_array(pass->n, sizeof *pass->pieces, what);
    if (!pass->pieces) {
        return TALLY_NOMEM;
    }
    (void)list_own(pass, pass->pieces + before / sizeof *pass->pieces);
    return total == 0
               ? TALLY_OK
               : tally_lane_all_gather(pass->lane, pass->pieces + before / sizeof *pass->pieces,
                                       pass->bytes, pass->pieces);
}

/* ---- room ---- */

static struct tally__residual *residual_of(const struct pass *pass, const struct piece *piece)
{
    return &pass->keeper->params[piece->param];
}

/* Where a piece goes on this rank; NULL: nowhere. */
static float *place_of(const struct pass *pass, const struct piece *piece)
{
    const struct tally__residual *residual = residual_of(pass, piece);
    const struct tally__owned *owned = tally__residual_owned(residual, (int)piece->n_ranks);

    if (!tally__lacks(pass->rank, (int)piece->owner, (int)piece->n_ranks)) {
        return NULL;
    }
    if (pass->passing->how == TALLY__PASS_SENT) {
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
    if (pass->passing->how == TALLY__PASS_SENT) {
        return tally__residual_send(residual, (size_t)piece->elements);
    }
    /* A rank that takes no part in exchanges, as behind a leader, needs none of it. */
    if (owned && !owned->pending) {
        owned->pending = tally__alloc_array((size_t)piece->elements, sizeof(float), "a residual");
    }
    return !owned || owned->pending ? TALLY_OK : TALLY_NOMEM;
}

static int make_room(struct pass *pass)
{
    uint64_t most = 0;

    for (size_t k = 0; k < pass->n; k++) {
        const struct piece *piece = &pass->pieces[k];

        if (piece->param >= pass->keeper->n_params || piece->n_ranks == 0 ||
            piece->n > piece->elements || piece->first > piece->elements - piece->n) {
            return tally__fail(TALLY_INTERNAL, "a residual does not fit its parameter");
        }
        TRY(make_room_for(pass, piece));
        most = piece->n > most ? piece->n : most;
    }
    if (most > 0) {
        pass->values = tally__alloc_array((size_t)most, sizeof *pass->values, "a residual");
    }
    return most == 0 || pass->values ? TALLY_OK : TALLY_NOMEM;
}

/* ---- on its way ---- */

static int send(const struct pass *pass, const struct piece *piece)
{
    size_t bytes = (size_t)piece->n * sizeof *pass->values;
    float *place;

    if ((int)piece->owner == pass->rank) {
        const struct tally__owned *owned =
            tally__residual_owned(residual_of(pass, piece), (int)piece->n_ranks);

        memcpy(pass->values, owned->values + (owned->is_whole ? owned->first : 0), bytes);
    }
    TRY(tally_lane_broadcast(pass->lane, pass->values, bytes, (int)piece->owner));
    place = place_of(pass, piece);
    if (place && pass->passing->how == TALLY__PASS_SENT) {
        tally__axpy_f32((size_t)piece->n, pass->values, 1, place + piece->first);
    } else if (place) {
        memcpy(place + piece->first, pass->values, bytes);
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

/* By size of group: an element's sum must not depend on which ranks own its pieces. */
static int send_all(const struct pass *pass)
{
    for (uint64_t group = next_group(pass, 0); group > 0; group = next_group(pass, group)) {
        for (size_t k = 0; k < pass->n; k++) {
            if (pass->pieces[k].n_ranks == group) {
                TRY(send(pass, &pass->pieces[k]));
            }
        }
    }
    return TALLY_OK;
}

/* What was on its way has arrived; or it never will. */
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
    for (size_t k = 0; k < n_params(pass->keeper, pass->passing); k++) {
        struct tally__residual *residual = &pass->keeper->params[param_of(pass->passing, k)];
        struct tally__owned *next;

        for (struct tally__owned *owned = residual->owned; owned; owned = next) {
            next = owned->next;
            if (!passes(pass->passing, owned)) {
                continue;
            }
            if (pass->passing->how == TALLY__PASS_SENT && has_arrived) {
                tally__residual_disown(residual, owned->n_ranks);
            } else {
                end_owned(owned, has_arrived);
            }
        }
    }
}

int tally__keeper_pass(tally_lane *lane, struct tally__keeper *keeper,
                       const struct tally__passing *passing)
{
    struct pass pass = {.lane = lane,
                        .keeper = keeper,
                        .passing = passing,
                        .rank = tally_group_rank(tally_lane_group(lane)),
                        .world = (size_t)tally_group_size(tally_lane_group(lane))};
    int rc = list_all(&pass);

    if (rc == TALLY_OK) {
        rc = make_room(&pass);
    }
    if (rc == TALLY_OK) {
        rc = send_all(&pass);
    }
    end(&pass, rc == TALLY_OK);
    tally__free(pass.pieces);
    tally__free(pass.bytes);
    tally__free(pass.values);
    return rc;
}
