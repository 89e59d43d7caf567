/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks around another hook: see wrapper.h. Any thread enters where it may enter the hook inside.
 */
#include "hook/wrapper.h"

#include "base/memory.h"
#include "base/status.h"

static const tally_hook *inner_of(const void *state)
{
    return ((const struct tally__wrapper *)state)->inner;
}

static int attach(void *state, tally_ddp *ddp)
{
    const tally_hook *inner = inner_of(state);

    return inner->table.attach ? inner->table.attach(inner->state, ddp) : TALLY_OK;
}

static void detach(void *state, tally_ddp *ddp)
{
    const tally_hook *inner = inner_of(state);

    if (inner->table.detach) {
        inner->table.detach(inner->state, ddp);
    }
}

static int save(void *state, void *blob, size_t *bytes)
{
    const tally_hook *inner = inner_of(state);

    return inner->table.save(inner->state, blob, bytes);
}

static int load(void *state, const tally_hook_blob *blobs, size_t n_blobs)
{
    const tally_hook *inner = inner_of(state);

    return inner->table.load(inner->state, blobs, n_blobs);
}

static void destroy(void *state)
{
    struct tally__wrapper *wrapper = state;

    tally_hook_free(wrapper->inner);
    tally__free(wrapper);
}

int tally__wrapper_make(const char *name, struct tally__wrapper *state, tally_hook *inner,
                        int (*reduce)(void *, tally_lane *, const tally_bucket *),
                        tally_hook **hook)
{
    const tally_hook_table table = {
        .size = sizeof table,
        .name = name,
        .concurrent = inner->table.concurrent,
        .feedback = inner->table.feedback,
        .attach = attach,
        .reduce = reduce,
        .detach = detach,
        .save = inner->table.save ? save : NULL,
        .load = inner->table.load ? load : NULL,
        .destroy = destroy,
    };

    TRY(tally_hook_create(&table, state, hook));
    state->inner = inner;
    (*hook)->inner = inner;
    (*hook)->elementwise = inner->elementwise;
    (*hook)->layout_bound = inner->layout_bound;
    tally__hook_hold(inner);
    return TALLY_OK;
}
