/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The referee of the hook auto (auto.h): pairs of steps, one with the old choice and one with the
 * proposal, in turn. The median gain of all pairs decides; the referee ends as soon as the pairs
 * that are left cannot change that, after three pairs if all of them are clear, and after two if in
 * both one side took more than twice as long. If much is expected of the proposal, one pair is
 * enough in which the old choice took more than four times as long, and the old choice is not tried
 * to the end of a step either. In step_end, a job on lane 0; tally__auto_cut in jobs of buckets.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/agree.h"
#include "hook/auto.h"

#define N_PAIRS TALLY__AUTO_PAIRS
/* So many pairs on one side of a threshold hold the median of all there. */
#define N_ENOUGH (N_PAIRS / 2 + 1)
/* So many are enough if all of them gain more than CLEAR_GAIN, or all lose more than that. */
#define N_CLEAR_PAIRS 3
#define CLEAR_GAIN 0.2
/* So many are enough if in each of them one side takes more than CUT times as long. */
#define N_PLAIN_PAIRS 2
#define CUT 2.0

/* Whether step i of a referee is the proposal's: the first and the last one, which are not
 * compared; and in pairs the second and the first in turn, so that a decision after the first pair
 * comes at the end of a step of the proposal. */
static bool is_proposals(uint64_t i)
{
    uint64_t pair = (i - 1) / 2;
    bool is_second = (i - 1) % 2 != 0;

    return i == 0 || i > (uint64_t)2 * N_PAIRS || is_second == (pair % 2 == 0);
}

bool tally__auto_next_is_proposals(const struct tally__auto *self)
{
    return is_proposals(self->in_phase);
}

int tally__auto_cut(const struct tally__auto *self, tally_lane *lane, bool *is_cut)
{
    double elapsed_s = (double)(tally__now_ns() - self->last_over_ns) * 1e-9;
    uint64_t any = self->proposal_s > 0 && elapsed_s > CUT * self->proposal_s;

    TRY(tally__agree_any(lane, any, &any));
    *is_cut = any != 0;
    return TALLY_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double tally__auto_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double tally__auto_time_of(const struct tally__auto *self, uint64_t tick, bool is_proposal)
{
    return self->seam.step_s ? self->seam.step_s(self->seam.user, is_proposal)
                             : self->step_s[tick % (2 * TALLY__AUTO_WINDOW)];
}

/* The residuals that a trial left pass on to the hook that stays, unless it is the one that made
 * them. */
void tally__auto_end_trial(struct tally__auto *self, bool is_kept)
{
    for (size_t i = 0; i < self->n_params; i++) {
        bool had_feedback = self->candidates[self->holds[i]]->table.feedback != 0;

        if (self->proposal[i] != self->settled[i] && (!is_kept || !had_feedback)) {
            self->holds[i] = self->proposal[i];
        }
        if (is_kept) {
            self->settled[i] = self->proposal[i];
        }
    }
}

/* The gains of the pairs whose times are known, by the slowest rank. */
static int find_gains(const struct tally__auto *self, tally_lane *lane, size_t n_pairs,
                      double *gains)
{
    uint64_t first = self->tick + 1 - self->in_phase; /* the step that warmed up */
    double times[2 * N_PAIRS];

    for (uint64_t i = 1; i <= 2 * n_pairs; i++) {
        times[i - 1] = tally__auto_time_of(self, first + i, is_proposals(i));
    }
    TRY(tally__auto_maxima(lane, times, 2 * n_pairs));
    for (size_t p = 0; p < n_pairs; p++) {
        double old_s = times[2 * p + is_proposals(1 + 2 * p)];
        double new_s = times[2 * p + !is_proposals(1 + 2 * p)];

        gains[p] = old_s > 0 ? (old_s - new_s) / old_s : 0;
    }
    return TALLY_OK;
}

/* Whether the pairs so far are enough; *is_kept: the proposal stays. */
static bool is_enough(const struct tally__auto *self, const double *gains, size_t n_pairs,
                      bool *is_kept)
{
    size_t n_better = 0;
    size_t n_faster = 0;
    size_t n_slower = 0;
    size_t n_clear = 0;
    size_t n_lost = 0;

    for (size_t p = 0; p < n_pairs; p++) {
        n_better += gains[p] > self->least_gain;
        n_faster += gains[p] > self->least_gain && gains[p] > 1 - 1 / CUT;
        n_slower += gains[p] < 1 - CUT;
        n_clear += gains[p] > self->least_gain && gains[p] > CLEAR_GAIN;
        n_lost += gains[p] < -CLEAR_GAIN;
    }
    if (n_pairs < N_PLAIN_PAIRS) {
        *is_kept = true;
        return self->may_cut && gains[0] > 1 - 1 / (CUT * CUT);
    }
    if (n_faster == n_pairs || n_slower == n_pairs) {
        *is_kept = n_faster == n_pairs;
        return true;
    }
    if (n_pairs >= N_CLEAR_PAIRS && (n_clear == n_pairs || n_lost == n_pairs)) {
        *is_kept = n_clear == n_pairs;
        return true;
    }
    *is_kept = n_better >= N_ENOUGH;
    return n_pairs == N_PAIRS || *is_kept || n_pairs - n_better >= N_ENOUGH;
}

int tally__auto_judge(struct tally__auto *self, tally_lane *lane, bool *is_decided)
{
    /* The time of the step that just ends is not known yet. */
    size_t n_pairs = ((size_t)self->in_phase - 1) / 2;
    double gains[N_PAIRS];
    double gain;
    bool is_kept;

    *is_decided = false;
    n_pairs = n_pairs < N_PAIRS ? n_pairs : N_PAIRS;
    if (self->in_phase % 2 != 0 || n_pairs == 0) {
        return TALLY_OK;
    }
    TRY(find_gains(self, lane, n_pairs, gains));
    if (!is_enough(self, gains, n_pairs, &is_kept)) {
        return TALLY_OK;
    }
    gain = tally__auto_median(gains, n_pairs);
    is_kept = n_pairs < N_PAIRS ? is_kept : gain > self->least_gain;
    tally__auto_end_trial(self, is_kept);
    (void)snprintf(self->verdict, sizeof self->verdict,
                   "%zu %s of steps %s: %.3g %% gained, at least %g %% asked", n_pairs,
                   n_pairs == 1 ? "pair" : "pairs", is_kept ? "confirmed it" : "refuted a change",
                   100 * gain, 100 * self->least_gain);
    *is_decided = true;
    return TALLY_OK;
}
