/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PowerSGD reduces a bucket. M is the gradient of one matrix, C is M plus its residual, P and Q are
 * the factors. A step is two exchanges:
 *
 *   1  every matrix: P = C Q, with the orthogonalised Q of the last step;
 *   2  exchange the mean of all P, together with the parameters that are not compressed;
 *   3  every matrix: orthogonalise P; Q = C^T P;
 *   4  exchange the mean of all Q; every matrix: M = P Q^T.
 *
 * A matrix takes 2 (n + m) r floats instead of 2 n m. P is a mean where PyTorch has a sum: only its
 * direction matters. Buckets that are not fp32 travel unchanged. Lanes enter, several at once.
 * State: hook/power.h.
 */
#include <math.h>
#include <string.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status.h"
#include "exchange/two_phase.h"
#include "hook/hook.h"
#include "hook/power.h"
#include "num/num.h"

/* Gradients beyond this do not stay in the caches between two passes over them. */
#define CACHED_BYTES ((size_t)16 << 20)
/* Steps of which one is measured: that takes another pass over the gradient. */
#define MEASURED_EVERY 32

/* One bucket in one step. */
struct step {
    struct tally__power *power;
    const tally_bucket *bucket;
    struct tally__power_plan *plan;
    const struct tally__wire *wire; /* the wire type of the factors */
    uint64_t number;                /* steps done before */
};

/* The parameter of matrix number k of the bucket, or, batched, its first parameter. */
static const tally_bucket_param *param_of(const struct step *step, int k)
{
    return &step->bucket->params[step->plan->matrix[k]];
}

static struct tally__power_matrix *matrix_of(const struct step *step, int k)
{
    return &step->power->matrices[param_of(step, k)->index];
}

/* The array in which the matrix is corrected; without feedback the gradient itself. */
static float *corrected_of(const struct step *step, int k)
{
    const tally_bucket_param *param = param_of(step, k);

    return step->power->options.feedback ? tally__power_residual(param)->held : param->gradient;
}

/* A number from the parameter's name: the same Q on all ranks and in all layouts. */
static uint64_t key_of(const char *name)
{
    return tally__checksum(0, name, strlen(name));
}

static size_t p_count(const struct tally__power_matrix *matrix)
{
    return matrix->shape.n * matrix->shape.r;
}

static size_t q_count(const struct tally__power_matrix *matrix)
{
    return matrix->shape.m * matrix->shape.r;
}

/* The Q that a step starts from: the last one, or a new one. */
static void start_from(const struct step *step, int k, float *q)
{
    const struct tally__power_options *options = &step->power->options;
    const struct tally__power_matrix *matrix = matrix_of(step, k);
    size_t m = matrix->shape.m;
    size_t r = matrix->shape.r;
    uint64_t seed = options->warm_start ? options->seed : options->seed + (step->number << 32);

    if (options->warm_start) {
        memcpy(q, matrix->q, q_count(matrix) * sizeof *q);
    } else {
        memset(q, 0, q_count(matrix) * sizeof *q);
    }
    tally__low_rank_fill(m, r, seed, key_of(param_of(step, k)->name), q);
    (void)tally__low_rank_orthogonalise(m, r, options->epsilon, q);
}

/* P = C Q, after adding the gradient to C. */
static void multiply(const struct step *step, int k, float *p)
{
    struct tally__power_matrix *matrix = matrix_of(step, k);
    const float *gradient = param_of(step, k)->gradient;
    float *q = step->plan->start;

    start_from(step, k, q);
    if (!step->power->options.feedback) {
        tally__low_rank_multiply(&matrix->shape, gradient, q, p);
        return;
    }
    tally__low_rank_correct(&matrix->shape, gradient,
                            (struct tally__factors){matrix->p, matrix->own_q}, q,
                            corrected_of(step, k), p);
}

/* A rank that shadows sends zeros, and keeps its residual. */
static void sit_out(const struct step *step, int k)
{
    if (step->power->options.feedback) {
        tally__power_take_away(matrix_of(step, k), corrected_of(step, k));
    }
}

/* Whether this rank measures what the step leaves out: one step in MEASURED_EVERY, from the first
 * that is compressed. */
static bool is_measured(const struct step *step)
{
    uint64_t start = step->power->options.start;

    return !step->bucket->shadows && (step->number - start) % MEASURED_EVERY == 0;
}

static void measure_first(const struct step *step)
{
    struct tally__power_error *error = &step->plan->error;

    *error = (struct tally__power_error){.step = step->number};
    for (int k = 0; k < step->plan->n_matrices; k++) {
        error->left += tally__sqnorm_f32(matrix_of(step, k)->shape.size, corrected_of(step, k));
    }
    error->all = error->left;
    for (int k = 0; k < step->plan->n_rest; k++) {
        const tally_bucket_param *param = &step->bucket->params[step->plan->rest[k]];

        error->all += tally__sqnorm_f32(param->n, param->gradient);
    }
}

