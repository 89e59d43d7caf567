/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving and loading an optimizer, for the driver in state/save_load.h. Behind the head, in which
 * steps are updates, its blob has
 *
 *   counts     steps that were skipped; the loss scale, 0 for none; good steps since it changed
 *   groups     their number; name and learning rate of each
 *   parameter  for each one its identity (ddp_state.h); its group; its steps; the run of elements
 *              that its state covers; the state, array by array
 *   averager   the blob of the averager that this optimizer calls; empty without one
 *
 * A consolidated blob, with the state of all ranks, is the blob of a world of one. One thread of
 * the application enters at a time, between steps.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "train/averager.h"
#include "train/optimizer.h"

/* The numbers of a blob, and those of one parameter, as they lie in it. */
struct counts {
    uint64_t n_skipped;
    double scale; /* of the loss; 0: none */
    uint64_t n_good;
    uint64_t n_groups;
};

struct extent {
    int64_t group;
    uint64_t step;
    uint64_t first;
    uint64_t n;
    uint64_t n_states;
};

/* ---- saving ---- */

static void write_param(const struct tally__param *param, const struct tally__updated *updated,
                        struct tally__blob_writer *writer)
{
    const struct tally__moments *moments = &updated->moments;
    const struct extent extent = {.group = updated->group,
                                  .step = moments->step,
                                  .first = moments->first,
                                  .n = moments->n,
                                  .n_states = (uint64_t)moments->n_states};

    tally__put_identity(writer, param);
    tally__blob_put(writer, &extent, sizeof extent);
    for (int k = 0; k < moments->n_states; k++) {
        tally__blob_put_array(writer, moments->state[k], moments->n * sizeof *moments->state[k]);
    }
}

static void write(const struct tally__state *state, struct tally__blob_writer *writer)
{
    const tally_optimizer *optimizer = state->object;
    const struct tally__updated *updated = state->parts;
    const struct counts counts = {.n_skipped = optimizer->n_skipped,
                                  .scale = optimizer->loss.scale,
                                  .n_good = optimizer->loss.n_good,
                                  .n_groups = optimizer->n_groups};

    tally__blob_put(writer, &counts, sizeof counts);
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        const char *name = optimizer->rules[g]->name;

        tally__blob_put_array(writer, name, strlen(name));
        tally__blob_put(writer, &optimizer->lr[g], sizeof optimizer->lr[g]);
    }
    for (size_t i = 0; i < optimizer->n_params; i++) {
        write_param(&optimizer->ddp->params[i], &updated[i], writer);
    }
    tally__state_put_inner(state, writer);
}

/* ---- reading blobs ---- */

/* One parameter's entry; the arrays lie in the blob. */
struct saved_param {
    struct extent of;
    const float *state[TALLY_MAX_STATES];
};

/* The numbers that this rank takes over. Moments are copied from the blobs to where they are. */
struct fresh {
    struct counts counts; /* of blob 0 */
    double *lr;           /* per group, of blob 0 */
};

/* The bytes of a rule's name without its options. */
static size_t kind_bytes(const char *name, size_t n)
{
    const char *end = memchr(name, ':', n);

    return end ? (size_t)(end - name) : n;
}

static int read_group(struct tally__state *state, size_t r, size_t g)
{
    const tally_optimizer *optimizer = state->object;
    const struct fresh *fresh = state->fresh;
    struct tally__blob_reader *reader = &state->blobs[r].reader;
    const char *ours = optimizer->rules[g]->name;
    size_t bytes;
    const char *name = tally__blob_take_array(reader, &bytes);
    double lr;

    tally__blob_take(reader, &lr, sizeof lr);
    if (reader->bad || !tally__is_lr(lr)) {
        return tally__state_damaged(r);
    }
    if (kind_bytes(name, bytes) != kind_bytes(ours, strlen(ours)) ||
        memcmp(name, ours, kind_bytes(name, bytes)) != 0) {
        return tally__fail(TALLY_ARG, "blob %zu has '%s' in group %zu, this optimizer has '%.200s'",
                           r, tally__blob_show(name, bytes).text, g, ours);
    }
    fresh->lr[g] = r == 0 ? lr : fresh->lr[g];
    return TALLY_OK;
}

static int read_groups(struct tally__state *state, size_t r)
{
    const tally_optimizer *optimizer = state->object;
    struct tally__blob_reader *reader = &state->blobs[r].reader;
    struct fresh *fresh = state->fresh;
    struct counts counts;

    tally__blob_take(reader, &counts, sizeof counts);
    if (reader->bad || (counts.scale != 0 && !tally__is_loss_scale(counts.scale))) {
        return tally__state_damaged(r);
    }
    if (counts.n_groups != optimizer->n_groups) {
        return tally__fail(TALLY_ARG, "blob %zu has %llu groups, this optimizer has %zu", r,
                           (unsigned long long)counts.n_groups, optimizer->n_groups);
    }
    fresh->counts = r == 0 ? counts : fresh->counts;
    for (size_t g = 0; g < optimizer->n_groups; g++) {
        TRY(read_group(state, r, g));
    }
    return TALLY_OK;
}

