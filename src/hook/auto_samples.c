/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of parameters: a few elements of each, evenly spaced, from which the hook auto estimates
 * norms and errors without arrays of the model's size. Lanes enter, each with its bucket.
 */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"

#define WHAT "samples of gradients"
/* Samples in total, unless there are many parameters; and of one parameter. */
#define MOST_SAMPLES ((size_t)16384)
#define LEAST_OF_ONE ((size_t)16)
#define MOST_OF_ONE ((size_t)1024)

int tally__samples_make(tally_ddp *ddp, size_t n_params, struct tally__samples *samples)
{
    size_t most = MOST_SAMPLES / (n_params > 0 ? n_params : 1);

    most = most < LEAST_OF_ONE ? LEAST_OF_ONE : most > MOST_OF_ONE ? MOST_OF_ONE : most;
    samples->n = 0;
    samples->first = tally__alloc_array(n_params + 1, sizeof *samples->first, WHAT);
    samples->step = tally__alloc_array(n_params, sizeof *samples->step, WHAT);
    if (!samples->first || !samples->step) {
        tally__samples_free(samples);
        return TALLY_NOMEM;
    }
    for (size_t i = 0; i < n_params; i++) {
        size_t count = tally_ddp_param_count(ddp, (int)i);
        size_t n = count < most ? count : most;

        samples->step[i] = n > 0 ? count / n : 1;
        samples->n += n;
        samples->first[i + 1] = samples->n;
    }
    return TALLY_OK;
}

void tally__samples_free(struct tally__samples *samples)
{
    tally__free(samples->first);
    tally__free(samples->step);
    *samples = (struct tally__samples){0};
}

void tally__samples_add(const struct tally__samples *samples, const tally_bucket_param *param,
                        float *sums, double *square)
{
    const float *values = param->gradient;
    size_t i = (size_t)param->index;
    size_t step = samples->step[i];
    double own = 0;

    for (size_t s = samples->first[i]; s < samples->first[i + 1]; s++, values += step) {
        own += (double)*values * (double)*values;
        sums[s] += isfinite(*values) ? *values : 0;
    }
    *square += own * (double)step;
}

/* Element e of the residual of means that this rank knows of. */
static double owned_at(const struct tally__owned *owned, size_t e, int n_ranks)
{
    if (owned->is_whole && owned->values) {
        return (double)owned->values[e] / n_ranks; /* all ranks have it */
    }
    return owned->values && e >= owned->first && e < owned->first + owned->n
               ? (double)owned->values[e - owned->first]
               : 0;
}

int tally__samples_residual(const struct tally__samples *samples, const tally_bucket *bucket, int k,
                            struct tally__residuals *residuals, float *to)
{
    size_t i = (size_t)bucket->params[k].index;
    const struct tally__residual *residual = &residuals->params[i];
    const struct tally__owned *owned;
    size_t e = 0;

    TRY(tally__residual_make_plain(residuals, i));
    owned = tally__residual_owned(residual, bucket->n_ranks);
    for (size_t s = samples->first[i]; s < samples->first[i + 1]; s++, e += samples->step[i]) {
        double value = residual->sent ? (double)residual->sent[e] / bucket->divisor : 0;

        to[s] = (float)(value + (owned ? owned_at(owned, e, bucket->n_ranks) : 0));
    }
    return TALLY_OK;
}
