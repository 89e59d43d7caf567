/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that a reducer passes on to its ddp: hook, saved state, statistics; see reducer.h.
 * Application threads enter.
 */
#include "base/status.h"
#include "comm/threads.h"
#include "ddp/reducer.h"

int tally__reducer_check(const tally_reducer *reducer, const char *call)
{
    return reducer ? tally__check_creator(&reducer->ddp->group->creator)
                   : tally__fail(TALLY_ARG, "%s: reducer is NULL", call);
}

/* In a group that was given up no job runs any more, and the step is over. Otherwise STATE in the
 * middle of a step. */
static int check_between_steps(tally_reducer *reducer, const char *call)
{
    tally_ddp *ddp;

    TRY(tally__reducer_check(reducer, call));
    ddp = reducer->ddp;
    if (!tally__is_alive(ddp->group) && !tally__is_lane_thread()) {
        TRY(tally__drain(&ddp->group->lanes[0]));
        (void)pthread_mutex_lock(&ddp->mutex);
        reducer->n_pending = 0;
        reducer->is_open = false;
        ddp->now.begun = false;
        (void)pthread_mutex_unlock(&ddp->mutex);
    }
    return tally__check_between_steps(ddp, call);
}

int tally_reducer_set_hook(tally_reducer *reducer, const char *text)
{
    TRY(check_between_steps(reducer, "tally_reducer_set_hook"));
    return tally_ddp_set_hook(reducer->ddp, text);
}

int tally_reducer_attach_hook(tally_reducer *reducer, tally_hook *hook)
{
    TRY(check_between_steps(reducer, "tally_reducer_attach_hook"));
    return tally_ddp_attach_hook(reducer->ddp, hook);
}

int tally_reducer_save(tally_reducer *reducer, void *blob, size_t *bytes)
{
    TRY(check_between_steps(reducer, "tally_reducer_save"));
    return tally_ddp_save(reducer->ddp, blob, bytes);
}

int tally_reducer_load(tally_reducer *reducer, const void *const *blobs, const size_t *bytes,
                       size_t n)
{
    TRY(check_between_steps(reducer, "tally_reducer_load"));
    return tally_ddp_load(reducer->ddp, blobs, bytes, n);
}

int tally_reducer_get_stats(tally_reducer *reducer, tally_ddp_stats *stats)
{
    TRY(tally__reducer_check(reducer, "tally_reducer_get_stats"));
    TRY(tally_ddp_get_stats(reducer->ddp, stats));
    (void)pthread_mutex_lock(&reducer->ddp->mutex);
    stats->n_buckets = reducer->n_buckets;
    (void)pthread_mutex_unlock(&reducer->ddp->mutex);
    return TALLY_OK;
}

int tally_reducer_get_rank_stats(tally_reducer *reducer, int rank, tally_rank_stats *stats)
{
    TRY(tally__reducer_check(reducer, "tally_reducer_get_rank_stats"));
    return tally_ddp_get_rank_stats(reducer->ddp, rank, stats);
}
