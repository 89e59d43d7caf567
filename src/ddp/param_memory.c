/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that tally provides: one piece of group memory, laid out like the buckets, so that the
 * parameters of a bucket are contiguous, in the order of its gradients; parameters without a
 * gradient follow. The thread that creates the ddp enters, and a sharded optimizer's lanes to find
 * such parameters.
 */
#include "base/memory.h"
#include "base/status.h"
#include "ddp/ddp.h"

/* Sets the addresses of all provided parameters in memory; returns the bytes. With NULL it only
 * counts. */
static size_t lay_out(tally_ddp *ddp, unsigned char *memory)
{
    size_t n = ddp->buckets.n + ddp->buckets.n_delayed;
    tally_bucket_param *seen = ddp->buckets.params;
    size_t used = 0;

    for (size_t b = 0; b < n; b++) {
        for (int k = 0; k < ddp->buckets.bucket[b].seen.n_params; k++, seen++) {
            struct tally__param *param = &ddp->params[seen->index];

            if (param->provided && memory) {
                param->data = memory + used;
                seen->data = param->data;
            }
            used += param->provided ? param->bytes : 0;
        }
        used = tally__to_cache_line(used);
    }
    for (size_t i = 0; i < ddp->n_params; i++) {
        struct tally__param *param = &ddp->params[i];

        if (param->provided && param->bucket < 0) {
            param->data = memory ? memory + used : NULL;
            used = tally__to_cache_line(used + param->bytes);
        }
    }
    return used;
}

int tally__param_memory_make(tally_ddp *ddp)
{
    size_t bytes = lay_out(ddp, NULL);

    if (bytes > 0) {
        TRY(tally_group_alloc(ddp->group, bytes, &ddp->data_memory));
        (void)lay_out(ddp, ddp->data_memory);
    }
    return TALLY_OK;
}

void *tally__bucket_run(const struct tally__bucket *bucket)
{
    void *run = NULL;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        const struct tally__param *param = &bucket->ddp->params[bucket->seen.params[k].index];

        if (param->n > 0 && !param->provided) {
            return NULL;
        }
        if (param->n > 0 && !run) {
            run = param->data;
        }
    }
    return run;
}
