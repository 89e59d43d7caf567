/* SPDX-License-Identifier: Apache-2.0 */
/* A hook among the ranks of a sub-group, inside a job of the parent group. On lanes. */
#include <stdio.h>

#include "base/status.h"
#include "comm/doing.h"
#include "comm/threads.h"
#include "hook/hook.h"

/* The divisor: the number of ranks, or, if the bucket's divisor is not that of its group, the
 * number of ranks with input. */
static int find_divisor(tally_lane *sub, bool by_active, tally_bucket *bucket)
{
    int32_t n_active = !bucket->shadows;

    bucket->n_ranks = tally_group_size(sub->group);
    bucket->divisor = bucket->n_ranks;
    if (by_active) {
        TRY(tally_lane_all_reduce(sub, &n_active, 1, TALLY_I32, TALLY_SUM));
        bucket->divisor = n_active > 0 ? n_active : 1;
    }
    return TALLY_OK;
}

static int reduce(const tally_hook *hook, tally_lane *sub, enum tally__divisor divisor,
                  tally_bucket *bucket, bool by_active)
{
    if (divisor == TALLY__DIVISOR_OF_GROUP) {
        TRY(find_divisor(sub, by_active, bucket));
    }
    return tally__hook_reduce(hook, sub, bucket, NULL);
}

/* Prefixes the thread's error text with the ranks of the sub-group. */
static int fail_among(const tally_group *group, int rc)
{
    struct tally__rank_list list = {0};
    int last = tally_group_size(group) - 1;
    bool is_run = last > 0;

    for (int r = 0; r <= last; r++) {
        tally__rank_list_add(&list, group, r);
        is_run = is_run && tally__number_of(group, r) == list.first + r;
    }
    if (is_run) {
        (void)snprintf(list.text, sizeof list.text, "ranks %d..%d", list.first, list.first + last);
    }
    return tally__fail(rc, "among %s: %s", list.text, tally_last_error());
}

int tally__hook_reduce_in_subgroup(const tally_hook *hook, tally_lane *lane, tally_group *group,
                                   enum tally__divisor divisor, const tally_bucket *bucket)
{
    tally_lane *sub = tally_lane_for(lane, group);
    bool by_active = bucket->divisor != tally_group_size(lane->group);
    tally_bucket part = *bucket;
    int rc;

    if (!sub) {
        return TALLY_ARG;
    }
    rc = tally__end_job(sub, TALLY__ENDS_WITH_ROUND, reduce(hook, sub, divisor, &part, by_active));
    /* Sub-groups that keep the bucket's divisor are not of consecutive ranks. */
    if (rc != TALLY_OK && divisor == TALLY__DIVISOR_OF_GROUP) {
        return fail_among(group, rc);
    }
    return rc;
}
