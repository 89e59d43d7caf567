/* SPDX-License-Identifier: Apache-2.0 */
/* Wrapper hooks; see wrapper.h. Each entry is called by the threads that may call the same entry of
 * the hook inside. */
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

    return inner->table.attach(inner->state, ddp);
}

static void detach(void *state, tally_ddp *ddp)
{
    const tally_hook *inner = inner_of(state);

    inner->table.detach(inner->state, ddp);
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

static int enter(void *state, tally_ddp *ddp)
{
    const tally_hook *inner = inner_of(state);

    return inner->private.enter(inner->state, ddp);
}

static void leave(void *state)
{
    const tally_hook *inner = inner_of(state);

    inner->private.leave(inner->state);
}

static bool runs_here(const void *state)
{
    const tally_hook *inner = inner_of(state);

    return inner->private.runs_here(inner->state);
}

static void destroy(void *state)
{
    struct tally__wrapper *wrapper = state;

    tally_hook_free(wrapper->inner);
    tally__free(wrapper);
}

struct tally__wrapper_table tally__wrapper_table(const char *name, const tally_hook *inner)
{
    return (struct tally__wrapper_table){
        .table = {.size = sizeof(tally_hook_table),
                  .name = name,
                  .concurrent = inner->table.concurrent,
                  .feedback = inner->table.feedback,
                  .attach = attach,
                  .detach = detach,
                  .save = save,
                  .load = load,
                  .destroy = destroy,
                  .elementwise = inner->table.elementwise},
        .private = {.layout_bound = inner->private.layout_bound,
                    .sends_nothing = inner->private.sends_nothing,
                    .divides = inner->private.divides,
                    .is_led = inner->private.is_led,
                    .enter = enter,
                    .leave = leave,
                    .runs_here = runs_here},
    };
}

int tally__wrapper_divide(struct tally__wrapper_table *table, const tally_hook *inner)
{
    if (inner->private.divides) {
        return tally__fail(TALLY_ARG, "the hook inside divides the ranks into groups too: use only "
                                      "one of hosts and postlocal");
    }
    table->private.divides = true;
    return TALLY_OK;
}

static void close_groups(tally_group *const groups[2])
{
    (void)tally_group_close(groups[1]);
    (void)tally_group_close(groups[0]);
}

int tally__division_enter(struct tally__division *division, tally_ddp *ddp, const char *hook,
                          tally_group *const made[2], int status)
{
    if (status == TALLY_OK && division->n_entered == 0) {
        *division = (struct tally__division){.ddp = ddp, .groups = {made[0], made[1]}};
    } else {
        close_groups(made);
    }
    TRY(status);
    if (division->ddp != ddp) {
        return tally__fail(TALLY_STATE, "a %s hook serves one ddp at a time", hook);
    }
    division->n_entered++;
    return TALLY_OK;
}

void tally__division_leave(struct tally__division *division)
{
    if (--division->n_entered == 0) {
        close_groups(division->groups);
        *division = (struct tally__division){.ddp = NULL};
    }
}

int tally__wrapper_make(const struct tally__wrapper_table *table, struct tally__wrapper *state,
                        tally_hook *inner, tally_hook **hook)
{
    if (inner->private.follows_steps) {
        tally__free(state);
        return tally__fail(TALLY_ARG,
                           "'%s' cannot be inside another hook: put wrappers into its candidates",
                           inner->table.name);
    }
    state->inner = inner;
    tally__hook_hold(inner); /* destroy drops it */
    TRY(tally__hook_make(&table->table, &table->private, state, hook));
    (*hook)->inner = inner;
    return TALLY_OK;
}
