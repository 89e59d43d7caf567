/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading an averager, for the driver in state/save_load.h. Behind the head, in which
 * steps are the steps counted, its blob has
 *
 *   anchor     whether there is one
 *   names      of the hook and of the outer optimizer
 *   parameter  for each one its identity (ddp_state.h); on rank 0, since all ranks have the same:
 *              the anchor, and the outer optimizer's steps and state
 *   ddp        the blob of the averager's own ddp: residuals and the hook's state. Empty in a
 *              consolidated blob, which is that of a world of one
 *
 * One thread of the application enters at a time, between steps.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/stats.h"
#include "train/averager.h"

static const char *outer_name(const tally_averager *averager)
{
    return averager->outer ? averager->outer->name : "";
}

/* ---- saving ---- */

int tally__averager_state_make(tally_averager *averager, bool is_whole,
                               struct tally__averager_state *state)
{
    *state = (struct tally__averager_state){.state = tally__averager_state_of(averager)};
    state->state.is_whole = is_whole;
    if (!is_whole) {
        return tally__ddp_state_make(averager->ddp, &state->ddp);
    }
    return averager->is_lossy
               ? tally__fail(TALLY_UNSUPPORTED,
                             "averager: its hook '%s' leaves something out, on each rank "
                             "something else: save every rank's state",
                             averager->hook->table.name)
               : TALLY_OK;
}

void tally__averager_state_free(struct tally__averager_state *state)
{
    tally__ddp_state_free(&state->ddp);
}

/* Arrays have all elements or none. */
static void write_param(const tally_averager *averager, size_t k, bool is_first,
                        struct tally__blob_writer *writer)
{
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->of->params[averaged->index];
    const struct tally__moments *moments = &averaged->moments;
    size_t bytes = is_first && averager->has_anchor && averaged->anchor ? param->bytes : 0;

    tally__put_identity(writer, param);
    tally__blob_put_array(writer, averaged->anchor, bytes);
    tally__blob_put_number(writer, moments->step);
    for (int s = 0; s < moments->n_states; s++) {
        tally__blob_put_array(writer, moments->state[s], bytes);
    }
}

static void write(const struct tally__state *state, struct tally__blob_writer *writer)
{
    const struct tally__averager_state *saved = (const struct tally__averager_state *)state;
    const tally_averager *averager = state->object;

    tally__blob_put_number(writer, averager->has_anchor);
    tally__blob_put_array(writer, averager->hook->table.name, strlen(averager->hook->table.name));
    tally__blob_put_array(writer, outer_name(averager), strlen(outer_name(averager)));
    for (size_t k = 0; k < averager->n_params; k++) {
        write_param(averager, k, state->is_whole || state->rank == 0, writer);
    }
    tally__state_put(writer, state->is_whole ? NULL : &saved->ddp.state);
}

/* ---- reading blobs ---- */

/* One parameter's entry in blob 0; the arrays lie in the blob. NULL: none. */
struct saved_param {
    const float *anchor;
    uint64_t step;
    const float *state[TALLY_MAX_STATES];
};

struct fresh {
    uint64_t has_anchor; /* as blob 0 says */
    struct saved_param *params;
};

static int check_name(const char *what, const char *ours, struct tally__blob_reader *reader,
                      size_t r)
{
    size_t bytes;
    const char *name = tally__blob_take_array(reader, &bytes);

    if (reader->bad) {
        return tally__state_damaged(r);
    }
    if (bytes != strlen(ours) || memcmp(name, ours, bytes) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu is of an averager with %s '%s', not '%.200s'", r,
                           what, tally__blob_show(name, bytes).text, ours);
    }
    return TALLY_OK;
}

static int read_param(const struct tally__loading *loading, size_t r, size_t k)
{
    const tally_averager *averager = loading->state.object;
    const struct fresh *fresh = loading->fresh;
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->of->params[averaged->index];
    struct tally__blob_reader *reader = &loading->blobs[r].reader;
    size_t n = r == 0 && fresh->has_anchor && averaged->anchor ? param->n : 0;
    struct saved_param saved = {0};
    struct tally__identity is;

    tally__take_identity(reader, &is);
    if (reader->bad) {
        return tally__state_damaged(r);
    }
    TRY(tally__check_identity(param, &is, r));
    saved.anchor = tally__blob_take_floats(reader, n);
    saved.step = tally__blob_take_number(reader);
    for (int s = 0; s < averaged->moments.n_states; s++) {
        saved.state[s] = tally__blob_take_floats(reader, n);
    }
    if (r == 0) {
        fresh->params[k] = saved;
    }
    return TALLY_OK;
}

