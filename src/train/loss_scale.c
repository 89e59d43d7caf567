/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic loss scaling; see loss_scale.h. The hook does not get a bucket with a gradient that is
 * not finite, so that error feedback stays clean. The residuals of the step's other buckets are
 * copied before the hook and put back if the step is skipped. Lanes enter, several at once for
 * different buckets, and the thread that waits.
 */
#include "train/loss_scale.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/group.h"
#include "num/num.h"
#include "train/norm.h"
#include "train/optimizer.h"
#include "train/zero.h"

#define DEFAULT_GROWTH 2
#define DEFAULT_BACKOFF 0.5
#define DEFAULT_INTERVAL 2000

/* ---- making it ---- */

bool tally__is_loss_scale(double scale)
{
    return scale >= (double)FLT_MIN && scale <= (double)FLT_MAX;
}

int tally__loss_check_config(const tally_optimizer_config *config)
{
    if (config->loss_scale != 0 && !tally__is_loss_scale(config->loss_scale)) {
        return tally__fail(TALLY_ARG, "config->loss_scale takes 0 or %g..%g, not %g",
                           (double)FLT_MIN, (double)FLT_MAX, config->loss_scale);
    }
    if (config->loss_scale_growth != 0 &&
        !(config->loss_scale_growth >= 1 && isfinite(config->loss_scale_growth))) {
        return tally__fail(TALLY_ARG, "config->loss_scale_growth takes 0, or 1 or more, not %g",
                           config->loss_scale_growth);
    }
    if (!(config->loss_scale_backoff >= 0 && config->loss_scale_backoff < 1)) {
        return tally__fail(TALLY_ARG, "config->loss_scale_backoff takes 0 or more, below 1, not %g",
                           config->loss_scale_backoff);
    }
    if (config->loss_scale_interval < 0) {
        return tally__fail(TALLY_ARG, "config->loss_scale_interval takes 0 or more, not %d",
                           config->loss_scale_interval);
    }
    return TALLY_OK;
}

int tally__loss_make(tally_optimizer *optimizer)
{
    tally_optimizer_config *config = &optimizer->config;
    struct tally__loss_scale *loss = &optimizer->loss;

    if (!(config->loss_scale > 0)) {
        return TALLY_OK;
    }
    config->loss_scale_growth =
        config->loss_scale_growth > 0 ? config->loss_scale_growth : DEFAULT_GROWTH;
    config->loss_scale_backoff =
        config->loss_scale_backoff > 0 ? config->loss_scale_backoff : DEFAULT_BACKOFF;
    config->loss_scale_interval =
        config->loss_scale_interval > 0 ? config->loss_scale_interval : DEFAULT_INTERVAL;
    loss->scale = config->loss_scale;
    loss->last = loss->scale;
    loss->kept = tally__alloc_array(optimizer->n_params, sizeof *loss->kept, "a loss scale");
    return loss->kept ? TALLY_OK : TALLY_NOMEM;
}

void tally__loss_free(tally_optimizer *optimizer)
{
    for (size_t i = 0; optimizer->loss.kept && i < optimizer->n_params; i++) {
        tally__residual_clear(&optimizer->loss.kept[i].residual);
    }
    tally__free(optimizer->loss.kept);
    optimizer->loss.kept = NULL;
}

float tally__loss_factor(const tally_optimizer *optimizer)
{
    return optimizer->loss.scale > 0 ? (float)(1 / optimizer->loss.last) : 1;
}

double tally_optimizer_loss_scale(const tally_optimizer *optimizer)
{
    return optimizer && optimizer->loss.scale > 0 ? optimizer->loss.scale : 1;
}

/* ---- looking at numbers ---- */

/* In a half that is not finite all bits of the exponent are set. */
static bool is_finite_half(size_t n, const uint16_t *x, uint16_t exponent)
{
    unsigned found = 0;

    for (size_t i = 0; i < n; i++) {
        found |= (unsigned)((x[i] & exponent) == exponent);
    }
    return !found;
}

static bool is_finite_f64(size_t n, const double *x)
{
    unsigned found = 0;

    for (size_t i = 0; i < n; i++) {
        found |= (unsigned)!isfinite(x[i]);
    }
    return !found;
}

static bool is_finite(int dtype, size_t n, const void *x)
{
    switch (dtype) {
    case TALLY_F32:
        return tally__find_nonfinite_f32(n, x) == n;
    case TALLY_F64:
        return is_finite_f64(n, x);
    default:
        return is_finite_half(n, x, dtype == TALLY_F16 ? 0x7c00 : 0x7f80);
    }
}

/* ---- before the hook ---- */

