/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD's plan of a bucket: the parameters that are matrices worth compressing, those that
 * travel unchanged, and the position of each in the two messages. Made when a bucket is first seen
 * in a layout, so that later steps allocate nothing. Lanes enter, several at once, each with a
 * different bucket.
 */
#include <assert.h>
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

/* A parameter as a matrix: rows by its first dimension. A scalar is one by one. */
static struct tally__low_rank shape_of(const struct tally__power_options *options,
                                       const tally_bucket_param *param)
{
    size_t n = param->n_dims > 0 ? param->shape[0] : 1;
    size_t m = n > 0 ? param->n / n : 0;

    return (struct tally__low_rank){n, m, smallest(n, m, options->rank), param->n};
}

/* A whole bucket as a square; the end of its last row is missing. */
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

/* Allocates the factors; existing ones stay if they fit the shape. */
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

/* Adds a matrix to the plan. */
static void plan_matrix(const struct tally__low_rank *shape, int position,
                        struct tally__power_plan *plan)
{
    assert(shape->r > 0 && shape->r <= shape->n && shape->r <= shape->m);
    plan->matrix[plan->n_matrices++] = position;
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
        struct tally__low_rank shape = square_of(&power->options, bucket->n);

        TRY(prepare_matrix(&power->matrices[bucket->params[0].index], shape));
        plan_matrix(&shape, 0, plan);
    }
    first_count = plan->p_count + plan->rest_count;
    plan->message = tally__alloc_array(first_count > plan->q_count ? first_count : plan->q_count,
                                       sizeof *plan->message, what);
    plan->start = tally__alloc_array(plan->q_most, sizeof *plan->start, what);
    return plan->message && plan->start ? TALLY_OK : TALLY_NOMEM;
}

/* Prepares for a new layout. No bucket of the old layout is under way, and all residuals are plain.
 */
static void enter_layout(struct tally__power *power, const tally_bucket *bucket)
{
    (void)pthread_mutex_lock(&power->mutex);
    for (size_t i = 0; power->generation != bucket->generation && i < power->n_params; i++) {
        tally__power_plan_clear(&power->plans[i]);
        tally__free(power->matrices[i].corrected);
        power->matrices[i].corrected = NULL;
    }
    power->generation = bucket->generation;
    (void)pthread_mutex_unlock(&power->mutex);
}

int tally__power_plan_of(struct tally__power *power, const tally_bucket *bucket,
                         struct tally__power_plan **plan)
{
    struct tally__power_plan *found = &power->plans[bucket->params[0].index];

    enter_layout(power, bucket);
    if (found->generation != bucket->generation) {
        tally__power_plan_clear(found);
        TRY(plan_bucket(power, bucket, found));
        found->generation = bucket->generation;
    }
    *plan = found;
    return TALLY_OK;
}