static int read_param(struct tally__state *state, size_t r, size_t i)
{
    const tally_optimizer *optimizer = state->object;
    const struct tally__param *param = &optimizer->ddp->params[i];
    const struct tally__updated *updated = &optimizer->updated[i];
    struct tally__blob_reader *reader = &state->blobs[r].reader;
    struct saved_param *saved = (struct saved_param *)state->blobs[r].params + i;

    TRY(tally__check_identity(reader, param, r));
    tally__blob_take(reader, &saved->of, sizeof saved->of);
    if (reader->bad || saved->of.n > param->n || saved->of.first > param->n - saved->of.n) {
        return tally__state_damaged(r);
    }
    if (saved->of.group != updated->group) {
        return tally__fail(TALLY_ARG, "blob %zu has parameter '%.200s' in group %lld, not in %d", r,
                           param->name, (long long)saved->of.group, updated->group);
    }
    if (saved->of.n_states != (uint64_t)updated->moments.n_states) {
        return tally__fail(TALLY_ARG,
                           "blob %zu has parameter '%.200s' with %llu arrays of state, its "
                           "optimizer has %d",
                           r, param->name, (unsigned long long)saved->of.n_states,
                           updated->moments.n_states);
    }
    for (uint64_t k = 0; k < saved->of.n_states; k++) {
        saved->state[k] = tally__blob_take_floats(reader, saved->of.n);
    }
    return TALLY_OK;
}

static int read_blob(struct tally__state *state, size_t r)
{
    const tally_optimizer *optimizer = state->object;
    struct tally__blob *blob = &state->blobs[r];

    TRY(read_groups(state, r));
    for (size_t i = 0; i < optimizer->n_params; i++) {
        TRY(read_param(state, r, i));
    }
    blob->inner = tally__blob_take_array(&blob->reader, &blob->inner_bytes);
    TRY(tally__state_check_end(state, r));
    if ((blob->inner_bytes > 0) != (optimizer->config.averager != NULL)) {
        return tally__fail(
            TALLY_ARG, "blob %zu was saved %s an averager, but this optimizer has %s", r,
            blob->inner_bytes > 0 ? "with" : "without", blob->inner_bytes > 0 ? "none" : "one");
    }
    return TALLY_OK;
}

/* ---- moments ---- */

/* The entry with the state of parameter i's element at; NULL: there is none. With as many ranks as
 * then, this rank's own blob comes first. */
static const struct saved_param *find_entry(const struct tally__state *state, size_t i, size_t at)
{
    size_t own = state->n == (size_t)state->world ? (size_t)state->rank : 0;

    for (size_t k = 0; k < state->n; k++) {
        const struct saved_param *params = state->blobs[(own + k) % state->n].params;
        const struct saved_param *param = &params[i];

        if (param->of.first <= at && at - param->of.first < param->of.n) {
            return param;
        }
    }
    return NULL;
}

/* Puts the state of the elements that this rank updates together, or only finds that all of it is
 * there. */
static int gather(const struct tally__state *state, size_t i, bool copies)
{
    const tally_optimizer *optimizer = state->object;
    struct tally__moments *moments = &optimizer->updated[i].moments;
    size_t end = moments->first + moments->n;

    for (size_t at = moments->first; at < end;) {
        const struct saved_param *param = find_entry(state, i, at);
        size_t n;

        if (!param) {
            return tally__fail(TALLY_ARG, "no blob has the state of element %zu of '%.200s'", at,
                               optimizer->ddp->params[i].name);
        }
        n = (size_t)(param->of.first + param->of.n) - at;
        n = n < end - at ? n : end - at;
        for (int k = 0; copies && k < moments->n_states; k++) {
            memcpy(moments->state[k] + (at - moments->first),
                   param->state[k] + (at - param->of.first), n * sizeof *moments->state[k]);
        }
        moments->step = copies ? param->of.step : moments->step;
        at += n;
    }
    return TALLY_OK;
}

static int check_moments(const struct tally__state *state)
{
    const tally_optimizer *optimizer = state->object;

    for (size_t i = 0; i < optimizer->n_params; i++) {
        if (optimizer->updated[i].group >= 0) {
            TRY(gather(state, i, false));
        }
    }
    return TALLY_OK;
}

