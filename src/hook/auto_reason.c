/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reasons of the hook auto: one sentence per bucket, for tally_ddp_explain and the log. Filled
 * on lane 0 when a choice is settled; application threads read them between steps.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "hook/auto.h"

/* A gain below this part of a step does not count. */
#define NOTHING 0.005

static const char *name_of(const struct tally__auto *self, size_t h)
{
    return self->candidates[h]->table.name;
}

/* Writes the reason why a bucket is not compressed. */
static void say_exact(const struct tally__auto *self, size_t b,
                      const struct tally__bucket_answer *of, double step_s, char *reason)
{
    const struct tally__profile *profile = &self->profile;
    const struct tally__load own = tally__choice_load(profile, 0, b);
    const struct tally__load other = tally__choice_load(profile, of->runner_up, b);
    double saved_s = own.line_s - other.line_s;
    double spent_s = other.code_s + other.rounds_s - own.code_s - own.rounds_s;
    const char *runner_up = name_of(self, of->runner_up);

    if (step_s - of->nothing_s < NOTHING * step_s) {
        (void)snprintf(reason, TALLY__AUTO_REASON, "backward or another bucket hides it");
    } else if (isinf(of->runner_up_error)) {
        (void)snprintf(
            reason, TALLY__AUTO_REASON,
            "its gradients were zero, absent or not fp32 while candidates were measured");
    } else if (!of->runner_up_fits && of->runner_up_s < step_s) {
        (void)snprintf(reason, TALLY__AUTO_REASON,
                       "%.60s would save %.3g ms, but leaves out %.2g of the sum; error=%g",
                       runner_up, 1e3 * (step_s - of->runner_up_s), of->runner_up_error,
                       self->budget);
    } else if (spent_s >= saved_s) {
        (void)snprintf(reason, TALLY__AUTO_REASON,
                       "coding costs more than the line saves: %.60s would save %.3g ms and spend "
                       "%.3g ms",
                       runner_up, 1e3 * saved_s, 1e3 * spent_s);
    } else {
        (void)snprintf(reason, TALLY__AUTO_REASON,
                       "%.60s would gain %.2g %% of the step, less than margin=%g", runner_up,
                       100 * (step_s - of->runner_up_s) / step_s, self->margin);
    }
}

/* No candidate was coded: none could pay, even if its work cost nothing. */
static void say_unprobed(const struct tally__auto *self, const struct tally__bucket_answer *of,
                         const struct tally__answer *step, char *reason)
{
    if (step->step_s - of->nothing_s < NOTHING * step->step_s) {
        (void)snprintf(reason, TALLY__AUTO_REASON, "backward or another bucket hides it");
    } else {
        (void)snprintf(reason, TALLY__AUTO_REASON,
                       "without any communication the step would be %.2g %% shorter, less than "
                       "margin=%g",
                       100 * (step->step_s - step->least_s) / step->step_s, self->margin);
    }
}

static void say_compressed(const struct tally__auto *self, size_t b, size_t choice, char *reason)
{
    const struct tally__profile *profile = &self->profile;
    const struct tally__load exact = tally__choice_load(profile, 0, b);
    const struct tally__load own = tally__choice_load(profile, choice, b);

    (void)snprintf(reason, TALLY__AUTO_REASON,
                   "the line is %.3g Gbit/s: %.3g ms saved, %.3g ms spent", profile->link.gbit,
                   1e3 * (exact.line_s - own.line_s),
                   1e3 * fmax(own.code_s + own.rounds_s - exact.code_s - exact.rounds_s, 0));
}

static void add_verdict(const char *verdict, char *reason)
{
    size_t n = strlen(reason);

    if (verdict[0] != '\0' && n + 3 < TALLY__AUTO_REASON) {
        (void)snprintf(reason + n, TALLY__AUTO_REASON - n, "; %.*s",
                       (int)(TALLY__AUTO_REASON - n - 3), verdict);
    }
}

static void explain_bucket(struct tally__auto *self, size_t b, const unsigned char *choice,
                           const struct tally__bucket_answer *of, const struct tally__answer *step)
{
    const struct tally__load load = tally__choice_load(&self->profile, of->runner_up, b);
    struct tally__auto_row *row = &self->rows[b];

    row->choice = choice[b];
    row->runner_up = (unsigned char)of->runner_up;
    row->predicted_s = of->bucket_s;
    row->runner_up_s = load.code_s + load.rounds_s + load.line_s;
    row->error = of->error;
    if (self->n_probed == 0) {
        row->runner_up = row->choice;
    }
    if (choice[b] == 0 && self->n_probed == 0) {
        say_unprobed(self, of, step, row->reason);
    } else if (choice[b] == 0) {
        say_exact(self, b, of, step->step_s, row->reason);
    } else {
        say_compressed(self, b, choice[b], row->reason);
    }
    add_verdict(self->verdict, row->reason);
    add_verdict(self->cap_verdict, row->reason);
}

