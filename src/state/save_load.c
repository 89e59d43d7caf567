/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one driver of saving and loading; save_load.h says what it promises. It knows no object:
 * kinds of objects differ in a row of functions.
 */
#include "state/save_load.h"

#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/doing.h"
#include "comm/group_config.h"

static int take_snapshots(struct tally__state *state)
{
    for (; state; state = state->inner) {
        if (state->kind->snapshot) {
            TRY(state->kind->snapshot(state));
        }
    }
    return TALLY_OK;
}

void tally__state_end(struct tally__state *state)
{
    for (; state; state = state->inner) {
        if (state->fresh && state->kind->free) {
            state->kind->free(state->fresh);
        }
        for (size_t r = 0; state->blobs && r < state->n; r++) {
            tally__free(state->blobs[r].copy);
            tally__free(state->blobs[r].params);
        }
        tally__free(state->fresh);
        tally__free(state->blobs);
        tally__free((void *)state->hook.data);
    }
}

/* ---- saving ---- */

static void write_blob(const struct tally__state *state, struct tally__blob_writer *writer)
{
    const struct tally__blob_head head = {.magic = state->kind->magic,
                                          .version = state->kind->version,
                                          .rank = state->is_whole ? 0 : (uint32_t)state->rank,
                                          .world = state->is_whole ? 1 : (uint32_t)state->world,
                                          .n_params = (uint32_t)state->n_params,
                                          .n_steps = state->n_steps};
    size_t start = writer->used;
    unsigned char *blob = writer->to ? writer->to + writer->copied : NULL;

    tally__blob_put(writer, &head, sizeof head);
    state->kind->write(state, writer);
    if (blob && writer->seals) {
        tally__blob_seal(blob, writer->used - start);
    } else if (blob) {
        tally__blob_set_bytes(blob, writer->used - start);
    }
}

void tally__state_put_inner(const struct tally__state *state, struct tally__blob_writer *writer)
{
    struct tally__blob_writer counter = {0};

    if (state->inner) {
        write_blob(state->inner, &counter);
    }
    /* The size of a blob is a multiple of eight: this array needs no padding. */
    tally__blob_put_number(writer, counter.used);
    if (state->inner) {
        write_blob(state->inner, writer);
    }
}

int tally__state_begin(struct tally__state *state, bool refers, struct tally__blob_size *size)
{
    struct tally__blob_writer counter = {.refers = refers};

    TRY(take_snapshots(state));
    write_blob(state, &counter);
    tally__blob_end(&counter);
    *size = (struct tally__blob_size){counter.used, counter.copied, counter.n_pieces};
    return TALLY_OK;
}

void tally__state_write(const struct tally__state *state, bool refers, void *memory,
                        struct tally__bytes *pieces)
{
    struct tally__blob_writer writer = {.to = memory, .pieces = pieces, .refers = refers};

    write_blob(state, &writer);
    tally__blob_end(&writer);
}

static int save(const struct tally__state *state, const char *call, size_t needed, void *blob,
                size_t *bytes)
{
    struct tally__blob_writer writer = {.to = blob, .seals = true};

    if (blob && *bytes < needed) {
        return tally__fail(TALLY_ARG, "%s: blob has room for %zu bytes, but the state takes %zu",
                           call, *bytes, needed);
    }
    if (blob) {
        write_blob(state, &writer);
    }
    *bytes = needed;
    return TALLY_OK;
}

int tally__state_save(struct tally__state *state, const char *call, void *blob, size_t *bytes)
{
    struct tally__blob_size size = {0};
    int rc;

    if (!bytes) {
        return tally__fail(TALLY_ARG, "%s: bytes is NULL", call);
    }
    rc = tally__state_begin(state, false, &size);
    if (rc == TALLY_OK) {
        rc = save(state, call, size.bytes, blob, bytes);
    }
    tally__state_end(state);
    return rc;
}

/* ---- opening and checking blobs ---- */

int tally__state_damaged(size_t r)
{
    return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
}

int tally__state_check_end(const struct tally__state *state, size_t r)
{
    const struct tally__blob_reader *reader = &state->blobs[r].reader;

    return reader->bad || reader->left > 0 ? tally__state_damaged(r) : TALLY_OK;
}