static int read_blob(struct tally__loading *loading, size_t r)
{
    const tally_averager *averager = loading->state.object;
    struct fresh *fresh = loading->fresh;
    struct tally__blob *blob = &loading->blobs[r];
    uint64_t has_anchor = tally__blob_take_number(&blob->reader);

    fresh->has_anchor = r == 0 ? has_anchor : fresh->has_anchor;
    TRY(check_name("hook", averager->hook->table.name, &blob->reader, r));
    TRY(check_name("outer optimizer", outer_name(averager), &blob->reader, r));
    for (size_t k = 0; k < averager->n_params; k++) {
        TRY(read_param(loading, r, k));
    }
    blob->inner = tally__blob_take_array(&blob->reader, &blob->inner_bytes);
    TRY(tally__state_check_end(loading, r));
    /* Only a consolidated blob is without the ddp's. */
    return has_anchor != fresh->has_anchor || (blob->inner_bytes == 0 && loading->n > 1)
               ? tally__state_damaged(r)
               : TALLY_OK;
}

/* ---- loading ---- */

static int check(struct tally__loading *loading)
{
    const tally_averager *averager = loading->state.object;
    struct fresh *fresh = loading->fresh;
    struct tally__state of_ddp;

    fresh->params = tally__alloc_array(averager->n_params, sizeof *fresh->params, "saved states");
    if (!fresh->params) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < loading->n; r++) {
        TRY(read_blob(loading, r));
    }
    if (loading->blobs[0].inner_bytes == 0) {
        return TALLY_OK;
    }
    of_ddp = tally__ddp_state_of(averager->ddp);
    return tally__state_check_inner(loading, &of_ddp);
}

static void take_param(struct tally__averaged *averaged, size_t n, const struct saved_param *saved)
{
    size_t bytes = n * sizeof *averaged->anchor;

    averaged->moments.step = saved->step;
    for (int s = 0; s < averaged->moments.n_states; s++) {
        if (saved->state[s]) {
            memcpy(averaged->moments.state[s], saved->state[s], bytes);
        } else {
            memset(averaged->moments.state[s], 0, bytes);
        }
    }
    if (saved->anchor) {
        memcpy(averaged->anchor, saved->anchor, bytes);
    }
}

static void take_over(const struct tally__loading *loading)
{
    tally_averager *averager = loading->state.object;
    const struct fresh *fresh = loading->fresh;

    for (size_t k = 0; k < averager->n_params; k++) {
        struct tally__averaged *averaged = &averager->params[k];

        take_param(averaged, averager->of->params[averaged->index].n, &fresh->params[k]);
    }
    averager->n_steps = loading->blobs[0].head.n_steps;
    averager->has_anchor = fresh->has_anchor != 0;
}

static void free_fresh(void *fresh)
{
    tally__free(((struct fresh *)fresh)->params);
}

struct tally__state tally__averager_state_of(tally_averager *averager)
{
    static const struct tally__state_kind kind = {.magic = UINT64_C(0x317641796c6c6154),
                                                  .version = 1,
                                                  .name = "averager",
                                                  .counts = "steps",
                                                  .owner = "averager",
                                                  .fresh_bytes = sizeof(struct fresh),
                                                  .write = write,
                                                  .check = check,
                                                  .take_over = take_over,
                                                  .free = free_fresh};

    return tally__state_of(&kind, averager, averager->of, averager->n_params, averager->n_steps);
}

/* ---- calls ---- */

int tally_averager_save(tally_averager *averager, void *blob, size_t *bytes)
{
    struct tally__averager_state state;
    int rc;

    if (!averager) {
        return tally__fail(TALLY_ARG, "tally_averager_save: averager is NULL");
    }
    TRY(tally__check_between_steps(averager->of, "tally_averager_save"));
    TRY(tally__averager_state_make(averager, false, &state));
    rc = tally__state_save(&state.state, "tally_averager_save", blob, bytes);
    tally__averager_state_free(&state);
    return rc;
}

int tally_averager_load(tally_averager *averager, const void *const *blobs, const size_t *bytes,
                        size_t n)
{
    struct tally__state state;

    if (!averager) {
        return tally__fail(TALLY_ARG, "tally_averager_load: averager is NULL");
    }
    TRY(tally__check_between_steps(averager->of, "tally_averager_load"));
    state = tally__averager_state_of(averager);
    return tally__stats_note(averager->of, tally__state_load(&state, blobs, bytes, n));
}
