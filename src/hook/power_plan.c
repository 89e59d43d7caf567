/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD's plan of a bucket: which parameters are matrices worth compressing, which travel as
 * they are, and where each lies in the two messages. Made when a bucket is first seen in a layout,
 * so that later steps allocate nothing. Lanes enter, several at once; each has a bucket of its own.
 */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "hook/power.h"

static const char what[] = "PowerSGD's state";

void tally__power_plan_clear(struct tally__power_plan *plan)
{
    tally__free(plan->matrix);
    tally__free(plan->rest);
    tally__free(plan->message);
    tally__free(plan->start);
    *plan = (struct tally__power_plan){0};
}

void tally__power_matrix_clear(struct tally__power_matrix *matrix)
{
    tally__free(matrix->p);
    tally__free(matrix->q);
    tally__free(matrix->own_q);
    tally__free(matrix->corrected);
    tally__free((void *)matrix->parts);
    *matrix = (struct tally__power_matrix){0};
}

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

bool tally__power_worth(const struct tally__power_options *options, size_t n, size_t m)
{
    double r = (double)smallest(n, m, options->rank);

    return ((double)n + (double)m) * r * options->min_rate < (double)n * (double)m;
}

/* The matrix that a parameter is: rows by its first dimension. A scalar is one by one. */
static struct tally__low_rank shape_of(const struct tally__power_options *options,
                                       const tally_bucket_param *param)
{
    size_t n = param->n_dims > 0 ? param->shape[0] : 1;
    size_t m = n > 0 ? param->n / n : 0;

    return (struct tally__low_rank){n, m, smallest(n, m, options->rank), param->n};
}

/* The square that a whole bucket is, the end of its last row missing. */
static struct tally__low_rank square_of(const struct tally__power_options *options, size_t n)
{
    size_t side = (size_t)sqrt((double)n);

    while (side * side < n) {
        side++;
    }
    return (struct tally__low_rank){side, side, smallest(side, side, options->rank), n};
}

static bool same_shape(const struct tally__low_rank *a, const struct tally__low_rank *b)
{
    return a->n == b->n && a->m == b->m && a->r == b->r && a->size == b->size;
}

/* Room for the factors; those there are stay if they fit the shape. */
static int prepare_matrix(struct tally__power_matrix *matrix, struct tally__low_rank shape)
{
    if (matrix->q && !same_shape(&matrix->shape, &shape)) {
        tally__power_matrix_clear(matrix);
    }
    matrix->shape = shape;
    if (!matrix->q) {
        matrix->q = tally__alloc_array(shape.m * shape.r, sizeof *matrix->q, what);
    }
    if (!matrix->own_q) {
        matrix->own_q = tally__alloc_array(shape.m * shape.r, sizeof *matrix->own_q, what);
    }
    if (!matrix->p) {
        matrix->p = tally__alloc_array(shape.n * shape.r, sizeof *matrix->p, what);
    }
    return matrix->p && matrix->q && matrix->own_q ? TALLY_OK : TALLY_NOMEM;
}

/* Layer by layer: the keeper's array is where the matrix is corrected. */
static int prepare_residual(struct tally__power *power, const tally_bucket *bucket,
                            const tally_bucket_param *param)
{
    struct tally__residual *residual = tally__power_residual(bucket, param);

    if (!power->options.feedback) {
        return TALLY_OK;
    }
    TRY(tally__residual_send(residual, param->n));
    return tally__residual_own(residual, 0, 0, bucket);
}

/* Batched: the bucket's residuals, one after the other, become the matrix's. */
static int gather_residuals(const tally_bucket *bucket, struct tally__power_matrix *matrix)
{
    size_t n_parts = (size_t)bucket->n_params;
    tally_bucket_param *parts = tally__alloc_array(n_parts, sizeof *parts, what);
    float *corrected = tally__alloc_array(bucket->n, sizeof *corrected, what);

    if (!parts || !corrected) {
        tally__free(parts);
        tally__free(corrected);
        return TALLY_NOMEM;
    }
    for (size_t k = 0; k < n_parts; k++) {
        parts[k] = bucket->params[k];
        tally__residual_deliver(tally__power_residual(bucket, &parts[k]), bucket,
                                corrected + parts[k].offset);
    }
    matrix->corrected = corrected;
    matrix->parts = parts;
    matrix->n_parts = bucket->n_params;
    matrix->generation = bucket->generation;
    return TALLY_OK;
}

