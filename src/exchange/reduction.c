/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction that a thread is in; see reduction.h. Lane threads enter, or the thread that runs
 * jobs in place of one. */
#include "exchange/reduction.h"

#include "base/status.h"

static _Thread_local struct tally__reduction *here;

void tally__reduction_enter(struct tally__reduction *reduction)
{
    here = reduction;
}

struct tally__reduction *tally__reduction_here(void)
{
    return here;
}

struct tally__wire tally__wire_here(void)
{
    return here ? here->wire : (struct tally__wire){.dtype = TALLY_F32};
}

int tally_bucket_residual(const tally_bucket *bucket, int k, float **residual)
{
    struct tally__residuals *residuals;
    size_t index;

    if (!bucket || !residual || k < 0 || k >= bucket->n_params) {
        return tally__fail(TALLY_ARG, "tally_bucket_residual: %s",
                           !bucket    ? "bucket is NULL"
                           : residual ? "no such parameter in the bucket"
                                      : "residual is NULL");
    }
    if (bucket->dtype != TALLY_F32) {
        return tally__fail(TALLY_UNSUPPORTED,
                           "parameter '%s' is not fp32: residuals are kept for fp32 only",
                           bucket->params[k].name);
    }
    if (!here) {
        return tally__fail(TALLY_STATE, "tally_bucket_residual: this thread is not in a hook's "
                                        "reduce");
    }
    residuals = here->residuals;
    index = (size_t)bucket->params[k].index;
    TRY(tally__residual_make_plain(residuals, index));
    TRY(tally__residual_allocate(&residuals->params[index], bucket->params[k].n));
    *residual = residuals->params[index].sent;
    return TALLY_OK;
}