/* P has orthonormal columns: P Q^T leaves out |C|^2 - |Q|^2. */
static void measure_second(const struct step *step)
{
    for (int k = 0; k < step->plan->n_matrices; k++) {
        const struct tally__power_matrix *matrix = matrix_of(step, k);

        step->plan->error.left -= tally__sqnorm_f32(q_count(matrix), matrix->own_q);
    }
}

double tally__power_error(const void *state)
{
    const struct tally__power *power = state;
    uint64_t last = tally__power_steps(power) - 1;
    double all = 0;
    double left = 0;

    for (size_t i = 0; i < power->n_params; i++) {
        const struct tally__power_error *error = &power->plans[i].error;

        all += error->step == last ? error->all : 0;
        left += error->step == last ? error->left : 0;
    }
    return all > 0 && isfinite(all) ? sqrt(fmax(left, 0) / all) : -1;
}

/* 1: all P, followed by the parameters that travel unchanged. */
static void fill_first(const struct step *step)
{
    float *to = step->plan->message;

    memset(to, 0, step->plan->p_count * sizeof *to);
    for (int k = 0; k < step->plan->n_matrices; k++) {
        if (step->bucket->shadows) {
            sit_out(step, k);
        } else {
            multiply(step, k, to);
        }
        to += p_count(matrix_of(step, k));
    }
    for (int k = 0; k < step->plan->n_rest; k++) {
        const tally_bucket_param *param = &step->bucket->params[step->plan->rest[k]];

        if (!step->bucket->shadows) {
            tally__residual_deliver(tally__power_residual(param), param->gradient);
        }
        tally__copy(param->n * sizeof *to, param->gradient, (uint8_t *)to);
        to += param->n;
    }
}

