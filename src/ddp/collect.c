/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the jobs of a step: those of its buckets, its end and its presence. launch.c submits
 * them. The thread that waits enters.
 */
#include "base/status.h"
#include "ddp/ddp.h"

/* Waits for one job of the step and keeps the first failure with its text. Returns the bytes sent.
 */
static uint64_t collect_one(tally_future *future, struct tally__outcome *first)
{
    int status = tally_future_wait(future);
    uint64_t bytes_sent = tally_future_bytes_sent(future);

    tally_future_free(future);
    if (status != TALLY_OK && first->status == TALLY_OK) {
        *first = tally__outcome_of(status);
    }
    return bytes_sent;
}

int tally__collect(tally_ddp *ddp)
{
    struct tally__buckets *buckets = &ddp->buckets;
    struct tally__outcome first = {.status = TALLY_OK};
    struct tally__outcome end = {.status = TALLY_OK};
    bool has_input;

    (void)pthread_mutex_lock(&ddp->mutex);
    has_input = ddp->now.begun;
    (void)pthread_mutex_unlock(&ddp->mutex);
    /* First, because its job reads the futures of the buckets. */
    if (ddp->now.end_future) {
        tally__stats_other(ddp, collect_one(ddp->now.end_future, &end));
        ddp->now.end_future = NULL;
        ddp->now.end_collected = true;
    }
    if (ddp->presence.future) {
        tally__stats_other(ddp, collect_one(ddp->presence.future, &first));
        ddp->presence.future = NULL;
    }
    for (size_t b = 0; b < buckets->n + buckets->n_delayed; b++) {
        struct tally__bucket *bucket = &buckets->bucket[b];

        if (bucket->state == TALLY__BUCKET_LAUNCHED) {
            bucket->now.bytes_sent = collect_one(bucket->future, &first);
            bucket->state = TALLY__BUCKET_FILLING;
            if (b >= buckets->n || !has_input) {
                tally__stats_other(ddp, bucket->now.bytes_sent);
            }
        }
    }
    return tally__outcome_return(first.status != TALLY_OK ? &first : &end);
}