static int check_head(const struct tally__state *state, size_t r, size_t n_bytes)
{
    const struct tally__state_kind *kind = state->kind;
    const struct tally__blob_head *head = &state->blobs[r].head;

    if (head->magic != kind->magic) {
        return tally__fail(TALLY_ARG,
                           "blob %zu was not written by tally_%s_save on a machine like this one",
                           r, kind->name);
    }
    if (head->version != kind->version) {
        return tally__fail(TALLY_ARG, "blob %zu has version %u, this tally reads version %u", r,
                           head->version, kind->version);
    }
    if (head->bytes != n_bytes) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes, but was saved with %llu", r, n_bytes,
                           (unsigned long long)head->bytes);
    }
    if (head->world != state->n || head->rank != r) {
        return tally__fail(TALLY_ARG,
                           "blob %zu of %zu was saved by rank %u of %u: pass the blobs of all its "
                           "ranks, in rank order",
                           r, state->n, head->rank, head->world);
    }
    return TALLY_OK;
}

/* Checks the head against the object; its checksum is right. */
static int check_object(const struct tally__state *state, size_t r)
{
    const struct tally__blob_head *head = &state->blobs[r].head;
    const struct tally__blob_head *first = &state->blobs[0].head;

    if (head->n_steps != first->n_steps) {
        return tally__fail(TALLY_ARG, "blob %zu was saved after %llu %s, blob 0 after %llu", r,
                           (unsigned long long)head->n_steps, state->kind->counts,
                           (unsigned long long)first->n_steps);
    }
    if (head->n_params != state->n_params) {
        return tally__fail(TALLY_ARG, "blob %zu has %u parameters, this %s has %zu", r,
                           head->n_params, state->kind->params_of, state->n_params);
    }
    return TALLY_OK;
}

static int open_blob(const struct tally__state *state, size_t r, const void *bytes, size_t n_bytes)
{
    struct tally__blob *blob = &state->blobs[r];

    blob->reader = (struct tally__blob_reader){.from = bytes, .left = bytes ? n_bytes : 0};
    tally__blob_take(&blob->reader, &blob->head, sizeof blob->head);
    if (blob->reader.bad) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes: too few for a saved state", r,
                           bytes ? n_bytes : 0);
    }
    TRY(check_head(state, r, n_bytes));
    if (!state->is_verified && tally__blob_checksum(bytes, n_bytes) != blob->head.checksum) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged: its checksum is wrong", r);
    }
    TRY(check_object(state, r));
    blob->params = tally__alloc_array(state->n_params, state->kind->param_bytes, "saved states");
    if (!blob->params) {
        return TALLY_NOMEM;
    }
    if ((uintptr_t)bytes % sizeof(uint64_t) != 0) {
        blob->copy = tally__alloc(n_bytes, "a saved state");
        if (!blob->copy) {
            return TALLY_NOMEM;
        }
        memcpy(blob->copy, bytes, n_bytes);
        blob->reader.from = (const unsigned char *)blob->copy + sizeof blob->head;
    }
    return TALLY_OK;
}

/* Opens the blobs, or those inside the blobs of outer, and has the object check them. */
static int open_and_check(struct tally__state *state, const struct tally__state *outer,
                          const void *const *blobs, const size_t *bytes, size_t n)
{
    state->is_verified = outer ? outer->is_verified : state->is_verified;
    state->n = n;
    state->blobs = tally__alloc_array(n, sizeof *state->blobs, "saved states");
    state->fresh = tally__alloc(state->kind->fresh_bytes, "saved states");
    if (!state->blobs || !state->fresh) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < n; r++) {
        TRY(outer ? open_blob(state, r, outer->blobs[r].inner, outer->blobs[r].inner_bytes)
                  : open_blob(state, r, blobs[r], bytes[r]));
    }
    TRY(state->kind->check(state));
    if (state->blobs[0].inner_bytes == 0) {
        state->inner = NULL;
    }
    return TALLY_OK;
}

