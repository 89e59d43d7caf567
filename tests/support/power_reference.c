/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of power_reference.h. Every rank that wants one has its own. */
#include "support/power_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "ddp/ddp.h"
#include "hook/power.h"
#include "num/low_rank.h"

#define MOST_RANKS 16

struct power_reference {
    struct power_setting setting;
    const struct ddp_model *model;
    int world;
    double *residual[MOST_RANKS][DDP_MAX_PARAMS];
    double *mean[DDP_MAX_PARAMS];
    /* By parameter; batched, by a bucket's first. */
    double *q[DDP_MAX_PARAMS];
    size_t q_n[DDP_MAX_PARAMS];
    size_t q_m[DDP_MAX_PARAMS];
};

/* A matrix in a step: which parameters it is, one after the other. */
struct matrix {
    size_t n;
    size_t m;
    size_t r;
    size_t size;
    int n_parts;
    const tally_bucket_param *parts;
};

static double *numbers(size_t n)
{
    double *made = calloc(n + 1, sizeof *made);

    if (!made) {
        (void)fprintf(stderr, "no memory for the reference\n");
        exit(1);
    }
    return made;
}

struct power_reference *power_reference_make(const struct power_setting *setting,
                                             const struct ddp_model *model, int world)
{
    struct power_reference *reference = calloc(1, sizeof *reference);

    if (!reference) {
        exit(1);
    }
    reference->setting = *setting;
    reference->model = model;
    reference->world = world;
    for (size_t i = 0; i < model->n; i++) {
        reference->mean[i] = numbers(model->count[i]);
        for (int r = 0; r < world; r++) {
            reference->residual[r][i] = numbers(model->count[i]);
        }
    }
    return reference;
}

void power_reference_free(struct power_reference *reference)
{
    for (size_t i = 0; i < reference->model->n; i++) {
        free(reference->mean[i]);
        free(reference->q[i]);
        for (int r = 0; r < reference->world; r++) {
            free(reference->residual[r][i]);
        }
    }
    free(reference);
}

const double *power_reference_mean(const struct power_reference *reference, size_t i)
{
    return reference->mean[i];
}

/* ---- one matrix ---- */

static double dot(size_t n, const double *x, const double *y)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += x[i] * y[i];
    }
    return sum;
}

/* Columns of n elements become orthonormal; what depends on those before becomes zero. */
static void orthogonalise(size_t n, size_t r, double epsilon, double *p)
{
    for (size_t j = 0; j < r; j++) {
        double *column = p + j * n;
        double norm = sqrt(dot(n, column, column));
        double left;

        for (size_t i = 0; i < 2 * j; i++) {
            const double *other = p + i % j * n;
            double along = dot(n, other, column);

            for (size_t k = 0; k < n; k++) {
                column[k] -= along * other[k];
            }
        }
        left = sqrt(dot(n, column, column));
        for (size_t k = 0; k < n; k++) {
            column[k] = left > 1e-6 * norm ? column[k] / (left + epsilon) : 0;
        }
    }
}

/* The Q that a step starts from. */
static void start_from(struct power_reference *reference, const struct matrix *matrix,
                       unsigned step, double *q)
{
    const struct power_setting *setting = &reference->setting;
    int key = matrix->parts[0].index;
    const char *name = matrix->parts[0].name;
    uint64_t seed = setting->seed + (setting->warm_start ? 0 : (uint64_t)step << 32);
    size_t count = matrix->m * matrix->r;
    float *filled = calloc(count + 1, sizeof *filled);

    if (!filled) {
        exit(1);
    }
    if (reference->q_n[key] != matrix->n || reference->q_m[key] != matrix->m) {
        free(reference->q[key]);
        reference->q[key] = numbers(count);
        reference->q_n[key] = matrix->n;
        reference->q_m[key] = matrix->m;
    }
    tally__low_rank_fill(matrix->m, matrix->r, seed, tally__checksum(0, name, strlen(name)),
                         filled);
    for (size_t k = 0; k < matrix->r; k++) {
        const double *old = reference->q[key] + k * matrix->m;
        bool keeps = setting->warm_start && dot(matrix->m, old, old) > 0;

        for (size_t j = 0; j < matrix->m; j++) {
            q[k * matrix->m + j] = keeps ? old[j] : (double)filled[k * matrix->m + j];
        }
    }
    free(filled);
    orthogonalise(matrix->m, matrix->r, setting->epsilon, q);
}

