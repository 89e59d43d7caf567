/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook auto: options, making, attaching, and reducing a bucket by the candidate chosen for it
 * (auto.h). auto_meet.c has the phases. Application threads enter between steps, lanes reduce,
 * several at once.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "hook/auto.h"
#include "hook/kind.h"

#define WHAT "the hook auto"

/* ---- reducing ---- */

/* The choice of a bucket, from one per parameter. Buckets may be arranged again after a choice:
 * where parameters with different choices meet in a bucket, *is_mixed, it is exact. */
static size_t choice_of(const unsigned char *choices, const tally_bucket *bucket, bool *is_mixed)
{
    unsigned char first = choices[bucket->params[0].index];

    *is_mixed = false;
    for (int k = 1; k < bucket->n_params && !*is_mixed; k++) {
        *is_mixed = choices[bucket->params[k].index] != first;
    }
    return *is_mixed ? 0 : first;
}

/* The bucket's residuals become those that its candidate can continue from. Between the two choices
 * of a referee they stay where they are, and become plain only. */
static int pass_residuals(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket,
                          size_t choice)
{
    struct tally__residuals *residuals = tally__reduction_here()->residuals;
    const struct tally__moving passing = {TALLY__MOVE_SENT, bucket, NULL, NULL};
    bool is_trial = self->phase == TALLY__AUTO_REFEREE;
    bool passes = false;

    for (int k = 0; k < bucket->n_params; k++) {
        size_t i = (size_t)bucket->params[k].index;

        if (self->used[i] != choice) {
            TRY(tally__residual_make_plain(residuals, i));
        }
        self->used[i] = (unsigned char)choice;
        if (!is_trial) {
            passes = passes || self->holds[i] != choice;
            self->holds[i] = (unsigned char)choice;
        }
    }
    if (passes && tally__residuals_must_move(residuals, &passing)) {
        TRY(tally__residuals_move(lane, residuals, &passing));
    }
    if (is_trial || self->candidates[choice]->table.feedback) {
        return TALLY_OK;
    }
    return tally__residuals_deliver(residuals, bucket);
}

static double cpu_s(void)
{
    return (double)tally__thread_ns() * 1e-9;
}

/* A bucket may come in parts, one after the other. */
static void note_bucket(struct tally__auto *self, const tally_bucket *bucket, double took_s,
                        double used_s, bool is_mixed)
{
    struct tally__auto_slot *slot = &self->slots[bucket->index];

    if (slot->tick != self->tick + 1) {
        slot->tick = self->tick + 1;
        slot->param = bucket->params[0].index;
        slot->generation = bucket->generation;
        slot->bytes = 0;
        slot->took_s = 0;
        slot->n_cpu++;
    }
    for (int k = 0; k < bucket->n_params; k++) {
        self->home[bucket->params[k].index] = bucket->index;
    }
    slot->bytes += (double)(bucket->n * tally_dtype_bytes(bucket->dtype));
    slot->took_s += took_s;
    slot->cpu_s += used_s;
    slot->is_mixed = is_mixed;
}

/* Samples of the means, and of the residuals before the first and after the last of the steps over
 * which the error counts. Without memory for it the step goes on: the end of those steps tells the
 * other ranks. */
static int note_error(struct tally__auto *self, const tally_bucket *bucket, bool is_before)
{
    struct tally__residuals *residuals = tally__reduction_here()->residuals;
    bool is_first = self->n_live == 0;
    bool is_last = self->n_live + 1 == TALLY__AUTO_ERROR_STEPS;
    double square = 0;

    for (int k = 0; k < bucket->n_params && bucket->dtype == TALLY_F32; k++) {
        if (!is_before) {
            tally__samples_add(&self->samples, &bucket->params[k], self->live_sums, &square);
        }
        if ((is_before && is_first) || (!is_before && is_last)) {
            int rc = tally__samples_residual(&self->samples, bucket, k, residuals,
                                             is_before ? self->live_start : self->live_end);

            if (rc == TALLY_NOMEM) {
                atomic_store_explicit(&self->lacks_memory, true, memory_order_relaxed);
                return TALLY_OK;
            }
            TRY(rc);
        }
    }
    return TALLY_OK;
}

/* Buckets of this step are coded by all candidates, too. */
static bool is_coded(const struct tally__auto *self)
{
    return self->phase == TALLY__AUTO_PROBE || self->is_opening;
}

/* Codes the bucket by all candidates; in the opening, its parameters take one of them. */
static int measure_coding(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket)
{
    if (!is_coded(self) || bucket->dtype != TALLY_F32) {
        return TALLY_OK;
    }
    TRY(tally__auto_code(self, lane, bucket));
    return self->is_opening ? tally__auto_choose_early(self, lane, bucket) : TALLY_OK;
}