static bool are_gradients_finite(const struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        int index = bucket->seen.params[k].index;
        const struct tally__param *param = &ddp->params[index];

        if (ddp->now.used[index] && !is_finite(param->grad.dtype, param->n, param->grad.array)) {
            return false;
        }
    }
    return true;
}

int tally__loss_look(const tally_optimizer *optimizer, tally_lane *lane,
                     struct tally__bucket *bucket)
{
    const tally_ddp *ddp = bucket->ddp;
    uint64_t any = 0;

    if (!optimizer->loss.kept) {
        return TALLY_OK;
    }
    TRY(tally__agree_any(lane, !are_gradients_finite(bucket), &any));
    bucket->skipped = any != 0;
    bucket->factor = 1 / optimizer->loss.scale;
    for (int k = 0; k < bucket->seen.n_params; k++) {
        int index = bucket->seen.params[k].index;
        struct tally__kept *kept = &optimizer->loss.kept[index];

        kept->is_kept = false;
        kept->overflowed = bucket->skipped;
        if (!bucket->skipped) {
            TRY(tally__residual_make_plain(ddp->residuals, (size_t)index));
            TRY(tally__residual_copy(&ddp->residuals->params[index], &kept->residual));
            kept->is_kept = true;
        }
    }
    return TALLY_OK;
}

/* ---- at the end of a step ---- */

/* Whether this rank's numbers of the step are finite: buckets, means or shards of them, and local
 * gradients. */
static bool is_step_finite(const tally_optimizer *optimizer)
{
    const tally_ddp *ddp = optimizer->ddp;

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];
        const float *local = tally__update_local(optimizer, i);

        if (optimizer->loss.kept[i].overflowed ||
            (param->mean.last && !is_finite(param->dtype, param->n, param->mean.last)) ||
            (local && !is_finite(TALLY_F32, param->n, local))) {
            return false;
        }
    }
    return !optimizer->zero || tally__zero_is_finite(optimizer);
}

static void put_back(tally_optimizer *optimizer)
{
    struct tally__residual *residuals = optimizer->ddp->residuals->params;

    for (size_t i = 0; i < optimizer->n_params; i++) {
        struct tally__kept *kept = &optimizer->loss.kept[i];

        if (kept->is_kept) {
            struct tally__residual after = residuals[i];

            residuals[i] = kept->residual;
            kept->residual = after;
        }
    }
}

/* A skipped step has no means, and its gradients count as used. */
static void drop(tally_optimizer *optimizer)
{
    tally_ddp *ddp = optimizer->ddp;

    put_back(optimizer);
    for (size_t i = 0; i < ddp->n_params; i++) {
        struct tally__param *param = &ddp->params[i];
        bool is_local = (param->flags & TALLY_PARAM_IGNORED) != 0;
        bool is_released = optimizer->config.release_gradients && optimizer->updated[i].group >= 0;

        param->mean.last = NULL;
        if (is_released && (is_local || ddp->now.used[i] > 0)) {
            memset(is_local ? param->grad.local : param->grad.array, 0, param->grad.bytes);
        }
    }
}

/* Adapts the scale for the next step, as long as it stays in range. */
static void adapt(tally_optimizer *optimizer)
{
    const tally_optimizer_config *config = &optimizer->config;
    struct tally__loss_scale *loss = &optimizer->loss;
    bool grows = !loss->skips && loss->n_good + 1 >= (uint64_t)config->loss_scale_interval;
    double wanted = loss->scale;

    if (loss->skips) {
        wanted *= config->loss_scale_backoff;
    } else if (grows) {
        wanted *= config->loss_scale_growth;
    }
    loss->n_good = loss->skips || grows ? 0 : loss->n_good + 1;
    if (tally__is_loss_scale(wanted)) {
        loss->scale = wanted;
    }
}

int tally__loss_end(tally_optimizer *optimizer, tally_lane *lane)
{
    struct tally__loss_scale *loss = &optimizer->loss;
    uint64_t any = 0;

    if (!loss->kept) {
        return TALLY_OK;
    }
    TRY(tally__agree_any(lane, !is_step_finite(optimizer), &any));
    loss->skips = any != 0;
    loss->last = loss->scale;
    loss->is_used = true;
    if (loss->skips) {
        (void)pthread_mutex_lock(&optimizer->ddp->mutex);
        drop(optimizer);
        optimizer->n_skipped++;
        (void)pthread_mutex_unlock(&optimizer->ddp->mutex);
    }
    return TALLY_OK;
}

void tally__loss_over(tally_optimizer *optimizer)
{
    if (optimizer->loss.is_used) {
        adapt(optimizer);
        optimizer->loss.is_used = false;
    }
    for (size_t i = 0; optimizer->loss.kept && i < optimizer->n_params; i++) {
        optimizer->loss.kept[i].is_kept = false;
        optimizer->loss.kept[i].overflowed = false;
    }
}