/* C of a rank: its gradients and residuals, one after the other, zeros behind them. */
static void correct(const struct power_reference *reference, const struct matrix *matrix,
                    const struct power_step *step, int rank, double *c)
{
    memset(c, 0, matrix->n * matrix->m * sizeof *c);
    for (int k = 0; k < matrix->n_parts; k++) {
        int i = matrix->parts[k].index;
        size_t offset = matrix->parts[k].offset - matrix->parts[0].offset;

        for (size_t e = 0; e < matrix->parts[k].n; e++) {
            c[offset + e] =
                step->value(step->number, rank, (size_t)i, e) + reference->residual[rank][i][e];
        }
    }
}

/* The sum of all ranks' parts of a factor: of P = C Q, or of Q = C^T P. */
static void add_product(const struct matrix *matrix, const double *c, bool transposed,
                        const double *by, double *sum)
{
    for (size_t k = 0; k < matrix->r; k++) {
        for (size_t at = 0; at < matrix->n * matrix->m; at++) {
            size_t i = at / matrix->m;
            size_t j = at % matrix->m;

            if (transposed) {
                sum[k * matrix->m + j] += c[at] * by[k * matrix->n + i];
            } else {
                sum[k * matrix->n + i] += c[at] * by[k * matrix->m + j];
            }
        }
    }
}

static void divide(size_t n, double divisor, double *x)
{
    for (size_t i = 0; i < n; i++) {
        x[i] /= divisor;
    }
}

/* Adds factor times P Q^T to x. */
static void add_expanded(const struct matrix *matrix, const double *p, const double *q,
                         double factor, double *x)
{
    for (size_t at = 0; at < matrix->n * matrix->m; at++) {
        for (size_t k = 0; k < matrix->r; k++) {
            x[at] += factor * p[k * matrix->n + at / matrix->m] * q[k * matrix->m + at % matrix->m];
        }
    }
}

/* To the parameters that the matrix is. */
static void spread(const struct matrix *matrix, const double *from, double *const *to)
{
    for (int k = 0; k < matrix->n_parts; k++) {
        memcpy(to[matrix->parts[k].index],
               from + (matrix->parts[k].offset - matrix->parts[0].offset),
               matrix->parts[k].n * sizeof *from);
    }
}

static void keep_residual(struct power_reference *reference, const struct matrix *matrix,
                          const double *p, double *c, int rank)
{
    double *own = numbers(matrix->m * matrix->r);

    add_product(matrix, c, true, p, own);
    add_expanded(matrix, p, reference->setting.own_q ? own : reference->q[matrix->parts[0].index],
                 -1, c);
    spread(matrix, c, reference->residual[rank]);
    free(own);
}

static void step_matrix(struct power_reference *reference, const struct matrix *matrix,
                        const struct power_step *step)
{
    size_t size = matrix->n * matrix->m;
    double *c = numbers((size_t)reference->world * size); /* one rank's after the other */
    double *p = numbers(matrix->n * matrix->r);
    double *start = numbers(matrix->m * matrix->r);
    double *mean = numbers(size);
    double *q;

    start_from(reference, matrix, step->number, start);
    q = reference->q[matrix->parts[0].index];
    memset(q, 0, matrix->m * matrix->r * sizeof *q);
    for (int r = 0; r < reference->world; r++) {
        if (step->active >> r & 1) {
            correct(reference, matrix, step, r, c + (size_t)r * size);
            add_product(matrix, c + (size_t)r * size, false, start, p);
        }
    }
    divide(matrix->n * matrix->r, step->divisor, p);
    orthogonalise(matrix->n, matrix->r, reference->setting.epsilon / step->divisor, p);
    for (int r = 0; r < reference->world; r++) {
        add_product(matrix, c + (size_t)r * size, true, p, q);
    }
    divide(matrix->m * matrix->r, step->divisor, q);
    add_expanded(matrix, p, q, 1, mean);
    spread(matrix, mean, reference->mean);
    for (int r = 0; r < reference->world; r++) {
        if (reference->setting.feedback && step->active >> r & 1) {
            keep_residual(reference, matrix, p, c + (size_t)r * size, r);
        }
    }
    free(c);
    free(p);
    free(start);
    free(mean);
}

/* ---- one bucket ---- */

