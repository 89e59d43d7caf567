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

#include "base/status.h"
#include "train/averager.h"

static const char *outer_name(const tally_averager *averager)
{
    return averager->outer ? averager->outer->name : "";
}

/* ---- saving ---- */

/* One blob can stand for all ranks only if they have the same. */
static int snapshot(struct tally__state *state)
{
    const tally_averager *averager = state->object;

    return state->is_whole && averager->is_lossy
               ? tally__fail(TALLY_UNSUPPORTED,
                             "averager: its hook '%s' has residuals, which differ from rank to "
                             "rank: save every rank's state",
                             averager->hook->table.name)
               : TALLY_OK;
}

/* Arrays have all elements or none. */
static void write_param(const tally_averager *averager, size_t k, bool is_first,
                        struct tally__blob_writer *writer)
{
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->app_ddp->params[averaged->index];
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
    const tally_averager *averager = state->object;

    tally__blob_put_number(writer, averager->has_anchor);
    tally__blob_put_array(writer, averager->hook->table.name, strlen(averager->hook->table.name));
    tally__blob_put_array(writer, outer_name(averager), strlen(outer_name(averager)));
    for (size_t k = 0; k < averager->n_params; k++) {
        write_param(averager, k, state->is_whole || state->rank == 0, writer);
    }
    tally__state_put_inner(state, writer);
}

/* ---- reading blobs ---- */

/* One parameter's entry; the arrays lie in the blob. NULL: none. */
struct saved_param {
    const float *anchor;
    uint64_t step;
    const float *state[TALLY_MAX_STATES];
};

struct fresh {
    uint64_t has_anchor; /* as blob 0 says */
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

static int read_param(const struct tally__state *state, size_t r, size_t k)
{
    const tally_averager *averager = state->object;
    const struct fresh *fresh = state->fresh;
    const struct tally__averaged *averaged = &averager->params[k];
    const struct tally__param *param = &averager->app_ddp->params[averaged->index];
    struct tally__blob_reader *reader = &state->blobs[r].reader;
    size_t n = r == 0 && fresh->has_anchor && averaged->anchor ? param->n : 0;
    struct saved_param *saved = (struct saved_param *)state->blobs[r].params + k;

    TRY(tally__check_identity(reader, param, r));
    saved->anchor = tally__blob_take_floats(reader, n);
    saved->step = tally__blob_take_number(reader);
    for (int s = 0; s < averaged->moments.n_states; s++) {
        saved->state[s] = tally__blob_take_floats(reader, n);
    }
    return TALLY_OK;
}

static int read_blob(struct tally__state *state, size_t r)
{
    const tally_averager *averager = state->object;
    struct fresh *fresh = state->fresh;
    struct tally__blob *blob = &state->blobs[r];
    uint64_t has_anchor = tally__blob_take_number(&blob->reader);

    fresh->has_anchor = r == 0 ? has_anchor : fresh->has_anchor;
    TRY(check_name("hook", averager->hook->table.name, &blob->reader, r));
    TRY(check_name("outer optimizer", outer_name(averager), &blob->reader, r));
    for (size_t k = 0; k < averager->n_params; k++) {
        TRY(read_param(state, r, k));
    }
    blob->inner = tally__blob_take_array(&blob->reader, &blob->inner_bytes);
    TRY(tally__state_check_end(state, r));
    /* Only a consolidated blob is without the ddp's. */
    return has_anchor != fresh->has_anchor || (blob->inner_bytes == 0 && state->n > 1)
               ? tally__state_damaged(r)
               : TALLY_OK;
}

/* ---- loading ---- */

static int check(struct tally__state *state)
{
    for (size_t r = 0; r < state->n; r++) {
        TRY(read_blob(state, r));
    }
    return TALLY_OK;
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

static void take_over(const struct tally__state *state)
{
    tally_averager *averager = state->object;
    const struct fresh *fresh = state->fresh;
    const struct saved_param *saved = state->blobs[0].params;

    for (size_t k = 0; k < averager->n_params; k++) {
        struct tally__averaged *averaged = &averager->params[k];

        take_param(averaged, averager->app_ddp->params[averaged->index].n, &saved[k]);
    }
    averager->n_steps = state->blobs[0].head.n_steps;
    averager->has_anchor = fresh->has_anchor != 0;
}

void tally__averager_state(tally_averager *averager, bool is_whole, struct tally__state state[2])
{
    static const struct tally__state_kind kind = {.magic = UINT64_C(0x317641796c6c6154),
                                                  .version = 1,
                                                  .name = "averager",
                                                  .counts = "steps",
                                                  .params_of = "averager",
                                                  .fresh_bytes = sizeof(struct fresh),
                                                  .param_bytes = sizeof(struct saved_param),
                                                  .snapshot = snapshot,
                                                  .write = write,
                                                  .check = check,
                                                  .take_over = take_over};

    state[0] =
        tally__state_of(&kind, averager, averager->app_ddp, averager->n_params, averager->n_steps);
    state[0].is_whole = is_whole;
    state[0].inner = is_whole ? NULL : &state[1];
    state[1] = tally__ddp_state(averager->ddp);
}

/* ---- calls ---- */

int tally_averager_save(tally_averager *averager, void *blob, size_t *bytes)
{
    struct tally__state state[2];

    TRY(tally__averager_check(averager, "tally_averager_save"));
    tally__averager_state(averager, false, state);
    return tally__state_save(state, "tally_averager_save", blob, bytes);
}

int tally_averager_load(tally_averager *averager, const void *const *blobs, const size_t *bytes,
                        size_t n)
{
    struct tally__state state[2];

    TRY(tally__averager_check(averager, "tally_averager_load"));
    tally__averager_state(averager, false, state);
    return tally__stats_note(averager->app_ddp, tally__state_load(state, blobs, bytes, n));
}
