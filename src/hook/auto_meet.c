/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of the hook auto (auto.h), counted in steps. step_end runs in a job on lane 0, behind
 * the buckets of a step, on all ranks; step_over on the thread that waited, with the step's times.
 * So a decision at the end of a step uses the times of the steps before it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/group.h"
#include "hook/auto.h"

/* Steps before the first that counts: buckets of copies are arranged after the first or second. */
#define N_WARM_UP 3
/* Steps that are measured, and the one whose end decides. */
#define N_PLAIN 5
#define N_PAIRS 8
/* Steps of a referee: one to warm up, the pairs, and the one whose end decides. */
#define N_REFEREE (2 + 2 * N_PAIRS)
/* Settled steps between two looks at the step times; the least between two reviews. */
#define WATCH_STEPS 16
#define REST_STEPS 64
/* Step times beyond this factor, or below its inverse, are a shift. */
#define SHIFT 1.25

/* ---- changing the phase ---- */

static void forget_times(struct tally__auto *self)
{
    self->forward_s = 0;
    self->backward_s = 0;
    self->n_times = 0;
    for (size_t b = 0; b < self->n_params; b++) {
        struct tally__auto_slot *slot = &self->slots[b];

        slot->cpu_s = 0;
        slot->ready_s = 0;
        slot->n_cpu = 0;
        slot->n_ready = 0;
    }
}