/* They are complete: it cannot fail. */
static void take_moments(const struct tally__state *state)
{
    const tally_optimizer *optimizer = state->object;
    const struct saved_param *first = state->blobs[0].params;

    for (size_t i = 0; i < optimizer->n_params; i++) {
        if (optimizer->updated[i].group >= 0) {
            optimizer->updated[i].moments.step = first[i].of.step;
            (void)gather(state, i, true);
        }
    }
}

/* ---- loading ---- */

static int check(struct tally__state *state)
{
    const tally_optimizer *optimizer = state->object;
    struct fresh *fresh = state->fresh;

    fresh->lr = tally__alloc_array(optimizer->n_groups, sizeof *fresh->lr, "saved states");
    if (!fresh->lr) {
        return TALLY_NOMEM;
    }
    for (size_t r = 0; r < state->n; r++) {
        TRY(read_blob(state, r));
    }
    return check_moments(state);
}

static void take_over(const struct tally__state *state)
{
    tally_optimizer *optimizer = state->object;
    const struct fresh *fresh = state->fresh;

    memcpy(optimizer->lr, fresh->lr, optimizer->n_groups * sizeof *optimizer->lr);
    (void)pthread_mutex_lock(&optimizer->ddp->mutex);
    take_moments(state);
    optimizer->n_updates = state->blobs[0].head.n_steps;
    optimizer->n_skipped = fresh->counts.n_skipped;
    if (optimizer->loss.scale > 0 && fresh->counts.scale > 0) {
        optimizer->loss.scale = fresh->counts.scale;
        optimizer->loss.n_good = fresh->counts.n_good;
    }
    (void)pthread_mutex_unlock(&optimizer->ddp->mutex);
    optimizer->due = false;
}

static void free_fresh(void *loaded)
{
    const struct fresh *fresh = loaded;

    tally__free(fresh->lr);
}

void tally__optimizer_state(tally_optimizer *optimizer, bool is_whole, struct tally__state state[3])
{
    static const struct tally__state_kind kind = {.magic = UINT64_C(0x316d7974706f6c54),
                                                  .version = 1,
                                                  .name = "optimizer",
                                                  .counts = "updates",
                                                  .params_of = "model",
                                                  .fresh_bytes = sizeof(struct fresh),
                                                  .param_bytes = sizeof(struct saved_param),
                                                  .write = write,
                                                  .check = check,
                                                  .take_over = take_over,
                                                  .free = free_fresh};

    state[0] = tally__state_of(&kind, optimizer, optimizer->ddp, optimizer->n_params,
                               optimizer->n_updates);
    state[0].is_whole = is_whole;
    state[0].parts = optimizer->updated;
    if (optimizer->config.averager) {
        state[0].inner = &state[1];
        tally__averager_state(optimizer->config.averager, is_whole, &state[1]);
    }
}

/* ---- calls ---- */

int tally_optimizer_save(tally_optimizer *optimizer, void *blob, size_t *bytes)
{
    struct tally__state state[3];

    TRY(tally__optimizer_check(optimizer, "tally_optimizer_save"));
    tally__optimizer_state(optimizer, false, state);
    return tally__state_save(state, "tally_optimizer_save", blob, bytes);
}

/* On root; other ranks have nothing to write. */
static int save_whole(tally_optimizer *optimizer, const struct tally__updated *whole, int root,
                      void *blob, size_t *bytes)
{
    int size = tally_group_size(optimizer->ddp->group);
    struct tally__state state[3];

    if (root < 0 || root >= size) {
        return tally__fail(TALLY_ARG, "tally_optimizer_consolidate: root %d is not in 0..%d", root,
                           size - 1);
    }
    tally__optimizer_state(optimizer, true, state);
    state[0].parts = whole;
    return state[0].rank == root
               ? tally__state_save(state, "tally_optimizer_consolidate", blob, bytes)
               : TALLY_OK;
}

int tally_optimizer_consolidate(tally_optimizer *optimizer, int root, void *blob, size_t *bytes)
{
    struct tally__updated *collected = NULL;
    int rc;

    TRY(tally__optimizer_check(optimizer, "tally_optimizer_consolidate"));
    if (optimizer->zero) {
        TRY(tally__stats_note(optimizer->ddp,
                              tally__zero_collect(optimizer, root, blob != NULL, &collected)));
    }
    rc = save_whole(optimizer, collected ? collected : optimizer->updated, root, blob, bytes);
    tally__zero_collected_free(optimizer, collected);
    return tally__stats_note(optimizer->ddp, tally__ddp_agree(optimizer->ddp, rc, NULL, NULL));
}

int tally_optimizer_load(tally_optimizer *optimizer, const void *const *blobs, const size_t *bytes,
                         size_t n)
{
    struct tally__state state[3];

    TRY(tally__optimizer_check(optimizer, "tally_optimizer_load"));
    tally__optimizer_state(optimizer, false, state);
    return tally__stats_note(optimizer->ddp, tally__state_load(state, blobs, bytes, n));
}
