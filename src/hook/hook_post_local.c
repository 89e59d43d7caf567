/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapper postlocal, for post-local SGD: up to a step the inner hook averages gradients over
 * all ranks, and from then on over groups of consecutive ranks, or not at all. An averager then
 * averages the parameters (train/averager.h). Reduces on lanes; application threads enter between
 * steps. Serves one ddp at a time.
 */
#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "hook/kind.h"
#include "hook/wrapper.h"

struct post_local {
    struct tally__wrapper wrapper;
    uint64_t start;
    int group_size; /* 0 or 1: nothing is exchanged */
    struct tally__division division;
};

/* The ranks that exchange from start on; NULL: none. */
static tally_group *group_of(const struct post_local *local)
{
    return local->division.groups[0];
}

/* Divides the ddp's group; NULL where each rank is alone. */
static int divide(const struct post_local *local, tally_ddp *ddp, tally_group **group)
{
    tally_group *all = tally_ddp_group(ddp);
    int size = tally_group_size(all);
    int rank = tally_group_rank(all);

    *group = NULL;
    if (local->group_size <= 1) {
        return TALLY_OK;
    }
    if (size % local->group_size != 0) {
        return tally__fail(TALLY_ARG, "postlocal: groups of %d do not divide %d ranks",
                           local->group_size, size);
    }
    return tally_group_split(all, rank / local->group_size, rank, group);
}

static int enter(void *state, tally_ddp *ddp)
{
    struct post_local *local = state;
    tally_group *made[2] = {NULL, NULL};
    int rc = divide(local, ddp, &made[0]);

    return tally__division_enter(&local->division, ddp, "postlocal", made, rc);
}

static void leave(void *state)
{
    struct post_local *local = state;

    tally__division_leave(&local->division);
}

/* Residuals of a group's means stay with that group. */
static bool stays(const void *user, int n_ranks)
{
    const struct post_local *local = user;

    return group_of(local) && n_ranks == tally_group_size(group_of(local));
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    const struct post_local *local = state;
    struct tally__residuals *residuals = tally__reduction_here()->residuals;
    const tally_hook *inner = local->wrapper.inner;
    const struct tally__moving passing = {TALLY__MOVE_SENT, bucket, stays, local};

    if (bucket->step < local->start) {
        return tally__hook_reduce(inner, lane, bucket, NULL);
    }
    /* Residuals of the means of all ranks belong to all of them. */
    if (tally__residuals_must_move(residuals, &passing)) {
        TRY(tally__residuals_move(lane, residuals, &passing));
    }
    if (!group_of(local)) {
        /* Nothing is sent any more: this rank applies its residual itself. */
        return tally__residuals_deliver(residuals, bucket);
    }
    return tally__hook_reduce_in_subgroup(inner, lane, group_of(local), TALLY__DIVISOR_OF_GROUP,
                                          bucket);
}

enum { START, GROUP };

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    const double *values = setting->values;
    struct tally__wrapper_table table = tally__wrapper_table(name, inner);
    struct post_local *local;

    TRY(tally__wrapper_divide(&table, inner));
    local = tally__alloc(sizeof *local, "a hook");
    if (!local) {
        return TALLY_NOMEM;
    }
    local->start = (uint64_t)values[START];
    local->group_size = (int)values[GROUP];
    table.table.reduce = reduce;
    table.private.is_local = true;
    table.private.local_start = local->start;
    table.private.enter = enter;
    table.private.leave = leave;
    return tally__wrapper_make(&table, &local->wrapper, inner, hook);
}

static const struct tally__option options[] = {
    [START] = TALLY__COUNT_OPTION(
        "start", 0, 1e15, "0 or more", "1000",
        "steps in which all ranks exchange first; an averager's warmup is the same"),
    [GROUP] = TALLY__COUNT_OPTION(
        "group", 0, 1e6, "0 or more", "0",
        "consecutive ranks that exchange from then on, as those of a machine; 0: none do"),
};

const struct tally__hook_kind tally__hook_kind_post_local = {
    .row.name = "postlocal",
    .row.help = "post-local SGD: gradients travel among few ranks from a step on: for slow links",
    .wraps = true,
    .row.n_options = sizeof options / sizeof options[0],
    .row.options = options,
    .make = make,
};
