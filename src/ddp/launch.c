/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launching: hands buckets to their lanes, strictly in order, and runs the hook there. Application
 * threads enter with the ddp's mutex held; the job runs on a lane.
 */
#include "base/clock.h"
#include "base/status.h"
#include "comm/group.h"
#include "ddp/ddp.h"

/* Whether any rank has a gradient for the bucket. */
static int any_used(tally_lane *lane, const struct tally__bucket *bucket, bool *used)
{
    int32_t any = 0;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        any |= bucket->ddp->used[bucket->seen.params[k].index];
    }
    TRY(tally_lane_all_reduce(lane, &any, 1, TALLY_I32, TALLY_MAX));
    *used = any != 0;
    return TALLY_OK;
}

static int reduce_bucket(tally_lane *lane, struct tally__bucket *bucket)
{
    tally_ddp *ddp = bucket->ddp;

    bucket->skipped = false;
    if (ddp->presence.stopped) {
        return tally__join_stopped(ddp);
    }
    if (ddp->config.skip_unused) {
        bool used = true;

        TRY(any_used(lane, bucket, &used));
        if (!used) {
            bucket->skipped = true;
            return TALLY_OK;
        }
    }
    bucket->seen.shadows = ddp->config.join && !ddp->presence.active;
    if (!ddp->hook->table.feedback) {
        tally__keeper_settle(&bucket->seen);
    }
    return ddp->hook->table.reduce(ddp->hook->state, lane, &bucket->seen);
}

static int bucket_job(tally_lane *lane, void *user)
{
    struct tally__bucket *bucket = user;
    tally_ddp *ddp = bucket->ddp;
    int rc;

    bucket->now.start_ns = tally__now_ns();
    bucket->seen.divisor = ddp->config.join && ddp->config.join_divides_by_active
                               ? ddp->presence.n_active
                               : tally_group_size(ddp->group);
    rc = reduce_bucket(lane, bucket);
    bucket->now.done_ns = tally__now_ns();
    return rc;
}

int tally__launch(tally_ddp *ddp, struct tally__bucket *bucket)
{
    /* Who is present is learned on lane 0: with join, buckets must follow it there. */
    bool many = ddp->hook->table.concurrent && !ddp->config.join;

    bucket->seen.step = ddp->step;
    bucket->now.launch_ns = tally__now_ns();
    TRY(tally_submit(ddp->group, many ? bucket->seen.index % ddp->group->n_lanes : 0, bucket_job,
                     bucket, &bucket->future));
    bucket->state = TALLY__BUCKET_LAUNCHED;
    return TALLY_OK;
}

int tally__launch_complete(tally_ddp *ddp)
{
    struct tally__buckets *buckets = &ddp->buckets;

    while (ddp->next_bucket < buckets->n && buckets->bucket[ddp->next_bucket].n_missing == 0) {
        TRY(tally__launch(ddp, &buckets->bucket[ddp->next_bucket]));
        ddp->next_bucket++;
    }
    return TALLY_OK;
}
