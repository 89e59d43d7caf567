/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the state of a sharded optimizer on one rank, root: parameter after parameter, array
 * after array, so that only root needs more memory. One thread of the application enters, between
 * steps; the exchange runs as a job.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "train/optimizer.h"

struct collection {
    tally_optimizer *optimizer;
    int root;
    int32_t wants;                /* root's: the state itself, not only its size */
    struct tally__updated *whole; /* on root; else NULL */
    size_t *sent;                 /* bytes to each rank, */
    size_t *received;             /* and from each; in the same block */
};

/* Sends every rank's run of one parameter of a bucket to root, where they follow one another. */
static int collect_param(tally_lane *lane, const struct collection *collection,
                         const struct tally__bucket *bucket, const tally_bucket_param *entry)
{
    const tally_optimizer *optimizer = collection->optimizer;
    const struct tally__moments *own = &optimizer->updated[entry->index].moments;
    int rank = tally_group_rank(tally_lane_group(lane));

    collection->sent[collection->root] = own->n * sizeof(float);
    for (int r = 0; rank == collection->root && r < tally_group_size(tally_lane_group(lane)); r++) {
        collection->received[r] = tally__zero_run(bucket, entry, r).n * sizeof(float);
    }
    for (int k = 0; k < own->n_states; k++) {
        float *to = collection->whole ? collection->whole[entry->index].moments.state[k] : NULL;

        TRY(tally_lane_all_to_all(lane, own->state[k], collection->sent, to, collection->received));
    }
    return TALLY_OK;
}

static int collect_bucket(tally_lane *lane, const struct collection *collection,
                          const struct tally__bucket *bucket)
{
    for (int k = 0; k < bucket->seen.n_params; k++) {
        int i = bucket->seen.params[k].index;

        if (collection->optimizer->updated[i].group >= 0) {
            TRY(collect_param(lane, collection, bucket, &bucket->seen.params[k]));
        }
    }
    return TALLY_OK;
}

static int collect_job(tally_lane *lane, void *user)
{
    struct collection *collection = user;
    const tally_ddp *ddp = collection->optimizer->ddp;

    TRY(tally_lane_broadcast(lane, &collection->wants, sizeof collection->wants, collection->root));
    if (!collection->wants) {
        return TALLY_OK;
    }
    for (size_t b = 0; b < ddp->buckets.n + ddp->buckets.n_delayed; b++) {
        if (ddp->buckets.bucket[b].sharded) {
            TRY(collect_bucket(lane, collection, &ddp->buckets.bucket[b]));
        }
    }
    return TALLY_OK;
}

/* Makes room for the state of all ranks; if only its size is wanted, for none. The state of
 * parameters that are not sharded is root's own. */
static int make_whole(struct collection *collection)
{
    const tally_optimizer *optimizer = collection->optimizer;
    size_t n = optimizer->n_params;
    int rc = TALLY_OK;

    collection->whole = tally__alloc_array(n, sizeof *collection->whole, "an optimizer's state");
    if (!collection->whole) {
        return TALLY_NOMEM;
    }
    memcpy(collection->whole, optimizer->updated, n * sizeof *collection->whole);
    /* All of them, also after a failure: none may share its arrays with the optimizer's. */
    for (size_t i = 0; i < n; i++) {
        const struct tally__moments *own = &optimizer->updated[i].moments;
        struct tally__moments *moments = &collection->whole[i].moments;

        if (optimizer->ddp->params[i].mean.sharded) {
            *moments = (struct tally__moments){.n = optimizer->ddp->params[i].n,
                                               .n_states = own->n_states};
            if (collection->wants && rc == TALLY_OK) {
                rc = tally__moments_cover(moments, own->n_states, 0, moments->n);
            }
            moments->step = own->step;
        }
    }
    return rc;
}

/* All that this rank needs for the exchange. */
static int prepare(struct collection *collection)
{
    const tally_group *group = collection->optimizer->ddp->group;
    int size = tally_group_size(group);

    if (collection->root < 0 || collection->root >= size) {
        return tally__fail(TALLY_ARG, "tally_optimizer_consolidate: root %d is not in 0..%d",
                           collection->root, size - 1);
    }
    collection->sent =
        tally__alloc_array((size_t)size, 2 * sizeof *collection->sent, "sizes of state");
    if (!collection->sent) {
        return TALLY_NOMEM;
    }
    collection->received = collection->sent + size;
    return tally_group_rank(group) == collection->root ? make_whole(collection) : TALLY_OK;
}

int tally__zero_collect(tally_optimizer *optimizer, int root, bool wants,
                        struct tally__updated **whole)
{
    struct collection collection = {.optimizer = optimizer, .root = root, .wants = wants};
    int rc;

    rc = tally__ddp_agree(optimizer->ddp, prepare(&collection), collect_job, &collection);
    tally__free(collection.sent);
    if (rc != TALLY_OK) {
        tally__zero_collected_free(optimizer, collection.whole);
        return rc;
    }
    *whole = collection.whole;
    return TALLY_OK;
}

void tally__zero_collected_free(const tally_optimizer *optimizer, struct tally__updated *whole)
{
    for (size_t i = 0; whole && i < optimizer->n_params; i++) {
        if (optimizer->ddp->params[i].mean.sharded) {
            tally__moments_clear(&whole[i].moments);
        }
    }
    tally__free(whole);
}