static int prepare_square(struct tally__power *power, const tally_bucket *bucket)
{
    struct tally__power_matrix *matrix = &power->matrices[bucket->params[0].index];

    TRY(prepare_matrix(matrix, square_of(&power->options, bucket->n)));
    return power->options.feedback && matrix->generation != bucket->generation
               ? gather_residuals(bucket, matrix)
               : TALLY_OK;
}

/* Adds a matrix to the plan. */
static void plan_matrix(const struct tally__low_rank *shape, int place,
                        struct tally__power_plan *plan)
{
    plan->matrix[plan->n_matrices++] = place;
    plan->p_count += shape->n * shape->r;
    plan->q_count += shape->m * shape->r;
    plan->q_most = shape->m * shape->r > plan->q_most ? shape->m * shape->r : plan->q_most;
}

static int plan_layers(struct tally__power *power, const tally_bucket *bucket,
                       struct tally__power_plan *plan)
{
    for (int k = 0; k < bucket->n_params; k++) {
        const tally_bucket_param *param = &bucket->params[k];
        struct tally__low_rank shape = shape_of(&power->options, param);

        if (tally__power_worth(&power->options, shape.n, shape.m)) {
            TRY(prepare_matrix(&power->matrices[param->index], shape));
            TRY(prepare_residual(power, bucket, param));
            plan_matrix(&shape, k, plan);
        } else {
            plan->rest[plan->n_rest++] = k;
            plan->rest_count += param->n;
        }
    }
    return TALLY_OK;
}

static int plan_bucket(struct tally__power *power, const tally_bucket *bucket,
                       struct tally__power_plan *plan)
{
    size_t n = (size_t)bucket->n_params;
    size_t first_count;

    plan->matrix = tally__alloc_array(n, sizeof *plan->matrix, what);
    plan->rest = tally__alloc_array(n, sizeof *plan->rest, what);
    if (!plan->matrix || !plan->rest) {
        return TALLY_NOMEM;
    }
    if (!power->options.batched) {
        TRY(plan_layers(power, bucket, plan));
    } else if (bucket->n > 0) {
        TRY(prepare_square(power, bucket));
        plan_matrix(&power->matrices[bucket->params[0].index].shape, 0, plan);
    }
    first_count = plan->p_count + plan->rest_count;
    plan->message = tally__alloc_array(first_count > plan->q_count ? first_count : plan->q_count,
                                       sizeof *plan->message, what);
    plan->start = tally__alloc_array(plan->q_most, sizeof *plan->start, what);
    return plan->message && plan->start ? TALLY_OK : TALLY_NOMEM;
}

/* With the mutex held: what a bucket of a new layout must find. No bucket of the old one is under
 * way. */
static int enter_layout(struct tally__power *power, const tally_bucket *bucket)
{
    power->keeper = bucket->keeper;
    if (power->generation == bucket->generation) {
        return TALLY_OK;
    }
    if (power->options.batched) {
        TRY(tally__power_hand_back(power));
    }
    for (size_t i = 0; i < power->n_params; i++) {
        tally__power_plan_clear(&power->plans[i]);
    }
    power->generation = bucket->generation;
    return TALLY_OK;
}

int tally__power_settle_bucket(void *state, const tally_bucket *bucket)
{
    struct tally__power *power = state;
    int rc;

    (void)pthread_mutex_lock(&power->mutex);
    rc = enter_layout(power, bucket);
    (void)pthread_mutex_unlock(&power->mutex);
    for (int k = 0; rc == TALLY_OK && k < bucket->n_params; k++) {
        size_t i = (size_t)bucket->params[k].index;

        rc = tally__power_settle_matrix(&power->matrices[i], bucket->keeper, i);
    }
    return rc;
}

int tally__power_plan_of(struct tally__power *power, const tally_bucket *bucket,
                         struct tally__power_plan **plan)
{
    struct tally__power_plan *found = &power->plans[bucket->params[0].index];
    int rc;

    (void)pthread_mutex_lock(&power->mutex);
    rc = enter_layout(power, bucket);
    (void)pthread_mutex_unlock(&power->mutex);
    TRY(rc);
    if (found->generation != bucket->generation) {
        tally__power_plan_clear(found);
        TRY(plan_bucket(power, bucket, found));
        found->generation = bucket->generation;
    }
    *plan = found;
    return TALLY_OK;
}