/* All that can be done without changing anything. */
static int prepare(struct tally__state *state, const void *const *blobs, const size_t *bytes,
                   size_t n)
{
    if (!blobs || !bytes || n == 0) {
        return tally__fail(TALLY_ARG, "tally_%s_load: there are no blobs", state->kind->name);
    }
    if (n > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG, "tally_%s_load: %zu blobs, but no run has more than %d ranks",
                           state->kind->name, n, TALLY__MAX_WORLD);
    }
    TRY(open_and_check(state, NULL, blobs, bytes, n));
    for (const struct tally__state *outer = state; outer->inner; outer = outer->inner) {
        TRY(open_and_check(outer->inner, outer, NULL, NULL, n));
    }
    return take_snapshots(state);
}

/* ---- taking effect ---- */

/* The blobs that a call was given. */
struct given {
    const char *name; /* the kind's */
    uint64_t digest;
};

static int compare_job(tally_lane *lane, void *user)
{
    const struct given *given = user;
    int other = -1;

    TRY(tally__agree_same(lane, given->digest, &other));
    return other < 0
               ? TALLY_OK
               : tally__fail(TALLY_MISMATCH, "tally_%s_load: %s was given other blobs than %s",
                             given->name, tally__rank_text(lane->group, other).text,
                             tally__rank_text(lane->group, 0).text);
}

/* OK if every rank comes with OK and has the same blobs; otherwise an error on all ranks. */
static int agree(const struct tally__load *loads, size_t n, int status)
{
    const struct tally__state *first = loads[0].state;
    struct given given = {.name = first->kind->name};

    for (size_t i = 0; status == TALLY_OK && i < n; i++) {
        const struct tally__state *state = loads[i].state;

        for (size_t r = 0; r < state->n; r++) {
            uint64_t checksum = state->blobs[r].head.checksum;

            given.digest = tally__checksum(given.digest, &checksum, sizeof checksum);
        }
    }
    return first->agree(first->ddp, status, compare_job, &given);
}

/* The object of a load that has start, or NULL. */
static const struct tally__state *starter(const struct tally__load *load)
{
    const struct tally__state *innermost = load->state;

    while (innermost->inner) {
        innermost = innermost->inner;
    }
    return innermost->kind->start ? innermost : NULL;
}

/* Starts what can be started; sets *n_started. */
static int start_here(const struct tally__load *loads, size_t n, size_t *n_started)
{
    for (*n_started = 0; *n_started < n; (*n_started)++) {
        const struct tally__state *state = starter(&loads[*n_started]);

        if (state) {
            TRY(state->kind->start(state));
        }
    }
    return TALLY_OK;
}

static void undo_here(const struct tally__load *loads, size_t n_started)
{
    struct tally__aside error;

    tally__put_aside(&error);
    while (n_started-- > 0) {
        const struct tally__state *state = starter(&loads[n_started]);

        if (state) {
            state->kind->undo(state);
        }
    }
    (void)tally__take_back(&error, TALLY_OK);
}

static int start(const struct tally__load *loads, size_t n)
{
    const struct tally__state *first = loads[0].state;
    bool is_needed = false;
    size_t n_started;
    int rc;

    for (size_t i = 0; i < n; i++) {
        is_needed = is_needed || starter(&loads[i]);
    }
    if (!is_needed) {
        return TALLY_OK;
    }
    rc = first->agree(first->ddp, start_here(loads, n, &n_started), NULL, NULL);
    if (rc != TALLY_OK) {
        undo_here(loads, n_started);
    }
    return rc;
}

int tally__states_load(const struct tally__load *loads, size_t n, int status)
{
    int rc = status;

    for (size_t i = 0; rc == TALLY_OK && i < n; i++) {
        loads[i].state->is_verified = loads[i].is_verified;
        rc = prepare(loads[i].state, loads[i].blobs, loads[i].bytes, loads[i].n);
    }
    rc = agree(loads, n, rc);
    if (rc == TALLY_OK) {
        rc = start(loads, n);
    }
    for (size_t i = 0; i < n; i++) {
        for (const struct tally__state *s = loads[i].state; rc == TALLY_OK && s; s = s->inner) {
            s->kind->take_over(s);
        }
        tally__state_end(loads[i].state);
    }
    return rc;
}

int tally__state_load(struct tally__state *state, const void *const *blobs, const size_t *bytes,
                      size_t n)
{
    const struct tally__load load = {.state = state, .blobs = blobs, .bytes = bytes, .n = n};

    return tally__states_load(&load, 1, TALLY_OK);
}
