/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The joint norm of the means, and clipping: per-parameter norms in fp64, added in parameter order,
 * so that all ranks get the same bits. Callers of the internal functions set tally's floating-point
 * environment. A lane enters, or the thread that trains.
 */
#include "train/norm.h"

#include <math.h>

#include "base/cpu.h"
#include "base/status.h"
#include "ddp/grad_cast.h"
#include "num/num.h"
#include "num/reduce.h"
#include "train/optimizer.h"
#include "train/training.h"

#define CHUNK 1024

/* The sum of squares of the elements times shrink, a power of two. */
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

static double sum_of_squares(const struct tally__param *param, double shrink)
{
    double sum = 0;

    if (param->dtype == TALLY_F64) {
        return sum_of_squares_f64(param->n, param->mean.last, shrink);
    }
    if (param->dtype == TALLY_F32) {
        return tally__sqnorm_f32(param->n, param->mean.last) * shrink * shrink;
    }
    for (size_t i = 0; i < param->n; i += CHUNK) {
        size_t n = param->n - i < CHUNK ? param->n - i : CHUNK;
        float wide[CHUNK];

        tally__cast(param->dtype, TALLY_F32, n, (const uint16_t *)param->mean.last + i, wide);
        sum += tally__sqnorm_f32(n, wide);
    }
    return sum * shrink * shrink;
}

void tally__scale_mean(const struct tally__param *param, double factor)
{
    if (param->mean.last) {
        tally__scale_array(param->dtype, param->n, param->mean.last, factor);
    }
}

/* The squared norm of one parameter's mean times shrink; 0 if it has none. */
static double square_of(const tally_ddp *ddp, const double *squares, size_t i, double shrink)
{
    if (ddp->params[i].mean.last) {
        return sum_of_squares(&ddp->params[i], shrink);
    }
    return squares ? squares[i] * shrink * shrink : 0;
}

/* The sum over all parameters, in their order. */
static double joint_sum(const tally_ddp *ddp, const double *squares, double shrink)
{
    double sum = 0;

    for (size_t i = 0; i < ddp->n_params; i++) {
        sum += square_of(ddp, squares, i, shrink);
    }
    return sum;
}

/* If squares overflow: finds a power of two that brings the largest element below 1, or fails and
 * names the first parameter with an infinity or a NaN. */
static int find_shrink(const tally_ddp *ddp, const double *squares, double *shrink)
{
    double largest = 1;
    int exponent;

    for (size_t i = 0; i < ddp->n_params; i++) {
        const struct tally__param *param = &ddp->params[i];
        double size = 0;

        if (!isfinite(square_of(ddp, squares, i, 0))) {
            return tally__fail(TALLY_NUMERIC,
                               "the gradient of parameter '%s' has an infinity or a NaN",
                               param->name);
        }
        if (param->mean.last && param->dtype == TALLY_F64) {
            size = largest_f64(param->n, param->mean.last);
        }
        largest = size > largest ? size : largest;
    }
    (void)frexp(largest, &exponent);
    *shrink = ldexp(1, -exponent);
    return TALLY_OK;
}

int tally__joint_norm(const tally_ddp *ddp, const double *squares, double *norm)
{
    double sum = joint_sum(ddp, squares, 1);
    double shrink = 1;

    if (!isfinite(sum)) {
        TRY(find_shrink(ddp, squares, &shrink));
        sum = joint_sum(ddp, squares, shrink);
    }
    *norm = sqrt(sum) / shrink;
    return isfinite(*norm) ? TALLY_OK
                           : tally__fail(TALLY_NUMERIC, "the joint norm is beyond what fp64 holds");
}

int tally_ddp_clip_grad_norm(tally_ddp *ddp, double max_norm, double *norm)
{
    const tally_optimizer *optimizer;
    tally__fpenv saved;
    double before = 0;
    int rc;

    TRY(tally__check_between_steps(ddp, "tally_ddp_clip_grad_norm"));
    if (!(max_norm >= 0)) {
        return tally__fail(TALLY_ARG, "tally_ddp_clip_grad_norm: max_norm takes 0 or more, not %g",
                           max_norm);
    }
    optimizer = tally__training_of(ddp)->optimizer;
    if (optimizer && optimizer->zero) {
        return tally__fail(TALLY_STATE,
                           "tally_ddp_clip_grad_norm: the optimizer is sharded, and no rank has "
                           "all means; set its max_norm instead");
    }
    saved = tally__fpenv_enter();
    rc = tally__joint_norm(ddp, NULL, &before);
    for (size_t i = 0; rc == TALLY_OK && before > max_norm && i < ddp->n_params; i++) {
        tally__scale_mean(&ddp->params[i], max_norm / before);
    }
    tally__fpenv_leave(saved);
    if (rc == TALLY_OK && norm) {
        *norm = before;
    }
    return tally__stats_note(ddp, rc);
}