/* Rounds n numbers as the wire type does. */
static void as_sent(const struct tally__wire *wire, size_t n, const float *x, float *y)
{
    uint16_t halves[512];
    size_t length;

    if (wire->dtype == TALLY_F32) {
        memcpy(y, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i += length) {
        length =
            n - i < sizeof halves / sizeof halves[0] ? n - i : sizeof halves / sizeof halves[0];
        if (wire->dtype == TALLY_BF16) {
            tally__f32_to_bf16(length, x + i, halves);
            tally__bf16_to_f32(length, halves, y + i);
        } else {
            wire->saturates ? (void)tally__f32_to_f16_sat(length, x + i, halves)
                            : tally__f32_to_f16(length, x + i, halves);
            tally__f16_to_f32(length, halves, y + i);
        }
    }
}

/* 3: P as all ranks have it, and all Q. */
static void fill_second(const struct step *step)
{
    const float *from = step->plan->message;
    float *to = step->plan->message;

    for (int k = 0; k < step->plan->n_matrices; k++) {
        struct tally__power_matrix *matrix = matrix_of(step, k);

        memcpy(matrix->p, from, p_count(matrix) * sizeof *from);
        (void)tally__low_rank_orthogonalise(matrix->shape.n, matrix->shape.r,
                                            step->power->options.epsilon / step->bucket->divisor,
                                            matrix->p);
        from += p_count(matrix);
    }
    for (int k = 0; k < step->plan->n_rest; k++) {
        const tally_bucket_param *param = &step->bucket->params[step->plan->rest[k]];

        tally__copy(param->n * sizeof *from, (const uint8_t *)from, param->gradient);
        from += param->n;
    }
    memset(to, 0, step->plan->q_count * sizeof *to);
    for (int k = 0; k < step->plan->n_matrices; k++) {
        struct tally__power_matrix *matrix = matrix_of(step, k);

        if (!step->bucket->shadows) {
            tally__low_rank_multiply_transposed(&matrix->shape, corrected_of(step, k), matrix->p,
                                                to);
            as_sent(step->wire, q_count(matrix), to, matrix->own_q);
        }
        to += q_count(matrix);
    }
}

/* A gradient that is not finite makes the mean not finite, as without compression; but it must not
 * stay in the residual. All ranks see it in P and Q, and restart together. */
static void forget_nonfinite(const struct step *step, int k)
{
    struct tally__power_matrix *matrix = matrix_of(step, k);

    if (tally__find_nonfinite_f32(p_count(matrix), matrix->p) == p_count(matrix) &&
        tally__find_nonfinite_f32(q_count(matrix), matrix->q) == q_count(matrix)) {
        return;
    }
    memset(matrix->q, 0, q_count(matrix) * sizeof *matrix->q);
    if (step->power->options.feedback) {
        memset(corrected_of(step, k), 0, matrix->shape.size * sizeof(float));
    }
    tally__power_forget_factors(matrix);
}

/* 4: the means. */
static void take_means(const struct step *step)
{
    const float *from = step->plan->message;
    bool past_caches = step->bucket->n * sizeof(float) > CACHED_BYTES;

    for (int k = 0; k < step->plan->n_matrices; k++) {
        struct tally__power_matrix *matrix = matrix_of(step, k);

        memcpy(matrix->q, from, q_count(matrix) * sizeof *from);
        tally__low_rank_expand(&matrix->shape, (struct tally__factors){matrix->p, matrix->q},
                               past_caches, param_of(step, k)->gradient);
        forget_nonfinite(step, k);
        /* A rank that shadows contributed nothing to these means. */
        if (step->bucket->shadows) {
            tally__power_forget_factors(matrix);
        }
        from += q_count(matrix);
    }
}

static int send_mean(tally_lane *lane, const tally_bucket *bucket, float *data, size_t n)
{
    const struct tally__call call = {.kind = TALLY__KIND_EXCHANGE, .op = TALLY_MEAN};
    struct tally__codec codec = tally__codec_here(TALLY_F32, TALLY_MEAN, bucket->divisor);

    return tally__exchange(lane, &codec, call, data, n);
}

/* The step has failed: its gradient, which is still in the array, must not be applied by the next
 * step. */
static void give_up(const struct step *step)
{
    for (int k = 0; k < step->plan->n_matrices && step->power->options.feedback; k++) {
        size_t size = matrix_of(step, k)->shape.size;
        float *corrected = corrected_of(step, k);

        if (!step->bucket->shadows) {
            tally__axpy_f32(size, param_of(step, k)->gradient, -1, corrected);
        }
        if (tally__find_nonfinite_f32(size, corrected) < size) {
            memset(corrected, 0, size * sizeof *corrected);
        }
        tally__power_forget_factors(matrix_of(step, k));
    }
}

static int hold(const struct step *step)
{
    for (int k = 0; k < step->plan->n_matrices && step->power->options.feedback; k++) {
        TRY(tally__power_hold(step->bucket, param_of(step, k), matrix_of(step, k),
                              step->power->options.batched));
    }
    return TALLY_OK;
}

static int compress(tally_lane *lane, const struct step *step)
{
    struct tally__power_plan *plan = step->plan;
    int rc;

    TRY(hold(step));
    fill_first(step);
    if (is_measured(step)) {
        measure_first(step);
    }
    rc = send_mean(lane, step->bucket, plan->message, plan->p_count + plan->rest_count);
    if (rc == TALLY_OK) {
        fill_second(step);
        if (is_measured(step)) {
            measure_second(step);
        }
        rc = send_mean(lane, step->bucket, plan->message, plan->q_count);
    }
    if (rc != TALLY_OK) {
        give_up(step);
        return rc;
    }
    take_means(step);
    return TALLY_OK;
}

/* Counts the steps of the hook, and decides whether to report this one. */
static uint64_t count_step(struct tally__power *power, const tally_bucket *bucket, bool *report)
{
    uint64_t number;

    (void)pthread_mutex_lock(&power->mutex);
    if (!power->running) {
        power->running = true;
        power->first_step = bucket->step;
    }
    power->last_step = bucket->step;
    number = power->n_steps + (bucket->step - power->first_step);
    *report = bucket->is_last && number >= power->options.start && number >= power->next_report;
    if (*report) {
        power->next_report = number + power->options.report_every;
    }
    (void)pthread_mutex_unlock(&power->mutex);
    return number;
}

int tally__power_reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    struct tally__power *power = state;
    struct tally__reduction *reduction = tally__reduction_here();
    struct step step = {.power = power, .bucket = bucket, .wire = &reduction->wire};
    size_t sent;
    bool report;

    step.number = count_step(power, bucket, &report);
    if (bucket->dtype != TALLY_F32) {
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    if (step.number < power->options.start) {
        TRY(tally__residuals_deliver(reduction->residuals, bucket));
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    TRY(tally__power_plan_of(power, bucket, &step.plan));
    sent = step.plan->p_count + step.plan->rest_count + step.plan->q_count;
    reduction->counts.compressed_from += bucket->n;
    reduction->counts.compressed_to += sent;
    if (report) {
        tally__log(TALLY_LOG_INFO,
                   "powersgd: step %llu: %zu elements of the last bucket travel as %zu",
                   (unsigned long long)step.number, bucket->n, sent);
    }
    if (step.plan->n_matrices == 0) {
        TRY(tally__residuals_deliver(reduction->residuals, bucket));
        return tally__hook_send_plain(NULL, lane, bucket);
    }
    return compress(lane, &step);
}
