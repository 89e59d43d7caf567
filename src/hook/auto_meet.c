/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of the hook auto (auto.h), counted in steps. step_end runs in a job on lane 0, after
 * the buckets of a step, on all ranks; step_over (auto_times.c) comes after it. So a decision at
 * the end of a step uses the times of the steps before it.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/group.h"
#include "hook/auto.h"

/* Steps before the first that counts: buckets of copies are arranged after the first or second. */
#define N_WARM_UP 2
/* Steps that are measured, and the one whose end decides. */
#define N_PLAIN 4
/* Probed steps with infinities or NaN before measuring stops until the next review. */
#define MOST_SPOILED 32
/* Settled steps between two looks at the step times; the least before a review. */
#define WATCH_STEPS 16
#define REST_STEPS TALLY__AUTO_ERROR_STEPS
/* Steps of a review that may change the choice, with the referee of the one before it. A line that
 * changes right after it was measured is followed within that many steps and the settled ones. */
#define N_REVIEW (2 * TALLY__AUTO_REFEREE_STEPS + N_PLAIN + TALLY__AUTO_PROBES)
_Static_assert(TALLY__AUTO_LEAST_REVIEW >= N_REVIEW + REST_STEPS, "the error is measured between");
/* Step times beyond this factor, or below its inverse, are a shift. */
#define SHIFT 1.25
/* A predicted gain, as a part of a step, beyond which a referee need not see whole steps. */
#define PLAIN_GAIN 0.5

/* ---- changing the phase ---- */

void tally__auto_begin(struct tally__auto *self, enum tally__auto_phase phase)
{
    self->phase = phase;
    self->in_phase = 0;
    self->active = phase == TALLY__AUTO_REFEREE ? self->proposal : self->settled;
    self->is_live = false;
    self->is_opening = false;
    self->proposal_s = 0;
    if (phase == TALLY__AUTO_PLAIN) {
        tally__auto_forget_times(self);
    }
}