/* The choice of a bucket that is measured; in the referee, the end of a step may be cut. */
static int choose_now(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket,
                      size_t *choice, bool *is_mixed)
{
    bool is_cut = false;

    if (self->phase == TALLY__AUTO_REFEREE && self->may_cut && self->active == self->settled) {
        TRY(tally__auto_cut(self, lane, &is_cut));
    }
    *choice = choice_of(is_cut ? self->proposal : self->active, bucket, is_mixed);
    return TALLY_OK;
}

/* Buckets of delayed parameters have the indices of other buckets, and travel in few steps: they
 * are not measured, and so exact. */
static bool is_delayed(const struct tally__auto *self, const tally_bucket *bucket)
{
    return self->is_delayed[bucket->params[0].index];
}

static int reduce_delayed(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket,
                          const size_t *shard_starts)
{
    if (bucket->dtype == TALLY_F32) {
        TRY(pass_residuals(self, lane, bucket, 0));
    }
    return tally__hook_reduce(self->candidates[0], lane, bucket, shard_starts);
}

static int reduce_by_choice(void *state, tally_lane *lane, const tally_bucket *bucket,
                            const size_t *shard_starts)
{
    struct tally__auto *self = state;
    uint64_t start_ns;
    double took_s;
    double used_s;
    size_t choice;
    bool is_mixed;

    if (is_delayed(self, bucket)) {
        return reduce_delayed(self, lane, bucket, shard_starts);
    }
    TRY(measure_coding(self, lane, bucket));
    start_ns = tally__now_ns();
    used_s = cpu_s();
    TRY(choose_now(self, lane, bucket, &choice, &is_mixed));
    if (bucket->dtype == TALLY_F32) {
        TRY(pass_residuals(self, lane, bucket, choice));
    }
    if (self->is_live) {
        TRY(note_error(self, bucket, true));
    }
    TRY(tally__hook_reduce(self->candidates[choice], lane, bucket, shard_starts));
    took_s = (double)(tally__now_ns() - start_ns) * 1e-9;
    note_bucket(self, bucket, took_s, cpu_s() - used_s, is_mixed);
    return self->is_live ? note_error(self, bucket, false) : TALLY_OK;
}

static int reduce(void *state, tally_lane *lane, const tally_bucket *bucket)
{
    return reduce_by_choice(state, lane, bucket, NULL);
}

static int scatter(void *state, tally_lane *lane, const tally_bucket *bucket,
                   const size_t *shard_starts)
{
    return reduce_by_choice(state, lane, bucket, shard_starts);
}

/* While buckets are measured, or their choice may change in mid-step, they come whole. So does a
 * mixed bucket: its parts would have different choices. */
static bool is_elementwise(const void *state, const tally_bucket *bucket)
{
    const struct tally__auto *self = state;
    bool may_change = self->phase == TALLY__AUTO_REFEREE && self->may_cut;
    bool is_mixed;
    size_t choice = choice_of(self->active, bucket, &is_mixed);

    if (is_delayed(self, bucket)) {
        return self->candidates[0]->table.elementwise;
    }
    return !is_coded(self) && !may_change && !is_mixed &&
           self->candidates[choice]->table.elementwise;
}

/* ---- attaching ---- */

static void detach_first(struct tally__auto *self, tally_ddp *ddp, size_t n)
{
    for (size_t h = n; h-- > 0;) {
        const tally_hook *hook = self->candidates[h];

        hook->table.detach(hook->state, ddp);
    }
}

static int attach(void *state, tally_ddp *ddp)
{
    struct tally__auto *self = state;
    int rc = TALLY_OK;

    for (size_t h = 0; h < self->n; h++) {
        rc = tally__hook_attach(self->candidates[h], ddp);
        if (rc != TALLY_OK) {
            detach_first(self, ddp, h);
            return rc;
        }
    }
    tally__auto_start(self);
    return TALLY_OK;
}

static void detach(void *state, tally_ddp *ddp)
{
    struct tally__auto *self = state;

    tally__auto_end_probes(self);
    detach_first(self, ddp, self->n);
}

static void leave(void *state)
{
    struct tally__auto *self = state;

    if (--self->n_entered == 0) {
        (void)tally_group_close(self->alone);
        tally__auto_free_arrays(self);
        self->alone = NULL;
        self->ddp = NULL;
    }
}

/* The group of this rank alone, all memory, the plan, and without one the line. Separate from
 * attach, because these are collective. A second entry is for the same ddp, and changes nothing. */
static int enter(void *state, tally_ddp *ddp)
{
    struct tally__auto *self = state;
    tally_group *all = tally_ddp_group(ddp);
    tally_group *alone;
    bool has_plan = false;
    int rc = TALLY_OK;

    TRY(tally_group_split(all, tally_group_rank(all), 0, &alone));
    if (self->n_entered > 0) {
        (void)tally_group_close(alone);
        if (self->ddp != ddp) {
            return tally__fail(TALLY_STATE, "an auto hook serves one ddp at a time");
        }
        self->n_entered++;
        return TALLY_OK;
    }
    rc = tally__auto_make_arrays(self, ddp);
    self->rank = tally_group_rank(all);
    self->n_ranks = tally_group_size(all);
    self->phase = TALLY__AUTO_WARM_UP;
    rc = tally__plan_load(self, ddp, rc, &has_plan);
    if (rc != TALLY_OK) {
        tally__auto_free_arrays(self);
        (void)tally_group_close(alone);
        return rc;
    }
    self->phase = has_plan ? TALLY__AUTO_FIXED : TALLY__AUTO_WARM_UP;
    self->alone = alone;
    self->ddp = ddp;
    self->n_entered = 1;
    rc = tally__auto_enter_line(self);
    if (rc != TALLY_OK) {
        leave(self);
    }
    return rc;
}

