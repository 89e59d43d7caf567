/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes with checkpoints; see clumsy.c. */
#include "clumsy/clumsy.h"

#define MAX_WORLD 8

static unsigned char blobs[MAX_WORLD][1 << 16];
static size_t blob_bytes[MAX_WORLD];

/* Every rank's part of an array, on every rank. */
static int gather(const void *own, size_t bytes, void *all)
{
    size_t sizes[MAX_WORLD];
    tally_future *future = NULL;
    int status;

    for (int r = 0; r < MAX_WORLD; r++) {
        sizes[r] = bytes;
    }
    status = tally_all_gather(group, own, sizes, all, &future);
    status = status == TALLY_OK ? tally_future_wait(future) : status;
    tally_future_free(future);
    return status;
}

static int save(void)
{
    int me = tally_group_rank(group);
    int status;

    blob_bytes[me] = sizeof blobs[me];
    status = tally_ddp_save(ddp, blobs[me], &blob_bytes[me]);
    status =
        status == TALLY_OK ? gather(&blob_bytes[me], sizeof blob_bytes[me], blob_bytes) : status;
    return status == TALLY_OK ? gather(blobs[me], sizeof blobs[me], blobs) : status;
}

static int load(int n)
{
    const void *all[MAX_WORLD];

    for (int r = 0; r < n; r++) {
        all[r] = blobs[r];
    }
    return tally_ddp_load(ddp, all, blob_bytes, (size_t)n);
}

static int train_and_save(void)
{
    int status;

    model.config.hook = "int8";
    status = train(2);
    return status == TALLY_OK ? save() : status;
}

int damaged_checkpoint(void)
{
    int status = train_and_save();

    blobs[1][blob_bytes[1] / 2] ^= 1;
    return status == TALLY_OK ? load(tally_group_size(group)) : status;
}

int missing_checkpoint(void)
{
    int status = train_and_save();

    return status == TALLY_OK ? load(1) : status;
}

int other_model(void)
{
    int status = train_and_save();

    if (status == TALLY_OK) {
        (void)tally_ddp_free(ddp);
        ddp = NULL;
        model.params[1].name = "mlp.weight";
        status = create();
    }
    return status == TALLY_OK ? load(tally_group_size(group)) : status;
}