static bool is_all_exact(const struct tally__auto *self, const unsigned char *choice)
{
    for (size_t i = 0; i < self->n_params; i++) {
        if (choice[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool has_feedback(const struct tally__auto *self)
{
    for (size_t i = 0; i < self->n_params; i++) {
        if (self->candidates[self->settled[i]]->table.feedback) {
            return true;
        }
    }
    return false;
}

void tally__auto_settle(struct tally__auto *self)
{
    tally__auto_begin(self, TALLY__AUTO_SETTLED);
    self->is_unproved = false;
    self->has_line = false;
    self->reference_s = 0;
    self->is_cap_asked = false;
    self->n_live = 0;
    self->is_live = has_feedback(self);
    memset(self->live_sums, 0, self->samples.n * sizeof *self->live_sums);
    memset(self->live_start, 0, self->samples.n * sizeof *self->live_start);
    memset(self->live_end, 0, self->samples.n * sizeof *self->live_end);
    tally__auto_explain_all(self);
    tally__auto_write_files(self);
}

void tally__auto_start(struct tally__auto *self)
{
    self->tick = 0;
    self->n_buckets = 0;
    self->has_errors = false;
    self->n_probed = 0;
    self->last_over_ns = 0;
    self->verdict[0] = '\0';
    self->gave_up = false;
    atomic_store_explicit(&self->lacks_memory, false, memory_order_relaxed);
    memset(self->banned, 0, sizeof self->banned);
    tally__auto_begin(self, self->phase == TALLY__AUTO_FIXED ? TALLY__AUTO_FIXED
                            : self->n_ranks == 1             ? TALLY__AUTO_SETTLED
                                                             : TALLY__AUTO_WARM_UP);
    self->is_unproved = false;
    self->move = TALLY__AUTO_STAYS;
    self->cap_tick = 0;
    self->trial_cap = 0;
    self->cap_verdict[0] = '\0';
    if (self->phase == TALLY__AUTO_WARM_UP) {
        tally__auto_begin_opening(self);
    }
}

void tally__auto_loaded(struct tally__auto *self, bool is_settled)
{
    if (self->phase == TALLY__AUTO_FIXED || self->n_ranks == 1) {
        return;
    }
    tally__auto_end_probes(self);
    self->move = TALLY__AUTO_STAYS;
    self->is_unproved = !is_settled;
    self->n_rows = 0;
    self->n_explained++;
    self->verdict[0] = '\0';
    self->cap_verdict[0] = '\0';
    self->cap_bytes = 0;
    self->cap_gain = 0;
    self->reference_s = 0;
    tally__auto_begin(self, is_settled ? TALLY__AUTO_SETTLED : TALLY__AUTO_WARM_UP);
}

/* ---- measuring ---- */

/* All ranks probe, or none does. */
static int begin_probes(struct tally__auto *self, tally_lane *lane)
{
    int rc = tally__auto_begin_probes(self);

    TRY(tally__auto_agree_memory(self, lane, rc));
    tally__auto_clear_probes(self);
    tally__auto_begin(self, TALLY__AUTO_PROBE);
    return TALLY_OK;
}

/* A proposal that should gain more than the margin is tried; so is one with less error that should
 * cost less than half of it. No referee has seen the opening: the exact choice is tried instead. */
static int consider(struct tally__auto *self, tally_lane *lane)
{
    struct tally__offer offer;
    bool is_new;

    if (self->is_unproved) {
        memset(self->settled, 0, self->n_params);
    }
    TRY(tally__auto_propose(self, lane, &offer));
    self->may_cut = offer.gain > PLAIN_GAIN;
    is_new = memcmp(self->proposal, self->settled, self->n_params) != 0;
    self->least_gain = offer.gain > self->margin ? self->margin : -self->margin / 2;
    if (is_new &&
        (offer.gain > self->margin || (offer.is_more_exact && offer.gain > self->least_gain))) {
        tally__auto_begin(self, TALLY__AUTO_REFEREE);
    } else {
        tally__auto_settle(self);
    }
    return TALLY_OK;
}

/* Whether some hook could gain more than the margin, if its own work cost nothing. */
static int can_pay(struct tally__auto *self, tally_lane *lane, bool *pays)
{
    double gain = 0;
    int rc = tally__auto_most_gain(self, &gain);
    uint64_t any = self->rank == 0 && gain > self->margin;

    TRY(tally__auto_agree_memory(self, lane, rc));
    TRY(tally__agree_any(lane, any, &any));
    *pays = any != 0;
    return TALLY_OK;
}

static int end_warm_up(struct tally__auto *self, tally_lane *lane)
{
    if (self->in_phase == 1) {
        TRY(tally__auto_agree_memory(self, lane, TALLY_OK));
        TRY(self->is_opening ? tally__auto_end_opening(self, lane) : TALLY_OK);
    }
    if (self->in_phase == N_WARM_UP) {
        tally__auto_begin(self, TALLY__AUTO_PLAIN);
    }
    return TALLY_OK;
}

static int end_plain(struct tally__auto *self, tally_lane *lane)
{
    bool pays = true;

    if (self->in_phase < N_PLAIN) {
        return TALLY_OK;
    }
    if (self->hosts <= 0) {
        TRY(tally__auto_count_hosts(self, lane));
    }
    self->verdict[0] = '\0';
    if (self->hosts > 1 && !self->has_line) {
        TRY(tally__auto_measure_line(self, lane, &self->profile));
    }
    TRY(tally__auto_gather(self, lane));
    if (self->profile.hosts <= 1) {
        tally__auto_settle(self);
        return TALLY_OK;
    }
    if (self->has_errors) {
        return consider(self, lane);
    }
    self->n_probed = 0;
    self->n_spoiled = 0;
    if (is_all_exact(self, self->settled)) {
        TRY(can_pay(self, lane, &pays));
    }
    if (!pays) {
        tally__auto_settle(self);
        return TALLY_OK;
    }
    return begin_probes(self, lane);
}

/* Measuring stops until the next review. The choice stays. */
static void give_up(struct tally__auto *self, const char *reason)
{
    if (self->is_unproved) {
        memset(self->settled, 0, self->n_params);
    }
    tally__auto_end_probes(self);
    self->has_errors = false;
    self->n_probed = 0;
    self->has_profile = false;
    self->gave_up = true;
    (void)snprintf(self->verdict, sizeof self->verdict, "%s", reason);
    if (self->rank == 0) {
        tally__log(TALLY_LOG_WARN,
                   "auto: %s; the choice stays as it is, %s for bucket 0, until the next review",
                   reason, self->candidates[self->settled[self->slots[0].param]]->table.name);
    }
    tally__auto_settle(self);
}

/* A step with infinities or NaN, as they come while a loss scale is found, tells no errors: the
 * probes begin again. */
static int probe_again(struct tally__auto *self, tally_lane *lane)
{
    if (++self->n_spoiled > MOST_SPOILED) {
        give_up(self, "gradients had infinities or NaN in every step that was measured");
        return TALLY_OK;
    }
    tally__auto_end_probes(self);
    return begin_probes(self, lane);
}

/* After the first probe only times are asked: if no candidate pays, whatever its error, there is
 * nothing more to measure. */
static int end_probe(struct tally__auto *self, tally_lane *lane)
{
    uint64_t is_spoiled = atomic_load_explicit(&self->saw_infinite, memory_order_relaxed);
    struct tally__offer offer;

    TRY(tally__auto_agree_memory(self, lane, TALLY_OK));
    TRY(tally__agree_any(lane, is_spoiled, &is_spoiled));
    if (is_spoiled) {
        return probe_again(self, lane);
    }
    self->n_probed++;
    if (self->n_probed == 1 && !self->is_unproved) {
        TRY(tally__auto_gather(self, lane));
        TRY(tally__auto_propose(self, lane, &offer));
        if (offer.gain <= self->margin) {
            tally__auto_end_probes(self);
            tally__auto_settle(self);
        }
        return TALLY_OK;
    }
    if (self->n_probed < TALLY__AUTO_PROBES) {
        return TALLY_OK;
    }
    tally__auto_end_probes(self);
    self->has_errors = true;
    TRY(tally__auto_gather(self, lane));
    return consider(self, lane);
}

/* ---- the referee ---- */

static int end_referee(struct tally__auto *self, tally_lane *lane)
{
    bool is_decided;

    self->was_proposals = self->active == self->proposal;
    TRY(tally__auto_judge(self, lane, &is_decided));
    if (is_decided) {
        tally__auto_settle(self);
    } else {
        self->active = tally__auto_next_is_proposals(self) ? self->proposal : self->settled;
    }
    return TALLY_OK;
}

/* ---- settled ---- */

/* The choice is over its budget: the next best one takes over without a referee. */
static int replace_choice(struct tally__auto *self, tally_lane *lane)
{
    struct tally__offer offer;
    int rc = tally__auto_propose(self, lane, &offer);

    if (rc == TALLY_NOMEM && self->gave_up) {
        memset(self->settled, 0, self->n_params);
        return rc;
    }
    TRY(rc);
    memcpy(self->settled, self->proposal, self->n_params);
    tally__auto_settle(self);
    return TALLY_OK;
}

/* Whether step times have shifted, as the slowest rank sees them. */
static int watch(struct tally__auto *self, tally_lane *lane, bool *has_shifted)
{
    double times[WATCH_STEPS - 1];
    double now_s;

    for (uint64_t i = 1; i < WATCH_STEPS; i++) {
        times[i - 1] = tally__auto_time_of(self, self->tick - i, false);
    }
    now_s = tally__auto_median(times, WATCH_STEPS - 1);
    TRY(tally__auto_maxima(lane, &now_s, 1));
    if (self->reference_s <= 0) {
        self->reference_s = now_s;
    }
    *has_shifted = now_s > SHIFT * self->reference_s || now_s * SHIFT < self->reference_s;
    return TALLY_OK;
}

static int end_settled(struct tally__auto *self, tally_lane *lane)
{
    bool has_shifted = false;
    bool is_over = false;

    /* By now steps of the settled choice were measured. */
    self->n_explained += self->in_phase == 2;
    if (self->is_live && ++self->n_live == TALLY__AUTO_ERROR_STEPS) {
        self->is_live = false;
        TRY(tally__auto_measure_error(self, lane, &is_over));
        self->n_explained++;
    }
    if (is_over) {
        return replace_choice(self, lane);
    }
    /* Memory has no rate that changes. */
    if (self->has_profile && self->profile.hosts <= 1) {
        return TALLY_OK;
    }
    if (self->in_phase % WATCH_STEPS == 0) {
        TRY(watch(self, lane, &has_shifted));
    }
    if (self->in_phase >= self->review - N_REVIEW ||
        (has_shifted && self->in_phase >= REST_STEPS)) {
        tally__auto_begin(self, TALLY__AUTO_PLAIN);
        return TALLY_OK;
    }
    return tally__auto_try_cap(self, lane, self->review - N_REVIEW - self->in_phase);
}

/* ---- steps ---- */

void tally__auto_measure_again(struct tally__auto *self)
{
    tally__auto_end_probes(self);
    self->has_errors = false;
    self->n_probed = 0;
    self->has_profile = false;
    self->n_rows = 0;
    tally__auto_begin(self, TALLY__AUTO_PLAIN);
}

/* In a new layout, the parameters of a mixed bucket take the exact choice, as the bucket did. */
static void unmix(struct tally__auto *self)
{
    const unsigned char *settled = self->settled;

    for (size_t b = 0; b < self->n_buckets; b++) {
        self->of_buckets[b] = settled[self->slots[b].param];
    }
    for (size_t i = 0; i < self->n_params; i++) {
        size_t b = (size_t)self->home[i];

        if (self->home[i] >= 0 && b < self->n_buckets && settled[i] != self->of_buckets[b]) {
            self->of_buckets[b] = 0;
        }
    }
    for (size_t i = 0; i < self->n_params; i++) {
        size_t b = (size_t)self->home[i];

        if (self->home[i] >= 0 && b < self->n_buckets && self->of_buckets[b] == 0) {
            self->settled[i] = 0;
        }
    }
}

/* The buckets of the step. A new layout begins again, with the choices of its parameters. */
static void count_buckets(struct tally__auto *self)
{
    unsigned generation = self->generation;
    bool is_first;
    bool is_new;
    size_t n = 0;

    for (size_t b = 0; b < self->n_params; b++) {
        generation = self->slots[b].tick == self->tick ? self->slots[b].generation : generation;
    }
    /* A bucket that no rank has a gradient for may be left out of a step. */
    for (size_t b = 0; b < self->n_params; b++) {
        bool is_there = self->slots[b].tick > 0 && self->slots[b].generation == generation;

        n = is_there ? b + 1 : n;
    }
    is_new = n != self->n_buckets || generation != self->generation;
    is_first = self->n_buckets == 0;
    self->n_buckets = n;
    self->generation = generation;
    if (tally__auto_has_moved(self, is_new) || !is_new) {
        return;
    }
    if (self->phase == TALLY__AUTO_REFEREE) {
        tally__auto_end_trial(self, false);
    }
    if (self->phase == TALLY__AUTO_FIXED) {
        return;
    }
    unmix(self);
    if (!is_first && self->phase != TALLY__AUTO_WARM_UP) {
        tally__auto_measure_again(self);
    }
}

static int end_phase_step(struct tally__auto *self, tally_lane *lane)
{
    switch (self->phase) {
    case TALLY__AUTO_WARM_UP:
        return end_warm_up(self, lane);
    case TALLY__AUTO_PLAIN:
        return end_plain(self, lane);
    case TALLY__AUTO_PROBE:
        return end_probe(self, lane);
    case TALLY__AUTO_REFEREE:
        return end_referee(self, lane);
    case TALLY__AUTO_CAP:
        return tally__auto_end_cap(self, lane);
    case TALLY__AUTO_SETTLED:
        return end_settled(self, lane);
    case TALLY__AUTO_FIXED:
        break;
    }
    return TALLY_OK;
}

/* Any other failure, which all ranks see, begins the measurements again. */
static int end_failed(struct tally__auto *self, int rc)
{
    if (self->phase == TALLY__AUTO_REFEREE) {
        tally__auto_end_trial(self, false);
    }
    if (rc == TALLY_NOMEM && self->gave_up) {
        give_up(self, "a rank has no memory to measure with");
        return TALLY_OK;
    }
    self->move = TALLY__AUTO_STAYS;
    if (self->phase < TALLY__AUTO_SETTLED) {
        tally__auto_end_probes(self);
        tally__auto_begin(self, TALLY__AUTO_PLAIN);
    }
    return rc;
}

int tally__auto_step_end(void *state, tally_lane *lane)
{
    struct tally__auto *self = state;
    int rc;

    self->tick++;
    if (self->n_ranks == 1) {
        return TALLY_OK;
    }
    count_buckets(self);
    if (self->n_buckets == 0) {
        return TALLY_OK; /* no parameter had a gradient yet */
    }
    self->in_phase++;
    self->lanes = (size_t)tally_lane_group(lane)->n_lanes;
    rc = end_phase_step(self, lane);
    return rc == TALLY_OK ? TALLY_OK : end_failed(self, rc);
}
