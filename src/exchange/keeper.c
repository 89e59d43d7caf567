/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of residuals; see keeper.h for what it keeps and who enters. */
#include "exchange/keeper.h"

#include "base/memory.h"
#include "base/status.h"
#include "num/num.h"

int tally__keeper_make(size_t n_params, struct tally__keeper **keeper)
{
    struct tally__keeper *made = tally__alloc(sizeof *made, "residuals");

    if (!made) {
        return TALLY_NOMEM;
    }
    made->n_params = n_params;
    made->params = tally__alloc_array(n_params, sizeof *made->params, "residuals");
    if (!made->params) {
        tally__free(made);
        return TALLY_NOMEM;
    }
    *keeper = made;
    return TALLY_OK;
}

void tally__residual_clear(struct tally__residual *residual)
{
    tally__free(residual->sent);
    tally__free(residual->owned);
    *residual = (struct tally__residual){0};
}

void tally__keeper_free(struct tally__keeper *keeper)
{
    for (size_t i = 0; keeper && i < keeper->n_params; i++) {
        tally__residual_clear(&keeper->params[i]);
    }
    if (keeper) {
        tally__free(keeper->params);
    }
    tally__free(keeper);
}

int tally__residual_send(struct tally__residual *residual, size_t n)
{
    if (!residual->sent) {
        residual->sent = tally__alloc_array(n, sizeof *residual->sent, "a residual");
        residual->n = n;
    }
    return residual->sent ? TALLY_OK : TALLY_NOMEM;
}

/*
 * How often what is owned counts in what this rank sends. In an exchange of the same ranks: so
 * often that the mean gets it once. In one of more or fewer, the mean gets it in proportion.
 */
static float weight_of(const struct tally__residual *residual, const tally_bucket *bucket)
{
    return (float)(bucket->divisor * residual->owned_ranks / bucket->n_ranks);
}

int tally__residual_own(struct tally__residual *residual, size_t first, size_t n,
                        const tally_bucket *bucket)
{
    int n_ranks = n > 0 ? bucket->n_ranks : 0;
    float *owned = NULL;

    if (residual->owned_first == first && residual->owned_n == n &&
        residual->owned_ranks == n_ranks) {
        return TALLY_OK;
    }
    if (n > 0) {
        owned = tally__alloc_array(n, sizeof *owned, "a residual");
        if (!owned) {
            return TALLY_NOMEM;
        }
    }
    if (residual->owned) {
        tally__axpy_f32(residual->owned_n, residual->owned, weight_of(residual, bucket),
                        residual->sent + residual->owned_first);
    }
    tally__free(residual->owned);
    residual->owned = owned;
    residual->owned_first = n > 0 ? first : 0;
    residual->owned_n = n;
    residual->owned_ranks = n_ranks;
    return TALLY_OK;
}

int tally__residual_copy(const struct tally__residual *from, struct tally__residual *to)
{
    if (!from->sent || to->n != from->n || to->owned_n != from->owned_n) {
        tally__residual_clear(to);
    }
    if (!from->sent) {
        return TALLY_OK;
    }
    TRY(tally__residual_send(to, from->n));
    if (from->owned_n > 0 && !to->owned) {
        to->owned = tally__alloc_array(from->owned_n, sizeof *to->owned, "a residual");
        if (!to->owned) {
            return TALLY_NOMEM;
        }
    }
    to->owned_first = from->owned_first;
    to->owned_n = from->owned_n;
    to->owned_ranks = from->owned_ranks;
    tally__copy(from->n * sizeof *from->sent, (const void *)from->sent, (void *)to->sent);
    tally__copy(from->owned_n * sizeof *from->owned, (const void *)from->owned, (void *)to->owned);
    return TALLY_OK;
}

void tally__residual_deliver(struct tally__residual *residual, const tally_bucket *bucket,
                             float *gradient)
{
    if (residual->owned) {
        tally__axpy_f32(residual->owned_n, residual->owned, weight_of(residual, bucket),
                        gradient + residual->owned_first);
    }
    if (residual->sent) {
        tally__axpy_f32(residual->n, residual->sent, 1, gradient);
        tally__residual_clear(residual);
    }
}

void tally__keeper_settle(const tally_bucket *bucket)
{
    struct tally__keeper *keeper = bucket->keeper;

    for (int k = 0; k < bucket->n_params && !bucket->shadows; k++) {
        const tally_bucket_param *param = &bucket->params[k];

        tally__residual_deliver(&keeper->params[param->index], bucket, param->gradient);
    }
}

int tally_bucket_residual(const tally_bucket *bucket, int k, float **residual)
{
    struct tally__residual *kept;

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
    kept = &((struct tally__keeper *)bucket->keeper)->params[bucket->params[k].index];
    TRY(tally__residual_send(kept, bucket->params[k].n));
    /* What a hook before this one owned reaches the mean from here. */
    TRY(tally__residual_own(kept, 0, 0, bucket));
    *residual = kept->sent;
    return TALLY_OK;
}
