/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The errors of the candidates of the hook auto (auto.h): before a choice extrapolated from few
 * coded steps, afterwards measured over 32 steps that really travelled. In step_end, a job on lane
 * 0; tally__auto_opening_error in jobs of buckets.
 */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"

#define WHAT "errors of the hook auto"

/* ---- before a choice ---- */

/* The square of the norm of the sum of a parameter's gradients over the coded steps. */
static double square_of(const struct tally__auto *self, size_t i)
{
    const struct tally__samples *samples = &self->samples;
    double own = 0;

    for (size_t s = samples->first[i]; s < samples->first[i + 1]; s++) {
        own += (double)self->probe_sums[s] * (double)self->probe_sums[s];
    }
    return own * (double)samples->step[i];
}

/* The same for the gradients of bucket b over 32 steps, from of_sum, that over k coded ones: a
 * gradient is taken as a part that all steps have in common and one that is independent. */
static double extrapolate(const struct tally__auto *self, size_t b, double k, double of_sum)
{
    double of_each = self->squares[b] / k;
    double common = k > 1 ? fmin(fmax((of_sum / k - of_each) / (k - 1), 0), of_each) : of_each;

    return TALLY__AUTO_ERROR_STEPS * (TALLY__AUTO_ERROR_STEPS * common + fmax(of_each - common, 0));
}

/* The square of what a hook leaves out of a bucket, relative to sum, that of its gradients. With
 * feedback, it grows at most as it did last; if a second coding left out less than the first, which
 * may have begun from random vectors, as it did on average. Without feedback, errors of steps add
 * up. Infinite for a bucket that none of the k coded steps had, or that candidates cannot code:
 * nothing is known of it. */
static double find_loss(const struct tally__auto *self, size_t h, size_t b, size_t k, double sum)
{
    const struct tally__auto_probe *probe = &self->probes[h * self->n_params + b];
    double before = 0;
    double growth;
    double left = -1;
    double all = 0;
    size_t n = 0;

    if (h == 0) {
        return 0;
    }
    for (size_t i = 0; i < k; i++) {
        if (probe->left[i] >= 0) {
            before = n > 0 ? left : 0;
            left = sqrt(probe->left[i]);
            all += probe->left[i];
            n++;
        }
    }
    if (n == 0) {
        return INFINITY;
    }
    if (sum <= 0) {
        return 0;
    }
    if (!self->candidates[h]->table.feedback) {
        return all / self->squares[b];
    }
    growth = n == 2 && left < before ? left / 2 : fmax(left - before, 0);
    left += growth * (double)(TALLY__AUTO_ERROR_STEPS - n);
    return left * left / sum;
}

/* Relative, so that maxima over ranks make sense; absolute again afterwards. */
void tally__auto_fill_errors(struct tally__auto *self)
{
    for (size_t b = 0; b < self->n_buckets && self->n_probed > 0; b++) {
        double of_sum = 0;

        for (size_t i = 0; i < self->n_params; i++) {
            of_sum += self->home[i] == (int)b ? square_of(self, i) : 0;
        }
        self->sums[b] = extrapolate(self, b, (double)self->n_probed, of_sum);
        for (size_t h = 0; h < self->n; h++) {
            self->losses[h * self->n_buckets + b] =
                find_loss(self, h, b, self->n_probed, self->sums[b]);
        }
    }
}

double tally__auto_opening_error(const struct tally__auto *self, size_t h,
                                 const tally_bucket *bucket)
{
    size_t b = (size_t)bucket->index;
    double of_sum = 0;

    for (int k = 0; k < bucket->n_params; k++) {
        of_sum += square_of(self, (size_t)bucket->params[k].index);
    }
    of_sum = extrapolate(self, b, TALLY__AUTO_OPENING_PROBES, of_sum);
    return sqrt(find_loss(self, h, b, TALLY__AUTO_OPENING_PROBES, of_sum));
}

