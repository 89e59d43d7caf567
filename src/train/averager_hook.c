/* SPDX-License-Identifier: Apache-2.0 */
/* The hook of an averager's ddp: runs the hook that config names among the ranks of the level that
 * is due. Runs on lanes; the level is chosen before the step and stays. */
#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "hook/wrapper.h"
#include "train/averager.h"

struct level_hook {
    struct tally__wrapper wrapper;
    const tally_averager *averager;
};

static bool stays(const void *user, int n_ranks)
{
    const tally_averager *averager = user;

    for (size_t k = 0; k < averager->n_levels; k++) {
        if (averager->levels[k].n_ranks == n_ranks) {
            return true;
        }
    }
    return false;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct level_hook *own = state;
    const tally_averager *averager = own->averager;
    const struct tally__averager_level *level = &averager->levels[averager->due];
    const tally_hook *inner = own->wrapper.inner;
    struct tally__residuals *residuals = tally__reduction_here()->residuals;
    const struct tally__moving passing = {TALLY__MOVE_SENT, bucket, stays, averager};

    /* Residuals left by the levels of another averager. */
    if (tally__residuals_must_move(residuals, &passing)) {
        TRY(tally__residuals_move(lane, residuals, &passing));
    }
    if (averager->is_lossy && !averager->has_anchor) {
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    return level->group ? tally__hook_reduce_in_subgroup(inner, lane, level->group,
                                                         TALLY__DIVISOR_OF_GROUP, bucket)
                        : tally__hook_reduce(inner, lane, bucket, NULL);
}

int tally__averager_wrap(tally_averager *averager, tally_hook *inner)
{
    struct tally__wrapper_table table = tally__wrapper_table(inner->table.name, inner);
    struct level_hook *own = tally__alloc(sizeof *own, "a hook");

    if (!own) {
        return TALLY_NOMEM;
    }
    own->averager = averager;
    table.table.reduce = reduce;
    return tally__wrapper_make(&table, &own->wrapper, inner, &averager->hook);
}