static int explain_buckets(struct tally__auto *self)
{
    const struct tally__question question = tally__auto_question(self);
    const unsigned char *choice = tally__auto_by_bucket(self, self->settled);
    struct tally__bucket_answer *of = tally__alloc_array(self->n_buckets, sizeof *of, "reasons");
    struct tally__answer step;
    int rc = of ? TALLY_OK : TALLY_NOMEM;

    if (rc == TALLY_OK) {
        rc = tally__choice_replay(&question, choice, &step);
    }
    if (rc == TALLY_OK) {
        rc = tally__choice_explain(&question, choice, of);
    }
    for (size_t b = 0; rc == TALLY_OK && b < self->n_buckets; b++) {
        explain_bucket(self, b, choice, &of[b], &step);
    }
    tally__free(of);
    return rc;
}

/* All ranks share memory: nothing was probed. */
static void explain_memory(struct tally__auto *self)
{
    for (size_t b = 0; b < self->n_buckets; b++) {
        struct tally__auto_row *row = &self->rows[b];

        *row = (struct tally__auto_row){.choice = self->settled[self->slots[b].param]};
        row->runner_up = row->choice;
        (void)snprintf(row->reason, sizeof row->reason,
                       "all %d ranks share the memory of one machine: there is no line whose bytes "
                       "compression could save",
                       self->n_ranks);
    }
}

static void log_rows(const struct tally__auto *self)
{
    if (self->rank != 0) {
        return;
    }
    if (self->profile.hosts <= 1) {
        tally__log(TALLY_LOG_INFO, "auto: %s for all %zu buckets: %s",
                   name_of(self, self->rows[0].choice), self->n_rows, self->rows[0].reason);
        return;
    }
    for (size_t b = 0; b < self->n_rows; b++) {
        const struct tally__auto_row *row = &self->rows[b];
        const struct tally__auto_slot *slot = &self->slots[b];
        char measured[40] = "";
        char next[300] = "";

        /* The last step may have been one of another choice. */
        if (self->used[slot->param] == row->choice) {
            (void)snprintf(measured, sizeof measured, ", %.3g ms measured", 1e3 * slot->took_s);
        }
        if (row->runner_up != row->choice) {
            (void)snprintf(next, sizeof next, "; next %s, %.3g ms", name_of(self, row->runner_up),
                           1e3 * row->runner_up_s);
        }
        tally__log(TALLY_LOG_INFO, "auto: bucket %zu: %s, %.3g ms predicted%s%s; error %.2g: %s", b,
                   name_of(self, row->choice), 1e3 * row->predicted_s, measured, next, row->error,
                   row->reason);
    }
    if (self->cap_gain > 0) {
        tally__log(TALLY_LOG_INFO,
                   "auto: the bucket cap would be %zu KiB: the step would be %.2g %% shorter",
                   self->cap_bytes >> 10, 100 * self->cap_gain);
    }
}

void tally__auto_explain_all(struct tally__auto *self)
{
    int rc = TALLY_OK;

    self->n_explained++;
    self->n_rows = 0;
    self->cap_bytes = 0;
    self->cap_gain = 0;
    if (self->n_buckets == 0 || self->gave_up ||
        (self->has_profile && self->profile.n_buckets != self->n_buckets)) {
        return;
    }
    if (!self->has_profile || self->profile.hosts <= 1) {
        explain_memory(self);
    } else {
        rc = explain_buckets(self);
    }
    if (rc == TALLY_OK) {
        self->n_rows = self->n_buckets;
        tally__auto_find_cap(self);
        log_rows(self);
    }
}

uint64_t tally__auto_n_explained(const void *state)
{
    const struct tally__auto *self = state;

    return self->n_explained;
}

/* The sentence for a bucket without a row. */
static const char *plain_reason(const struct tally__auto *self)
{
    if (self->phase == TALLY__AUTO_FIXED) {
        return "the plan file says so";
    }
    if (self->n_ranks == 1) {
        return "there is one rank: nothing travels";
    }
    if (self->phase == TALLY__AUTO_CAP) {
        return "auto is trying another bucket cap";
    }
    if (self->phase < TALLY__AUTO_SETTLED) {
        return "auto is still measuring";
    }
    /* Nothing could be measured, or a state was loaded, which has no verdict. */
    return self->verdict[0] != '\0' ? self->verdict : "the state that was loaded says so";
}

void tally__auto_explain(const void *state, size_t bucket, tally_bucket_choice *choice)
{
    const struct tally__auto *self = state;
    const struct tally__auto_row *row = bucket < self->n_rows ? &self->rows[bucket] : NULL;
    bool is_seen = bucket < self->n_params && self->slots[bucket].tick > 0;
    bool is_mixed = is_seen && !row && self->slots[bucket].is_mixed;

    choice->settled = self->phase >= TALLY__AUTO_SETTLED;
    choice->hook =
        name_of(self, is_seen && !is_mixed ? self->settled[self->slots[bucket].param] : 0);
    choice->cap_bytes = self->cap_bytes;
    choice->cap_gain = self->cap_gain;
    if (!row) {
        (void)snprintf(choice->reason, sizeof choice->reason, "%s",
                       is_mixed ? "its parameters have different choices, so it is exact"
                                : plain_reason(self));
        return;
    }
    choice->runner_up = row->runner_up != row->choice ? name_of(self, row->runner_up) : NULL;
    choice->predicted_s = row->predicted_s;
    choice->runner_up_s = choice->runner_up ? row->runner_up_s : 0;
    choice->error = row->error;
    (void)snprintf(choice->reason, sizeof choice->reason, "%s", row->reason);
}
