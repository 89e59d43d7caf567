/* SPDX-License-Identifier: Apache-2.0 */
/* Saved states of a ddp and its hook that were changed, or made up; see blob_fuzz.h. One thread. */
#include <stdbool.h>

#include "fuzz/blob_fuzz.h"
#include "fuzz/fuzz.h"
#include "tally.h"

static int save(struct blob_model *model, void *blob, size_t *bytes)
{
    return tally_ddp_save(model->ddp, blob, bytes);
}

static int load(struct blob_model *model, const void *const *blobs, const size_t *bytes, size_t n)
{
    return tally_ddp_load(model->ddp, blobs, bytes, n);
}

static int go_on(struct blob_model *model, bool variant)
{
    int rc = blob_step(model, 9);

    (void)variant;
    FUZZ_CHECK(rc == TALLY_OK || rc == TALLY_NUMERIC);
    FUZZ_CHECK(tally_ddp_set_hook(model->ddp, "allreduce") == TALLY_OK);
    return blob_step(model, 10);
}

/* The variant's hook, PowerSGD, has its own state. */
int fuzz_one(const uint8_t *data, size_t n)
{
    static const struct blob_subject subject = {
        .n_params = 3,
        .shapes = {{6, 9}, {7}, {8, 5}},
        .hooks = {"int8:block=64", "powersgd:rank=1,start=0"},
        .step = blob_step,
        .save = save,
        .load = load,
        .go_on = go_on,
    };

    return blob_fuzz(&subject, data, n);
}
