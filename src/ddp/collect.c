/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the jobs of a step: those of its buckets, its end and its presence. launch.c submits
 * them. The thread that waits enters.
 */
#include <stdio.h>

#include "base/status.h"
#include "ddp/ddp.h"

/* Waits for one job of the step and keeps the first failure with its text. Returns the bytes sent.
 */
static uint64_t collect_one(tally_future *future, int *rc, char *text)
{
    int status = tally_future_wait(future);
    uint64_t bytes_sent = tally_future_bytes_sent(future);

    tally_future_free(future);
    if (status != TALLY_OK && *rc == TALLY_OK) {
        *rc = status;
        (void)snprintf(text, TALLY__ERROR_BYTES, "%s", tally_last_error());
    }
    return bytes_sent;
}

int tally__collect(tally_ddp *ddp)
{
    struct tally__buckets *buckets = &ddp->buckets;
    char text[TALLY__ERROR_BYTES];
    char end_text[TALLY__ERROR_BYTES];
    bool has_input;
    int end_rc = TALLY_OK;
    int rc = TALLY_OK;

    (void)pthread_mutex_lock(&ddp->mutex);
    has_input = ddp->now.begun;
    (void)pthread_mutex_unlock(&ddp->mutex);
    /* First, because its job reads the futures of the buckets. */
    if (ddp->now.end_future) {
        tally__stats_other(ddp, collect_one(ddp->now.end_future, &end_rc, end_text));
        ddp->now.end_future = NULL;
        ddp->now.end_ran = true;
    }
    if (ddp->presence.future) {
        tally__stats_other(ddp, collect_one(ddp->presence.future, &rc, text));
        ddp->presence.future = NULL;
    }
    for (size_t b = 0; b < buckets->n + buckets->n_delayed; b++) {
        struct tally__bucket *bucket = &buckets->bucket[b];

        if (bucket->state == TALLY__BUCKET_LAUNCHED) {
            bucket->now.bytes_sent = collect_one(bucket->future, &rc, text);
            bucket->state = TALLY__BUCKET_FILLING;
            if (b >= buckets->n || !has_input) {
                tally__stats_other(ddp, bucket->now.bytes_sent);
            }
        }
    }
    if (rc != TALLY_OK) {
        return tally__fail(rc, "%s", text);
    }
    return end_rc == TALLY_OK ? TALLY_OK : tally__fail(end_rc, "%s", end_text);
}
