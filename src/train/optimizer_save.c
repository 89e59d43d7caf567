/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving an optimizer: its state as a blob per rank, or as one blob for all. A blob (see blob.h for
 * the head and the way things follow one another):
 *
 *   head       as that of a ddp, with a magic number of its own; steps are updates
 *   counts     steps that were skipped; the loss scale, 0 for none; good steps since it changed
 *   groups     how many; of each its name and its learning rate
 *   parameter  name, shape, dtype; its group; its steps; the run of elements its state is of; the
 *              state, array by array
 *   averager   what the averager saves that this optimizer calls; empty without one
 *
 * A blob for all is the blob of a world of one. One thread of the application enters at a time,
 * between steps.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ddp/stats.h"
#include "train/averager.h"
#include "train/optimizer.h"
#include "train/optimizer_blob.h"

static void put_number(struct tally__blob_writer *writer, uint64_t number)
{
    tally__blob_put(writer, &number, sizeof number);
}

static void put_groups(const tally_optimizer *optimizer, struct tally__blob_writer *writer)
{
    put_number(writer, optimizer->n_groups);
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        const char *name = optimizer->rules[g]->name;

        tally__blob_put_array(writer, name, strlen(name));
        tally__blob_put(writer, &optimizer->lr[g], sizeof optimizer->lr[g]);
    }
}

static void put_param(const struct tally__param *param, const struct tally__updated *updated,
                      struct tally__blob_writer *writer)
{
    const struct tally__moments *moments = &updated->moments;

    tally__blob_put_identity(writer, param);
    put_number(writer, (uint64_t)(int64_t)updated->group);
    put_number(writer, moments->step);
    put_number(writer, moments->first);
    put_number(writer, moments->n);
    put_number(writer, (uint64_t)moments->n_states);
    for (int k = 0; k < moments->n_states; k++) {
        tally__blob_put_array(writer, moments->state[k], moments->n * sizeof *moments->state[k]);
    }
}

static void put_all(const tally_optimizer *optimizer, const struct tally__updated *updated,
                    bool is_whole, const tally_hook_blob *averager,
                    struct tally__blob_writer *writer)
{
    const tally_ddp *ddp = optimizer->ddp;
    const struct tally__blob_head head = {
        .magic = TALLY__OPTIMIZER_MAGIC,
        .version = TALLY__OPTIMIZER_VERSION,
        .rank = is_whole ? 0 : (uint32_t)tally_group_rank(ddp->group),
        .world = is_whole ? 1 : (uint32_t)tally_group_size(ddp->group),
        .n_params = (uint32_t)ddp->n_params,
        .n_steps = optimizer->n_updates};

    tally__blob_put(writer, &head, sizeof head);
    put_number(writer, optimizer->n_skipped);
    tally__blob_put(writer, &optimizer->loss.scale, sizeof optimizer->loss.scale);
    put_number(writer, optimizer->loss.n_good);
    put_groups(optimizer, writer);
    for (size_t i = 0; i < ddp->n_params; i++) {
        put_param(&ddp->params[i], &updated[i], writer);
    }
    tally__blob_put_array(writer, averager->data, averager->bytes);
}

/* Writes the state of these parameters: this rank's, or all there is. */
static int save(const tally_optimizer *optimizer, const struct tally__updated *updated,
                bool is_whole, void *blob, size_t *bytes)
{
    struct tally__blob_writer counter = {0};
    struct tally__blob_writer writer = {.to = blob};
    tally_hook_blob averager = {0};
    int rc = TALLY_OK;

    if (optimizer->config.averager) {
        TRY(tally__averager_state_take(optimizer->config.averager, is_whole, &averager));
    }
    put_all(optimizer, updated, is_whole, &averager, &counter);
    if (blob && *bytes < counter.used) {
        rc = tally__fail(TALLY_ARG, "%s: room for %zu bytes, needed are %zu",
                         is_whole ? "tally_optimizer_consolidate" : "tally_optimizer_save", *bytes,
                         counter.used);
    } else if (blob) {
        put_all(optimizer, updated, is_whole, &averager, &writer);
        tally__blob_seal(blob, writer.used);
    }
    *bytes = rc == TALLY_OK ? counter.used : *bytes;
    tally__free((void *)averager.data);
    return rc;
}

int tally_optimizer_save(tally_optimizer *optimizer, void *blob, size_t *bytes)
{
    TRY(tally__optimizer_check(optimizer, "tally_optimizer_save"));
    return bytes ? save(optimizer, optimizer->updated, false, blob, bytes)
                 : tally__fail(TALLY_ARG, "tally_optimizer_save: bytes is NULL");
}

/* On root; the others have nothing to do but to hear how it went. */
static int save_whole(const tally_optimizer *optimizer, const struct tally__updated *whole,
                      int root, void *blob, size_t *bytes)
{
    int size = tally_group_size(optimizer->ddp->group);

    if (root < 0 || root >= size) {
        return tally__fail(TALLY_ARG, "tally_optimizer_consolidate: root %d is not in 0..%d", root,
                           size - 1);
    }
    if (tally_group_rank(optimizer->ddp->group) != root) {
        return TALLY_OK;
    }
    return bytes ? save(optimizer, whole, true, blob, bytes)
                 : tally__fail(TALLY_ARG, "tally_optimizer_consolidate: bytes is NULL");
}

int tally_optimizer_consolidate(tally_optimizer *optimizer, int root, void *blob, size_t *bytes)
{
    struct tally__updated *collected = NULL;
    struct tally__outcome outcome;

    TRY(tally__optimizer_check(optimizer, "tally_optimizer_consolidate"));
    if (optimizer->zero) {
        TRY(tally__stats_note(optimizer->ddp,
                              tally__zero_collect(optimizer, root, blob != NULL, &collected)));
    }
    outcome = tally__outcome_of(
        save_whole(optimizer, collected ? collected : optimizer->updated, root, blob, bytes));
    tally__zero_collected_free(optimizer, collected);
    return tally__stats_note(optimizer->ddp,
                             tally__ddp_run(optimizer->ddp, tally__outcome_job, &outcome));
}