void tally__auto_finish_errors(struct tally__auto *self)
{
    for (size_t h = 0; h < self->n; h++) {
        double loss = 0;
        double sum = 0;

        for (size_t b = 0; b < self->n_buckets; b++) {
            double *own = &self->losses[h * self->n_buckets + b];

            if (h > 0 && self->sums[b] <= 0) {
                *own = INFINITY;
            }
            if (isfinite(*own)) {
                *own *= self->sums[b];
                loss += *own;
                sum += self->sums[b];
            }
        }
        self->profile.hooks[h].error = sum > 0 ? sqrt(loss / sum) : 0;
    }
}

/* ---- the error of the choice ---- */

/* Adds the samples of bucket b: what is missing, and the sum with it. A hook that also delivers
 * what an earlier one left out is not blamed for it: at most what is left in the end counts. */
static void add_error(const struct tally__auto *self, size_t b, double *loss, double *sum)
{
    const struct tally__samples *samples = &self->samples;
    double grown = 0;
    double left = 0;

    for (size_t i = 0; i < self->n_params; i++) {
        double step = (double)samples->step[i];

        for (size_t s = samples->first[i]; self->home[i] == (int)b && s < samples->first[i + 1];
             s++) {
            double end = (double)self->live_end[s];
            double change = end - (double)self->live_start[s];
            double exact = (double)self->live_sums[s] + change;

            grown += step * change * change;
            left += step * end * end;
            *sum += step * exact * exact;
        }
    }
    *loss += fmin(grown, left);
}

static void find_live_errors(struct tally__auto *self, double *values)
{
    double all_loss = 0;
    double all_sum = 0;

    for (size_t b = 0; b < self->n_buckets; b++) {
        double loss = 0;
        double sum = 0;

        add_error(self, b, &loss, &sum);
        values[b] = sum > 0 ? sqrt(loss / sum) : 0;
        values[self->n_buckets + 1 + self->settled[self->slots[b].param]] += loss;
        all_loss += loss;
        all_sum += sum;
    }
    values[self->n_buckets] = all_sum > 0 ? sqrt(all_loss / all_sum) : 0;
}

/* The lossy candidate that leaves out most. */
static void ban_worst(struct tally__auto *self, const double *losses, double error)
{
    size_t worst = 1;

    for (size_t h = 2; h < self->n; h++) {
        worst = losses[h] > losses[worst] ? h : worst;
    }
    self->banned[worst] = true;
    (void)snprintf(self->verdict, sizeof self->verdict,
                   "%.40s left %.2g of the sum out, more than error=%g",
                   self->candidates[worst]->table.name, error, self->budget);
}

int tally__auto_measure_error(struct tally__auto *self, tally_lane *lane, bool *is_over)
{
    size_t n = self->n_buckets + 1 + self->n;
    double *values = tally__alloc_array(n, sizeof *values, WHAT);
    int rc = tally__auto_agree_memory(self, lane, values ? TALLY_OK : TALLY_NOMEM);

    if (rc == TALLY_OK) {
        rc = tally_lane_all_reduce(lane, self->live_start, self->samples.n, TALLY_F32, TALLY_SUM);
    }
    if (rc == TALLY_OK) {
        rc = tally_lane_all_reduce(lane, self->live_end, self->samples.n, TALLY_F32, TALLY_SUM);
    }
    if (rc == TALLY_OK) {
        find_live_errors(self, values);
        rc = tally__auto_maxima(lane, values, n);
    }
    *is_over = false;
    if (rc == TALLY_OK) {
        for (size_t b = 0; b < self->n_rows && b < self->n_buckets; b++) {
            self->rows[b].error = values[b];
        }
        *is_over = values[self->n_buckets] > self->budget;
        if (*is_over) {
            ban_worst(self, values + self->n_buckets + 1, values[self->n_buckets]);
        }
    }
    tally__free(values);
    return rc;
}
