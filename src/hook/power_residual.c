/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD's residuals in two forms: plain, as in residuals.h, and held, as steps use them
 * (hook/power.h). Lanes enter, several at once, each with different matrices; between steps
 * application threads.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "hook/power.h"

void tally__power_forget_factors(struct tally__power_matrix *matrix)
{
    memset(matrix->p, 0, matrix->shape.n * matrix->shape.r * sizeof *matrix->p);
    memset(matrix->own_q, 0, matrix->shape.m * matrix->shape.r * sizeof *matrix->own_q);
}

void tally__power_take_away(struct tally__power_matrix *matrix, float *corrected)
{
    tally__low_rank_residual(&matrix->shape, (struct tally__factors){matrix->p, matrix->own_q},
                             corrected);
    tally__power_forget_factors(matrix);
}

/* The matrix is corrected in the array of residuals.h. */
static int write_down_layer(void *state, struct tally__residuals *residuals, size_t i)
{
    tally__power_take_away(state, residuals->params[i].held);
    tally__residual_became_plain(&residuals->params[i]);
    return TALLY_OK;
}

/* Copies from the matrix's array to those of its parameters. */
static int write_down_square(void *state, struct tally__residuals *residuals, size_t i)
{
    struct tally__power_matrix *matrix = state;

    (void)i;
    for (int k = 0; k < matrix->n_parts; k++) {
        const tally_bucket_param *part = &matrix->parts[k];

        TRY(tally__residual_allocate(&residuals->params[part->index], part->n));
    }
    tally__power_take_away(matrix, matrix->corrected);
    for (int k = 0; k < matrix->n_parts; k++) {
        const tally_bucket_param *part = &matrix->parts[k];
        struct tally__residual *residual = &residuals->params[part->index];

        memcpy(residual->sent, matrix->corrected + part->offset, part->n * sizeof(float));
        tally__residual_became_plain(residual);
    }
    return TALLY_OK;
}

static int hold_layer(struct tally__residual *residual, size_t n,
                      struct tally__power_matrix *matrix)
{
    TRY(tally__residual_allocate(residual, n));
    matrix->holder = (struct tally__holder){write_down_layer, matrix};
    tally__power_forget_factors(matrix);
    tally__residual_hold(residual, residual->sent, &matrix->holder);
    return TALLY_OK;
}

/* Copies the bucket's residuals into the matrix's array. Residuals that this hook wrote down itself
 * are there already: that may happen in every step. */
static int hold_square(const tally_bucket *bucket, struct tally__power_matrix *matrix)
{
    struct tally__residuals *residuals = tally__reduction_here()->residuals;
    bool is_new = !matrix->corrected;

    if (is_new) {
        matrix->corrected =
            tally__alloc_array(bucket->n, sizeof *matrix->corrected, "PowerSGD's state");
    }
    if (!matrix->corrected) {
        return TALLY_NOMEM;
    }
    matrix->holder = (struct tally__holder){write_down_square, matrix};
    matrix->parts = bucket->params;
    matrix->n_parts = bucket->n_params;
    memset(matrix->corrected, 0, bucket->n * sizeof *matrix->corrected);
    for (int k = 0; k < bucket->n_params; k++) {
        const tally_bucket_param *part = &bucket->params[k];
        struct tally__residual *residual = &residuals->params[part->index];
        float *here = matrix->corrected + part->offset;

        if (is_new) {
            tally__residual_deliver(residual, here);
        } else if (residual->sent) {
            memcpy(here, residual->sent, part->n * sizeof *here);
        }
        tally__residual_hold(residual, here, &matrix->holder);
    }
    tally__power_forget_factors(matrix);
    return TALLY_OK;
}

int tally__power_hold(const tally_bucket *bucket, const tally_bucket_param *param,
                      struct tally__power_matrix *matrix, bool batched)
{
    struct tally__residual *residual = tally__power_residual(param);

    if (residual->held) {
        return TALLY_OK;
    }
    return batched ? hold_square(bucket, matrix) : hold_layer(residual, param->n, matrix);
}
