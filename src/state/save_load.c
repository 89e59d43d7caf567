/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one driver of saving and loading: save_load.h says what it promises. It knows no object:
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

    tally__blob_put(writer, &head, sizeof head);
    state->kind->write(state, writer);
    if (writer->to) {
        tally__blob_seal(writer->to + start, writer->used - start);
    }
}

int tally__state_save(const struct tally__state *state, const char *call, void *blob, size_t *bytes)
{
    struct tally__blob_writer counter = {0};
    struct tally__blob_writer writer = {.to = blob};

    if (!bytes) {
        return tally__fail(TALLY_ARG, "%s: bytes is NULL", call);
    }
    write_blob(state, &counter);
    if (blob && *bytes < counter.used) {
        return tally__fail(TALLY_ARG, "%s: room for %zu bytes, needed are %zu", call, *bytes,
                           counter.used);
    }
    if (blob) {
        write_blob(state, &writer);
    }
    *bytes = counter.used;
    return TALLY_OK;
}

void tally__state_put(struct tally__blob_writer *writer, const struct tally__state *inner)
{
    struct tally__blob_writer counter = {0};

    if (inner) {
        write_blob(inner, &counter);
    }
    /* The size of a blob is a multiple of eight: this array needs no padding. */
    tally__blob_put_number(writer, counter.used);
    if (inner) {
        write_blob(inner, writer);
    }
}

/* ---- opening blobs ---- */

static int check_head(const struct tally__loading *loading, size_t r)
{
    const struct tally__state_kind *kind = loading->state.kind;
    const struct tally__blob_head *head = &loading->blobs[r].head;
    size_t bytes = loading->blobs[r].n_bytes;

    if (head->magic != kind->magic) {
        return tally__fail(TALLY_ARG,
                           "blob %zu is not what tally_%s_save wrote on a machine like this one", r,
                           kind->name);
    }
    if (head->version != kind->version) {
        return tally__fail(TALLY_ARG, "blob %zu has version %u, this tally reads version %u", r,
                           head->version, kind->version);
    }
    if (head->bytes != bytes) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes, but was saved with %llu", r, bytes,
                           (unsigned long long)head->bytes);
    }
    if (head->world != loading->n || head->rank != r) {
        return tally__fail(TALLY_ARG,
                           "blob %zu of %zu is that of rank %u of %u: all ranks' are needed, in "
                           "order",
                           r, loading->n, head->rank, head->world);
    }
    return TALLY_OK;
}

static int open_blob(const struct tally__loading *loading, size_t r)
{
    struct tally__blob *blob = &loading->blobs[r];
    size_t n_bytes = blob->bytes ? blob->n_bytes : 0;

    blob->reader = (struct tally__blob_reader){.from = blob->bytes, .left = n_bytes};
    tally__blob_take(&blob->reader, &blob->head, sizeof blob->head);
    if (blob->reader.bad) {
        return tally__fail(TALLY_ARG, "blob %zu has %zu bytes: less than any that was saved", r,
                           n_bytes);
    }
    TRY(check_head(loading, r));
    if (tally__blob_checksum(blob->bytes, n_bytes) != blob->head.checksum) {
        return tally__fail(TALLY_ARG, "blob %zu is damaged: its checksum is wrong", r);
    }
    if (blob->head.n_steps != loading->blobs[0].head.n_steps) {
        return tally__fail(TALLY_ARG, "blob %zu was saved after %llu %s, blob 0 after %llu", r,
                           (unsigned long long)blob->head.n_steps, loading->state.kind->counts,
                           (unsigned long long)loading->blobs[0].head.n_steps);
    }
    if (blob->head.n_params != loading->state.n_params) {
        return tally__fail(TALLY_ARG, "blob %zu has %u parameters, this %s has %zu", r,
                           blob->head.n_params, loading->state.kind->owner,
                           loading->state.n_params);
    }
    if ((uintptr_t)blob->bytes % sizeof(uint64_t) != 0) {
        blob->copy = tally__alloc(n_bytes, "a saved state");
        if (!blob->copy) {
            return TALLY_NOMEM;
        }
        memcpy(blob->copy, blob->bytes, n_bytes);
        blob->reader.from = (const unsigned char *)blob->copy + sizeof blob->head;
    }
    return TALLY_OK;
}