static void destroy(void *state)
{
    struct tally__auto *self = state;

    for (size_t h = 0; h < self->n; h++) {
        tally_hook_free(self->candidates[h]);
        tally_hook_free(self->probers[h]);
    }
    tally__free(self->plan_path);
    tally__free(self->profile_path);
    tally__free(self);
}

void tally__auto_set_seam(tally_hook *hook, const struct tally__auto_seam *seam)
{
    ((struct tally__auto *)hook->state)->seam = *seam;
}

/* ---- making ---- */

enum { BUDGET, CANDIDATES, MARGIN, REVIEW, PLAN, PROFILE };

static int copy_path(const char *text, char **path)
{
    if (strcmp(text, "-") == 0) {
        return TALLY_OK;
    }
    *path = tally__alloc(strlen(text) + 1, WHAT);
    if (!*path) {
        return TALLY_NOMEM;
    }
    memcpy(*path, text, strlen(text) + 1);
    return TALLY_OK;
}

static int read_options(struct tally__auto *self, const struct tally__setting *setting)
{
    self->budget = setting->values[BUDGET];
    self->margin = setting->values[MARGIN];
    self->review = (uint64_t)setting->values[REVIEW];
    TRY(copy_path(tally__setting_text(setting, PLAN), &self->plan_path));
    TRY(copy_path(tally__setting_text(setting, PROFILE), &self->profile_path));
    return tally__auto_read_candidates(self, tally__setting_text(setting, CANDIDATES));
}

static int make(const char *name, const struct tally__setting *setting, tally_hook *inner,
                tally_hook **hook)
{
    tally_hook_table table = {.size = sizeof table,
                              .name = name,
                              .concurrent = 1,
                              .attach = attach,
                              .reduce = reduce,
                              .detach = detach,
                              .save = tally__auto_save,
                              .load = tally__auto_load,
                              .destroy = destroy,
                              .scatter = scatter};
    struct tally__hook_private private = {.follows_steps = true,
                                          .enter = enter,
                                          .leave = leave,
                                          .is_elementwise = is_elementwise,
                                          .step_end = tally__auto_step_end,
                                          .step_over = tally__auto_step_over,
                                          .get_packing = tally__auto_get_packing,
                                          .n_explained = tally__auto_n_explained,
                                          .explain = tally__auto_explain};
    struct tally__auto *self = tally__alloc(sizeof *self, "a hook");
    int rc;

    (void)inner;
    if (!self) {
        return TALLY_NOMEM;
    }
    rc = read_options(self, setting);
    if (rc != TALLY_OK) {
        destroy(self);
        return rc;
    }
    for (size_t h = 0; h < self->n; h++) {
        table.concurrent = table.concurrent && self->candidates[h]->table.concurrent;
        table.feedback = table.feedback || self->candidates[h]->table.feedback;
        private.layout_bound = private.layout_bound || self->candidates[h]->private.layout_bound;
    }
    return tally__hook_make(&table, &private, self, hook);
}

static const struct tally__option options[] = {
    [BUDGET] = TALLY__REAL_OPTION("error", 0, 1, "0..1", "0.02",
                                  "the most that may be left out of a sum over 32 steps, relative "
                                  "to the sum"),
    [CANDIDATES] = TALLY__TEXT_OPTION(
        "candidates", "hooks joined by '+', the first exact", "allreduce+bf16+int8+powersgd",
        "hooks to choose from; options of one are joined by ';'; PowerSGD starts at once"),
    [MARGIN] = TALLY__REAL_OPTION("margin", 0, 1, "0..1", "0.03",
                                  "part of a step that a change must gain, or it is taken back"),
    [REVIEW] = TALLY__COUNT_OPTION("review", TALLY__AUTO_LEAST_REVIEW, 1e15, "80 or more", "1000",
                                   "steps after which the choice is looked at again"),
    [PLAN] = TALLY__TEXT_OPTION("plan", "a file, or - for none", "-",
                                "the choice is read from this file, or written to it if it is not "
                                "there"),
    [PROFILE] = TALLY__TEXT_OPTION("profile", "a file, or - for none", "-",
                                   "the measurements are written to this file, for tally plan"),
};

const struct tally__hook_kind tally__hook_kind_auto_choice = {
    .row.name = "auto",
    .row.help =
        "measures the job, chooses a hook for each bucket, checks that it pays, and says why",
    .row.n_options = sizeof options / sizeof options[0],
    .row.options = options,
    .make = make,
};
