/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving: the hook's state and the residuals of a ddp, as a blob per rank (blob.h). Local. One
 * thread of the application enters at a time, between steps.
 */
#include <string.h>

#include "base/status.h"
#include "ddp/ddp.h"
#include "state/blob.h"

static void put_all(const tally_ddp *ddp, const tally_hook_blob *state,
                    struct tally__blob_writer *writer)
{
    const struct tally__blob_head head = {.magic = TALLY__BLOB_MAGIC,
                                          .version = TALLY__BLOB_VERSION,
                                          .rank = (uint32_t)tally_group_rank(ddp->group),
                                          .world = (uint32_t)tally_group_size(ddp->group),
                                          .n_params = (uint32_t)ddp->n_params,
                                          .n_steps = ddp->step + ddp->steps_before};

    const struct tally__hook_kind_name kind = tally__hook_kind_name(ddp->hook);
    const uint64_t flags = (kind.is_own ? TALLY__BLOB_HOOK_OWN : 0) |
                           (tally__hook_runs_here(ddp->hook) ? TALLY__BLOB_HOOK_RAN : 0);

    tally__blob_put(writer, &head, sizeof head);
    tally__blob_put_array(writer, ddp->hook->table.name, strlen(ddp->hook->table.name));
    tally__blob_put(writer, &flags, sizeof flags);
    tally__blob_put_array(writer, kind.text, kind.length);
    tally__blob_put_array(writer, ddp->order,
                          ddp->stats.rebuilt ? ddp->n_order * sizeof *ddp->order : 0);
    for (size_t i = 0; i < ddp->n_params; i++) {
        tally__blob_put_param(writer, &ddp->params[i], &ddp->residuals->params[i]);
    }
    tally__blob_put_array(writer, state->data, state->bytes);
}

static int save(const tally_ddp *ddp, const tally_hook_blob *state, void *blob, size_t *bytes)
{
    struct tally__blob_writer counter = {0};
    struct tally__blob_writer writer = {.to = blob};

    put_all(ddp, state, &counter);
    if (blob && *bytes < counter.used) {
        return tally__fail(TALLY_ARG, "tally_ddp_save: room for %zu bytes, needed are %zu", *bytes,
                           counter.used);
    }
    if (blob) {
        put_all(ddp, state, &writer);
        tally__blob_seal(blob, writer.used);
    }
    *bytes = counter.used;
    return TALLY_OK;
}

int tally_ddp_save(tally_ddp *ddp, void *blob, size_t *bytes)
{
    tally_hook_blob state;
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_save"));
    if (!bytes) {
        return tally__fail(TALLY_ARG, "tally_ddp_save: bytes is NULL");
    }
    TRY(tally__residuals_make_plain(ddp->residuals));
    TRY(tally__hook_state_take(ddp->hook, &state));
    rc = save(ddp, &state, blob, bytes);
    tally__hook_state_free(&state);
    return rc;
}