/* Opens the inner blobs of outer, or those in blobs, and has them checked. */
static int open_and_check(struct tally__loading *loading, const struct tally__blob *outer,
                          const void *const *blobs, const size_t *bytes)
{
    loading->blobs = tally__alloc_array(loading->n, sizeof *loading->blobs, "saved states");
    loading->fresh = tally__alloc(loading->state.kind->fresh_bytes, "saved states");
    if (!loading->blobs || !loading->fresh) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < loading->n; r++) {
        loading->blobs[r].bytes = outer ? outer[r].inner : blobs[r];
        loading->blobs[r].n_bytes = outer ? outer[r].inner_bytes : bytes[r];
        TRY(open_blob(loading, r));
    }
    return loading->state.kind->check(loading);
}

int tally__state_check_inner(struct tally__loading *loading, const struct tally__state *inner)
{
    loading->inner = tally__alloc(sizeof *loading->inner, "saved states");
    if (!loading->inner) {
        return TALLY_NOMEM;
    }
    *loading->inner = (struct tally__loading){.state = *inner, .n = loading->n};
    return open_and_check(loading->inner, loading->blobs, NULL, NULL);
}

int tally__state_damaged(size_t r)
{
    return tally__fail(TALLY_ARG, "blob %zu is damaged", r);
}

int tally__state_check_end(const struct tally__loading *loading, size_t r)
{
    const struct tally__blob_reader *reader = &loading->blobs[r].reader;

    return reader->bad || reader->left > 0 ? tally__state_damaged(r) : TALLY_OK;
}

/* All that can be done without changing anything. */
static int prepare(struct tally__loading *loading, const void *const *blobs, const size_t *bytes)
{
    const char *name = loading->state.kind->name;

    if (!blobs || !bytes || loading->n == 0) {
        return tally__fail(TALLY_ARG, "tally_%s_load: there are no blobs", name);
    }
    if (loading->n > TALLY__MAX_WORLD) {
        return tally__fail(TALLY_ARG, "tally_%s_load: %zu blobs, but no run has more than %d ranks",
                           name, loading->n, TALLY__MAX_WORLD);
    }
    return open_and_check(loading, NULL, blobs, bytes);
}

/* ---- agreement ---- */

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
static int agree(const struct tally__loading *loading, int status)
{
    struct given given = {.name = loading->state.kind->name};

    for (size_t r = 0; status == TALLY_OK && r < loading->n; r++) {
        uint64_t checksum = loading->blobs[r].head.checksum;

        given.digest = tally__checksum(&checksum, sizeof checksum) ^ given.digest * 31;
    }
    return loading->state.agree(loading->state.ddp, status, compare_job, &given);
}

/* ---- taking effect ---- */

static int start(struct tally__loading *loading)
{
    struct tally__loading *innermost = loading;
    struct tally__aside error;
    int started;
    int rc;

    while (innermost->inner) {
        innermost = innermost->inner;
    }
    if (!innermost->state.kind->start) {
        return TALLY_OK;
    }
    started = innermost->state.kind->start(innermost);
    rc = agree(loading, started);
    if (rc != TALLY_OK && started == TALLY_OK) {
        tally__put_aside(&error);
        innermost->state.kind->undo(innermost);
        (void)tally__take_back(&error, TALLY_OK);
    }
    return rc;
}

static void take_over(struct tally__loading *loading)
{
    for (; loading; loading = loading->inner) {
        loading->state.kind->take_over(loading);
    }
}

static void clean_up(struct tally__loading *loading)
{
    if (loading->inner) {
        clean_up(loading->inner);
        tally__free(loading->inner);
    }
    if (loading->fresh) {
        loading->state.kind->free(loading->fresh);
    }
    for (size_t r = 0; loading->blobs && r < loading->n; r++) {
        tally__free(loading->blobs[r].copy);
    }
    tally__free(loading->fresh);
    tally__free(loading->blobs);
}

int tally__state_load(const struct tally__state *state, const void *const *blobs,
                      const size_t *bytes, size_t n)
{
    struct tally__loading loading = {.state = *state, .n = n};
    int rc = agree(&loading, prepare(&loading, blobs, bytes));

    if (rc == TALLY_OK) {
        rc = start(&loading);
    }
    if (rc == TALLY_OK) {
        take_over(&loading);
    }
    clean_up(&loading);
    return rc;
}