/* A parameter that travels unchanged has no residual. */
static void step_plain(struct power_reference *reference, const tally_bucket_param *param,
                       const struct power_step *step)
{
    for (size_t e = 0; e < param->n; e++) {
        double sum = 0;

        for (int r = 0; r < reference->world; r++) {
            sum +=
                step->active >> r & 1 ? step->value(step->number, r, (size_t)param->index, e) : 0;
        }
        reference->mean[param->index][e] = sum / step->divisor;
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void step_bucket(struct power_reference *reference, const tally_bucket *bucket,
                        const struct power_step *step)
{
    const struct power_setting *setting = &reference->setting;

    for (int k = 0; k < bucket->n_params && !setting->batched; k++) {
        const tally_bucket_param *param = &bucket->params[k];
        size_t n = param->n_dims > 0 ? param->shape[0] : 1;
        size_t m = n > 0 ? param->n / n : 0;
        size_t r = least(setting->rank, least(n, m));
        const struct matrix matrix = {n, m, r, param->n, 1, param};

        if ((double)((n + m) * r) * setting->min_rate < (double)(n * m)) {
            step_matrix(reference, &matrix, step);
        } else {
            step_plain(reference, param, step);
        }
    }
    if (setting->batched && bucket->n > 0) {
        size_t side = 1;

        while (side * side < bucket->n) {
            side++;
        }
        const struct matrix matrix = {
            side, side, least(setting->rank, side), bucket->n, bucket->n_params, bucket->params};

        step_matrix(reference, &matrix, step);
    }
}

void power_reference_step(struct power_reference *reference, const tally_ddp *ddp,
                          const struct power_step *step)
{
    for (size_t b = 0; b < ddp->buckets.n; b++) {
        if (ddp->buckets.bucket[b].seen.dtype == TALLY_F32) {
            step_bucket(reference, &ddp->buckets.bucket[b].seen, step);
        }
    }
}

/* ---- from the hook ---- */

struct gathering {
    size_t n;
    const float *own;
    float *all;
};

static int gather_job(tally_lane *lane, void *user)
{
    struct gathering *gathering = user;
    size_t bytes[MOST_RANKS];

    for (int r = 0; r < MOST_RANKS; r++) {
        bytes[r] = gathering->n * sizeof(float);
    }
    return tally_lane_all_gather(lane, gathering->own, bytes, gathering->all);
}

/* All ranks' residuals of parameter i. */
static int take_residual(struct power_reference *reference, tally_group *group,
                         const struct tally__residual *residual, size_t i)
{
    size_t n = reference->model->count[i];
    float *zeros = calloc(n + 1, sizeof *zeros);
    float *all = calloc((size_t)reference->world * n + 1, sizeof *all);
    struct gathering gathering = {n, residual->sent ? residual->sent : zeros, all};
    int rc;

    if (!zeros || !all) {
        exit(1);
    }
    rc = ranks_job(group, 0, gather_job, &gathering);
    for (size_t at = 0; at < (size_t)reference->world * n; at++) {
        reference->residual[at / n][i][at % n] = (double)all[at];
    }
    free(zeros);
    free(all);
    return rc;
}

int power_reference_take(struct power_reference *reference, tally_group *group, tally_ddp *ddp)
{
    struct tally__power *power = ddp->hook->state;

    CHECK_OK(group, tally__residuals_make_plain(ddp->residuals));
    for (size_t i = 0; i < reference->model->n; i++) {
        const struct tally__power_matrix *matrix = &power->matrices[i];

        CHECK_OK(group, take_residual(reference, group, &ddp->residuals->params[i], i));
        for (size_t e = 0; reference->q[i] && e < matrix->shape.m * matrix->shape.r; e++) {
            reference->q[i][e] = (double)matrix->q[e];
        }
    }
    return 0;
}

double power_reference_distance(const struct power_reference *reference, const tally_ddp *ddp)
{
    double most = 0;
    double off = 0;
    double whole = 0;

    for (size_t i = 0; i < reference->model->n; i++) {
        const float *grad = tally_ddp_grad(ddp, (int)i);

        if (reference->model->spec[i].dtype != TALLY_F32) {
            continue;
        }
        off = reference->setting.batched ? off : 0;
        whole = reference->setting.batched ? whole : 0;
        for (size_t e = 0; e < reference->model->count[i]; e++) {
            double mean = reference->mean[i][e];

            off += ((double)grad[e] - mean) * ((double)grad[e] - mean);
            whole += mean * mean;
        }
        /* A NaN must not pass for near. */
        if (!reference->setting.batched && !(off <= most * most * whole)) {
            most = whole > 0 ? sqrt(off / whole) : INFINITY;
        }
    }
    return reference->setting.batched ? sqrt(off / whole) : most;
}
