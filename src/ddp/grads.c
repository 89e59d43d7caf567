/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What everybody does with gradients between steps: where they are, zeroing, clipping, logging a
 * loss, and steps without communication. One thread of the application enters at a time.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "ddp/ddp.h"
#include "ddp/stats.h"
#include "num/fpenv.h"
#include "num/num.h"

#define CHUNK 1024

static bool is_param(const tally_ddp *ddp, int i)
{
    return ddp && i >= 0 && (size_t)i < ddp->n_params;
}

size_t tally_ddp_n_params(const tally_ddp *ddp)
{
    return ddp ? ddp->n_params : 0;
}

void *tally_ddp_grad(const tally_ddp *ddp, int i)
{
    return is_param(ddp, i) ? ddp->params[i].grad : NULL;
}

int tally_ddp_is_unused(const tally_ddp *ddp, int i, int *unused)
{
    if (!is_param(ddp, i) || !unused) {
        return tally__fail(TALLY_ARG, "tally_ddp_is_unused: %s",
                           unused ? "no such parameter" : "unused is NULL");
    }
    *unused = ddp->params[i].unused;
    return TALLY_OK;
}

int tally_ddp_no_sync_begin(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_no_sync_begin"));
    if (ddp->no_sync) {
        return tally__fail(TALLY_STATE, "tally_ddp_no_sync_begin: begun already");
    }
    ddp->no_sync = true;
    return TALLY_OK;
}

int tally_ddp_no_sync_end(tally_ddp *ddp)
{
    if (!ddp) {
        return tally__fail(TALLY_ARG, "tally_ddp_no_sync_end: ddp is NULL");
    }
    if (!ddp->no_sync) {
        return tally__fail(TALLY_STATE, "tally_ddp_no_sync_end: not begun");
    }
    ddp->no_sync = false;
    return TALLY_OK;
}

int tally_ddp_zero_grad(tally_ddp *ddp)
{
    TRY(tally__check_between_steps(ddp, "tally_ddp_zero_grad"));
    for (size_t k = 0; k < ddp->n_order; k++) {
        struct tally__param *param = &ddp->params[ddp->order[k]];

        memset(param->grad, 0, param->bytes);
    }
    return TALLY_OK;
}

/* Of the elements times shrink, which is a power of two. */
static double sum_of_squares_f64(size_t n, const double *x, double shrink)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += x[i] * shrink * (x[i] * shrink);
    }
    return sum;
}

static double largest_f64(size_t n, const double *x)
{
    double largest = 0;

    for (size_t i = 0; i < n; i++) {
        largest = fabs(x[i]) > largest ? fabs(x[i]) : largest;
    }
    return largest;
}

static void widen(int dtype, size_t n, const uint16_t *x, float *y)
{
    (dtype == TALLY_F16 ? tally__f16_to_f32 : tally__bf16_to_f32)(n, x, y);
}

static double sum_of_squares(const struct tally__param *param, double shrink)
{
    double sum = 0;

    if (param->dtype == TALLY_F64) {
        return sum_of_squares_f64(param->n, param->grad, shrink);
    }
    if (param->dtype == TALLY_F32) {
        return tally__sqnorm_f32(param->n, param->grad) * shrink * shrink;
    }
    for (size_t i = 0; i < param->n; i += CHUNK) {
        size_t n = param->n - i < CHUNK ? param->n - i : CHUNK;
        float wide[CHUNK];

        widen(param->dtype, n, (const uint16_t *)param->grad + i, wide);
        sum += tally__sqnorm_f32(n, wide);
    }
    return sum * shrink * shrink;
}

static void scale_f32(size_t n, float *x, float factor)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static void scale_f64(size_t n, double *x, double factor)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
    }
}