static void begin(struct tally__auto *self, enum tally__auto_phase phase)
{
    self->phase = phase;
    self->in_phase = 0;
    self->active = phase == TALLY__AUTO_REFEREE ? self->proposal : self->settled;
    self->is_live = false;
    if (phase == TALLY__AUTO_PLAIN) {
        forget_times(self);
    }
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

/* The choice stays until the next review. With feedback its error is measured from here on. */
static void settle(struct tally__auto *self)
{
    begin(self, TALLY__AUTO_SETTLED);
    self->reference_s = 0;
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
    self->hosts = 0;
    self->n_buckets = 0;
    self->has_errors = false;
    self->n_probed = 0;
    self->last_over_ns = 0;
    self->verdict[0] = '\0';
    memset(self->banned, 0, sizeof self->banned);
    begin(self, self->phase == TALLY__AUTO_FIXED ? TALLY__AUTO_FIXED
                : self->n_ranks == 1             ? TALLY__AUTO_SETTLED
                                                 : TALLY__AUTO_WARM_UP);
}

void tally__auto_loaded(struct tally__auto *self, bool is_settled)
{
    if (self->phase == TALLY__AUTO_FIXED || self->n_ranks == 1) {
        return;
    }
    tally__auto_end_probes(self);
    begin(self, is_settled ? TALLY__AUTO_SETTLED : TALLY__AUTO_WARM_UP);
}

/* ---- measuring ---- */

static void clear_probes(struct tally__auto *self)
{
    memset(self->probes, 0, self->n * self->n_params * sizeof *self->probes);
    memset(self->squares, 0, self->n_params * sizeof *self->squares);
    memset(self->probe_sums, 0, self->samples.n * sizeof *self->probe_sums);
    self->probe_backward_s = 0;
    self->probe_cpu_s = 0;
    self->n_probe_times = 0;
    self->n_probed = 0;
    self->has_errors = false;
}

/* All ranks probe, or none does. */
static int begin_probes(struct tally__auto *self, tally_lane *lane)
{
    uint64_t failed = tally__auto_begin_probes(self) != TALLY_OK;

    TRY(tally__agree_any(lane, failed, &failed));
    if (failed) {
        tally__auto_end_probes(self);
        (void)snprintf(self->verdict, sizeof self->verdict, "there is no memory to measure codecs");
        settle(self);
        return TALLY_OK;
    }
    clear_probes(self);
    begin(self, TALLY__AUTO_PROBE);
    return TALLY_OK;
}

/* A proposal that should gain more than the margin is tried; so is one with less error that should
 * cost less than half of it. */
static int consider(struct tally__auto *self, tally_lane *lane)
{
    struct tally__offer offer;
    bool is_new;

    TRY(tally__auto_propose(self, lane, &offer));
    is_new = memcmp(self->proposal, self->settled, self->n_params) != 0;
    self->least_gain = offer.gain > self->margin ? self->margin : -self->margin / 2;
    if (is_new &&
        (offer.gain > self->margin || (offer.is_more_exact && offer.gain > self->least_gain))) {
        begin(self, TALLY__AUTO_REFEREE);
    } else {
        settle(self);
    }
    return TALLY_OK;
}

static int end_plain(struct tally__auto *self, tally_lane *lane)
{
    if (self->in_phase < N_PLAIN) {
        return TALLY_OK;
    }
    if (self->hosts <= 0) {
        TRY(tally__auto_count_hosts(self, lane));
    }
    self->verdict[0] = '\0';
    if (self->hosts > 1) {
        TRY(tally__auto_measure_line(self, lane, &self->profile));
    }
    TRY(tally__auto_gather(self, lane));
    if (self->profile.hosts <= 1) {
        settle(self);
        return TALLY_OK;
    }
    return self->has_errors ? consider(self, lane) : begin_probes(self, lane);
}

/* After the first probe only times are asked: if no candidate pays, whatever its error, there is
 * nothing more to measure. */
static int end_probe(struct tally__auto *self, tally_lane *lane)
{
    struct tally__offer offer;

    self->n_probed++;
    if (self->n_probed == 1) {
        TRY(tally__auto_gather(self, lane));
        TRY(tally__auto_propose(self, lane, &offer));
        if (offer.gain <= self->margin) {
            tally__auto_end_probes(self);
            settle(self);
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

/* Whether step i of a referee is the proposal's: pairs begin with the old and the new choice in
 * turn. */
static bool is_proposals(uint64_t i)
{
    uint64_t pair = (i - 1) / 2;
    bool is_second = (i - 1) % 2 != 0;

    return i == 0 || (i <= (uint64_t)2 * N_PAIRS && is_second == (pair % 2 == 0));
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double time_of(const struct tally__auto *self, uint64_t tick, bool is_proposal)
{
    return self->seam.step_s ? self->seam.step_s(self->seam.user, is_proposal)
                             : self->step_s[tick % (2 * TALLY__AUTO_WINDOW)];
}

/* The residuals that a trial left pass on to the hook that stays, unless it is the one that made
 * them. */
static void end_trial(struct tally__auto *self, bool is_kept)
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

static int judge(struct tally__auto *self, tally_lane *lane)
{
    double times[2 * N_PAIRS];
    double gains[N_PAIRS];
    uint64_t first = self->tick + 1 - N_REFEREE; /* the step that warmed up */
    double gain;
    bool is_kept;

    for (uint64_t i = 1; i <= (uint64_t)2 * N_PAIRS; i++) {
        times[i - 1] = time_of(self, first + i, is_proposals(i));
    }
    TRY(tally__auto_maxima(lane, times, 2 * N_PAIRS));
    for (uint64_t p = 0; p < N_PAIRS; p++) {
        double old_s = times[2 * p + is_proposals(1 + 2 * p)];
        double new_s = times[2 * p + !is_proposals(1 + 2 * p)];

        gains[p] = old_s > 0 ? (old_s - new_s) / old_s : 0;
    }
    gain = median(gains, N_PAIRS);
    is_kept = gain > self->least_gain;
    end_trial(self, is_kept);
    (void)snprintf(self->verdict, sizeof self->verdict,
                   "%d pairs of steps %s: %.3g %% gained, at least %g %% asked", N_PAIRS,
                   is_kept ? "confirmed it" : "refuted a change", 100 * gain,
                   100 * self->least_gain);
    settle(self);
    return TALLY_OK;
}

static int end_referee(struct tally__auto *self, tally_lane *lane)
{
    if (self->in_phase == N_REFEREE) {
        return judge(self, lane);
    }
    self->active = is_proposals(self->in_phase) ? self->proposal : self->settled;
    return TALLY_OK;
}

/* ---- settled ---- */

/* The choice is over its budget: the next best one takes over without a referee. */
static int replace_choice(struct tally__auto *self, tally_lane *lane)
{
    struct tally__offer offer;

    TRY(tally__auto_propose(self, lane, &offer));
    memcpy(self->settled, self->proposal, self->n_params);
    settle(self);
    return TALLY_OK;
}

/* Whether step times have shifted, as the slowest rank sees them. */
static int watch(struct tally__auto *self, tally_lane *lane, bool *has_shifted)
{
    double times[WATCH_STEPS - 1];
    double now_s;

    for (uint64_t i = 1; i < WATCH_STEPS; i++) {
        times[i - 1] = time_of(self, self->tick - i, false);
    }
    now_s = median(times, WATCH_STEPS - 1);
    TRY(tally__auto_maxima(lane, &now_s, 1));
    if (self->reference_s <= 0) {
        self->reference_s = now_s;
    }
    *has_shifted = now_s > SHIFT * self->reference_s || now_s * SHIFT < self->reference_s;
    return TALLY_OK;
}

static int end_settled(struct tally__auto *self, tally_lane *lane)
{
    bool is_over = false;

    if (self->is_live && ++self->n_live == TALLY__AUTO_ERROR_STEPS) {
        self->is_live = false;
        TRY(tally__auto_measure_error(self, lane, &is_over));
    }
    if (is_over) {
        return replace_choice(self, lane);
    }
    /* Memory has no rate that changes. */
    if ((self->has_profile && self->profile.hosts <= 1) || self->in_phase % WATCH_STEPS != 0) {
        return TALLY_OK;
    }
    TRY(watch(self, lane, &is_over));
    if (self->in_phase >= self->review || (is_over && self->in_phase >= REST_STEPS)) {
        begin(self, TALLY__AUTO_PLAIN);
    }
    return TALLY_OK;
}

/* ---- steps ---- */

/* The buckets of the step. A new layout begins again, with the choices of its parameters. */
static void count_buckets(struct tally__auto *self)
{
    unsigned generation = self->generation;
    bool is_first;
    size_t n = 0;

    for (size_t b = 0; b < self->n_params; b++) {
        generation = self->slots[b].tick == self->tick ? self->slots[b].generation : generation;
    }
    /* A bucket that no rank has a gradient for may be left out of a step. */
    for (size_t b = 0; b < self->n_params; b++) {
        bool is_there = self->slots[b].tick > 0 && self->slots[b].generation == generation;

        n = is_there ? b + 1 : n;
    }
    if (n == self->n_buckets && generation == self->generation) {
        return;
    }
    is_first = self->n_buckets == 0;
    self->n_buckets = n;
    self->generation = generation;
    if (self->phase == TALLY__AUTO_REFEREE) {
        end_trial(self, false);
    }
    if (!is_first && self->phase != TALLY__AUTO_FIXED && self->phase != TALLY__AUTO_WARM_UP) {
        tally__auto_end_probes(self);
        self->has_errors = false;
        self->n_probed = 0;
        self->has_profile = false;
        self->n_rows = 0;
        begin(self, TALLY__AUTO_PLAIN);
    }
}

static int end_phase_step(struct tally__auto *self, tally_lane *lane)
{
    switch (self->phase) {
    case TALLY__AUTO_WARM_UP:
        if (self->in_phase == N_WARM_UP) {
            begin(self, TALLY__AUTO_PLAIN);
        }
        return TALLY_OK;
    case TALLY__AUTO_PLAIN:
        return end_plain(self, lane);
    case TALLY__AUTO_PROBE:
        return end_probe(self, lane);
    case TALLY__AUTO_REFEREE:
        return end_referee(self, lane);
    case TALLY__AUTO_SETTLED:
        return end_settled(self, lane);
    case TALLY__AUTO_FIXED:
        break;
    }
    return TALLY_OK;
}

/* A failure, which all ranks see, begins the measurements again. */
int tally__auto_step_end(void *state, tally_lane *lane)
{
    struct tally__auto *self = state;
    int rc;

    self->tick++;
    if (self->n_ranks == 1) {
        return TALLY_OK;
    }
    count_buckets(self);
    self->in_phase++;
    self->lanes = (size_t)tally_lane_group(lane)->n_lanes;
    rc = end_phase_step(self, lane);
    if (rc != TALLY_OK && self->phase < TALLY__AUTO_SETTLED) {
        if (self->phase == TALLY__AUTO_REFEREE) {
            end_trial(self, false);
        }
        tally__auto_end_probes(self);
        begin(self, TALLY__AUTO_PLAIN);
    }
    return rc;
}

/* The times of the buckets and of backward. */
static void note_times(struct tally__auto *self, const tally_ddp_stats *stats)
{
    self->forward_s += stats->forward_s;
    self->backward_s += stats->backward_s;
    self->n_times++;
    for (size_t b = 0; b < self->n_buckets; b++) {
        tally_bucket_stats of = {.size = sizeof of};

        if (b < stats->n_buckets && tally_ddp_get_bucket_stats(self->ddp, b, &of) == TALLY_OK &&
            of.measured) {
            self->slots[b].ready_s += of.ready_s;
            self->slots[b].n_ready++;
        }
    }
}

static void note_probe(struct tally__auto *self, const tally_ddp_stats *stats)
{
    double coding_s = 0;

    for (size_t h = 0; h < self->n; h++) {
        for (size_t b = 0; b < self->n_buckets; b++) {
            coding_s += self->probes[h * self->n_params + b].code_s;
        }
    }
    self->probe_backward_s += stats->backward_s;
    self->probe_cpu_s += coding_s;
    self->n_probe_times++;
}

void tally__auto_step_over(void *state, bool has_input)
{
    struct tally__auto *self = state;
    tally_ddp_stats stats = {.size = sizeof stats};
    uint64_t now_ns = tally__now_ns();

    self->step_s[self->tick % (2 * TALLY__AUTO_WINDOW)] =
        self->last_over_ns > 0 ? (double)(now_ns - self->last_over_ns) * 1e-9 : 0;
    self->last_over_ns = now_ns;
    if (!has_input || self->n_ranks == 1 || tally_ddp_get_stats(self->ddp, &stats) != TALLY_OK) {
        return;
    }
    /* The phase may have changed at the end of the step: its times are of the phase before. */
    if (self->phase == TALLY__AUTO_PLAIN && self->in_phase > 0) {
        note_times(self, &stats);
    } else if (self->phase == TALLY__AUTO_PROBE && self->in_phase > 0) {
        note_probe(self, &stats);
    }
}
