/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket cap of the hook auto: packs the parameters into buckets of other sizes and replays the
 * step (tune/cap.h). A cap that should gain more than the margin is reported, and tried once the
 * choice of hooks has settled: where buckets may move, the ddp packs them so between two steps. As
 * many steps as a referee has pairs are taken before and after; the cap stays if the median gain
 * exceeds the margin. In step_end, on lane 0.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"
#include "tune/cap.h"

#define WHAT "the bucket cap of the hook auto"

_Static_assert(TALLY__MOST_CANDIDATES <= TALLY__MOST_CLASSES, "a choice is a class");

/* The parameters of bucket b, in their order there. Returns their number. */
static size_t list_bucket(const struct tally__auto *self, size_t b, int *params,
                          struct tally__cap_part *parts)
{
    size_t n = tally_ddp_bucket_params(self->ddp, b, params, self->n_params);
    double elements = 0;

    n = n < self->n_params ? n : self->n_params;
    for (size_t k = 0; k < n; k++) {
        elements += (double)tally_ddp_param_count(self->ddp, params[k]);
    }
    for (size_t k = 0; k < n; k++) {
        double own = (double)tally_ddp_param_count(self->ddp, params[k]);

        parts[k].bytes = elements > 0 ? self->profile.buckets[b].bytes * own / elements : 0;
        parts[k].bucket = b;
    }
    return n;
}

static size_t list_parts(const struct tally__auto *self, int *params, struct tally__cap_part *parts)
{
    size_t n = 0;

    for (size_t b = 0; b < self->n_buckets; b++) {
        n += list_bucket(self, b, params, parts + n);
    }
    return n;
}

/* A lack of memory is not a failure: then no cap is reported. */
void tally__auto_find_cap(struct tally__auto *self)
{
    int *params = tally__alloc_array(self->n_params, sizeof *params, WHAT);
    struct tally__cap_part *parts = tally__alloc_array(self->n_params, sizeof *parts, WHAT);
    struct tally__cap_question question = {.profile = &self->profile, .parts = parts};
    struct tally__cap_answer answer;

    self->cap_bytes = 0;
    self->cap_gain = 0;
    if (params && parts && self->has_profile && self->profile.hosts > 1) {
        question.choice = tally__auto_by_bucket(self, self->settled);
        question.n = list_parts(self, params, parts);
        if (question.n > 0 && tally__cap_choose(&question, &answer) == TALLY_OK &&
            answer.step_s < answer.now_s * (1 - self->margin) &&
            (answer.cap_bytes != self->trial_cap || self->tick >= self->cap_tick)) {
            self->cap_bytes = answer.cap_bytes;
            self->cap_gain = (answer.now_s - answer.step_s) / answer.now_s;
        }
    }
    tally__free(parts);
    tally__free(params);
}

/* ---- trying it ---- */

/* Times of the last steps, of the slowest rank. */
static int take_times(const struct tally__auto *self, tally_lane *lane, double *times)
{
    for (uint64_t k = 0; k < TALLY__AUTO_PAIRS; k++) {
        times[k] = tally__auto_time_of(self, self->tick - TALLY__AUTO_PAIRS + k,
                                       self->phase == TALLY__AUTO_CAP);
    }
    return tally__auto_maxima(lane, times, TALLY__AUTO_PAIRS);
}

/* Rank 0's cap counts: another rank may have had no memory to compute it. The error of the choice
 * is measured first. */
int tally__auto_try_cap(struct tally__auto *self, tally_lane *lane, uint64_t steps_left)
{
    uint64_t cap_bytes = self->cap_bytes;

    if (self->is_cap_asked || self->is_live || self->tick < self->cap_tick ||
        self->in_phase < TALLY__AUTO_PAIRS + 2 || steps_left < TALLY__AUTO_CAP_STEPS) {
        return TALLY_OK;
    }
    self->is_cap_asked = true;
    TRY(tally_lane_broadcast(lane, &cap_bytes, sizeof cap_bytes, 0));
    if (cap_bytes == 0) {
        return TALLY_OK;
    }
    TRY(take_times(self, lane, self->old_s));
    self->trial_cap = (size_t)cap_bytes;
    self->settled_for = self->in_phase;
    self->move = TALLY__AUTO_TO_TRIAL;
    return TALLY_OK;
}

static void lay(struct tally__auto *self)
{
    self->laid_cap = self->trial_cap;
    memcpy(self->laid_classes, self->settled, self->n_params);
}

bool tally__auto_has_moved(struct tally__auto *self, bool is_new)
{
    enum tally__auto_move move = self->move;

    self->move = TALLY__AUTO_STAYS;
    if (move == TALLY__AUTO_TO_TRIAL && is_new) {
        tally__auto_begin(self, TALLY__AUTO_CAP);
        self->n_rows = 0;
        self->n_explained++;
    } else if (move == TALLY__AUTO_BACK && is_new) {
        tally__auto_settle(self);
        self->in_phase = self->settled_for + TALLY__AUTO_CAP_STEPS;
        self->is_live = false; /* the error of the choice was measured before */
    } else if (move == TALLY__AUTO_BACK) {
        lay(self); /* no memory to go back */
        tally__auto_measure_again(self);
    }
    return move != TALLY__AUTO_STAYS;
}

static void say(struct tally__auto *self, bool is_kept, double gain)
{
    if (is_kept) {
        (void)snprintf(self->cap_verdict, sizeof self->cap_verdict,
                       "the bucket cap became %zu KiB: %.3g %% gained", self->trial_cap >> 10,
                       100 * gain);
    } else {
        (void)snprintf(self->cap_verdict, sizeof self->cap_verdict,
                       "steps refuted a bucket cap of %zu KiB: %.3g %% gained",
                       self->trial_cap >> 10, 100 * gain);
    }
    if (self->rank == 0) {
        tally__log(TALLY_LOG_INFO, "auto: %s, at least %g %% asked", self->cap_verdict,
                   100 * self->margin);
    }
}

int tally__auto_end_cap(struct tally__auto *self, tally_lane *lane)
{
    double gains[TALLY__AUTO_PAIRS];
    double gain;

    /* The first step with these buckets warms up; the time of the last one is not known yet. */
    if (self->in_phase < TALLY__AUTO_PAIRS + 2) {
        return TALLY_OK;
    }
    TRY(take_times(self, lane, gains));
    for (size_t k = 0; k < TALLY__AUTO_PAIRS; k++) {
        double old_s = self->old_s[k];

        gains[k] = old_s > 0 ? (old_s - gains[k]) / old_s : 0;
    }
    gain = tally__auto_median(gains, TALLY__AUTO_PAIRS);
    self->cap_tick = self->tick + self->review;
    say(self, gain > self->margin, gain);
    if (gain > self->margin) {
        lay(self);
        tally__auto_measure_again(self);
    } else {
        self->move = TALLY__AUTO_BACK;
    }
    return TALLY_OK;
}

void tally__auto_get_packing(const void *state, struct tally__packing *packing)
{
    const struct tally__auto *self = state;
    bool is_trial = self->move == TALLY__AUTO_TO_TRIAL ||
                    (self->phase == TALLY__AUTO_CAP && self->move == TALLY__AUTO_STAYS);

    *packing = is_trial ? (struct tally__packing){self->trial_cap, self->settled}
                        : (struct tally__packing){self->laid_cap, self->laid_classes};
}