static void scale(const struct tally__param *param, double factor)
{
    if (param->dtype == TALLY_F32) {
        scale_f32(param->n, param->grad, (float)factor);
        return;
    }
    if (param->dtype == TALLY_F64) {
        scale_f64(param->n, param->grad, factor);
        return;
    }
    for (size_t i = 0; i < param->n; i += CHUNK) {
        size_t n = param->n - i < CHUNK ? param->n - i : CHUNK;
        uint16_t *x = (uint16_t *)param->grad + i;
        float wide[CHUNK];

        widen(param->dtype, n, x, wide);
        scale_f32(n, wide, (float)factor);
        (param->dtype == TALLY_F16 ? tally__f32_to_f16 : tally__f32_to_bf16)(n, wide, x);
    }
}

/* Whether the gradient is the same on all ranks: not what no rank has, nor what is delayed and was
 * not reduced in the last step. */
static bool has_mean(const struct tally__param *param)
{
    return param->bucket >= 0 && !param->unused &&
           (param->reduced || !(param->flags & TALLY_PARAM_DELAYED));
}

/* Over all gradients times shrink, in parameter order. */
static double joint_sum(const tally_ddp *ddp, double shrink)
{
    double sum = 0;

    for (size_t i = 0; i < ddp->n_params; i++) {
        sum += has_mean(&ddp->params[i]) ? sum_of_squares(&ddp->params[i], shrink) : 0;
    }
    return sum;
}

/* Where squares may overflow: a power of two that brings the largest gradient below 1. Names the
 * first parameter with an infinity or a NaN, if that is why. */
static int find_shrink(const tally_ddp *ddp, double *shrink)
{
    double largest = 1;
    int exponent;

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];
        double own = 0;

        if (has_mean(param) && !isfinite(sum_of_squares(param, 0))) {
            return tally__fail(TALLY_NUMERIC,
                               "the gradient of parameter '%s' has an infinity or a NaN",
                               param->name);
        }
        if (has_mean(param) && param->dtype == TALLY_F64) {
            own = largest_f64(param->n, param->grad);
        }
        largest = own > largest ? own : largest;
    }
    (void)frexp(largest, &exponent);
    *shrink = ldexp(1, -exponent);
    return TALLY_OK;
}

static int joint_norm(const tally_ddp *ddp, double *norm)
{
    double sum = joint_sum(ddp, 1);
    double shrink = 1;

    if (!isfinite(sum)) {
        TRY(find_shrink(ddp, &shrink));
        sum = joint_sum(ddp, shrink);
    }
    *norm = sqrt(sum) / shrink;
    return isfinite(*norm) ? TALLY_OK
                           : tally__fail(TALLY_NUMERIC, "the joint norm is beyond what fp64 holds");
}

int tally_ddp_clip_grad_norm(tally_ddp *ddp, double max_norm, double *norm)
{
    tally__fpenv saved;
    double before = 0;
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_clip_grad_norm"));
    if (!(max_norm >= 0)) {
        return tally__fail(TALLY_ARG, "tally_ddp_clip_grad_norm: max_norm %g is below 0", max_norm);
    }
    saved = tally__fpenv_enter();
    rc = joint_norm(ddp, &before);
    for (size_t i = 0; rc == TALLY_OK && before > max_norm && i < ddp->n_params; i++) {
        if (has_mean(&ddp->params[i])) {
            scale(&ddp->params[i], max_norm / before);
        }
    }
    tally__fpenv_leave(saved);
    if (rc == TALLY_OK && norm) {
        *norm = before;
    }
    return tally__stats_note(ddp, rc);
}

struct scalar {
    bool given;
    double value;
};

static int mean_job(tally_lane *lane, void *user)
{
    struct scalar *scalar = user;

    if (!scalar->given) {
        return tally_job_fail(lane, TALLY_ARG, "tally_ddp_mean_scalar: value is NULL");
    }
    return tally_lane_all_reduce(lane, &scalar->value, 1, TALLY_F64, TALLY_MEAN);
}

int tally_ddp_mean_scalar(tally_ddp *ddp, double *value)
{
    struct scalar scalar = {.given = value != NULL, .value = value ? *value : 0};

    TRY(tally__check_between_steps(ddp, "tally_ddp_mean_scalar"));
    TRY(tally__stats_note(ddp, tally__ddp_run(ddp, mean_job, &scalar)));
    if (value) {
        *value = scalar.value;
    }
    return TALLY_OK;
}
