/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opening of the hook auto (auto.h): the choice for the steps that are measured. Over a slow
 * line a step by allreduce may take as long as 30 of the best hook; so the line is measured when
 * the hook is attached. In the first step every bucket is coded twice before it travels, and takes
 * the best candidate; from bucket 0 on, candidates behind the best one are not coded. On the thread
 * that attaches, on lanes with their buckets, and in step_end, a job on lane 0.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "comm/agree.h"
#include "comm/domain.h"
#include "comm/group.h"
#include "hook/auto.h"

/* Whether there is a line to measure; tests pretend that there is one. */
static bool has_line(const struct tally__auto *self)
{
    return tally_ddp_group(self->ddp)->domain->n_machines > 1 || self->seam.profile;
}

static int line_job(tally_lane *lane, void *user)
{
    struct tally__auto *self = user;

    TRY(tally__auto_count_hosts(self, lane));
    if (self->hosts > 1) {
        TRY(tally__auto_measure_line(self, lane, &self->profile));
        self->has_line = true;
    }
    return TALLY_OK;
}

int tally__auto_enter_line(struct tally__auto *self)
{
    tally_future *future;
    int rc;

    self->hosts = 0;
    self->has_line = false;
    self->n_buckets = 0;
    if (self->phase == TALLY__AUTO_FIXED || self->n_ranks == 1 || !has_line(self)) {
        return TALLY_OK;
    }
    TRY(tally_submit(tally_ddp_group(self->ddp), 0, line_job, self, &future));
    rc = tally_future_wait(future);
    tally_future_free(future);
    /* Without memory for it, the line is measured after the first step. */
    return rc == TALLY_NOMEM && self->gave_up ? TALLY_OK : rc;
}

void tally__auto_begin_opening(struct tally__auto *self)
{
    self->is_opening = has_line(self);
    if (!self->is_opening) {
        return;
    }
    /* Until its end, some buckets may have other hooks than the exact one. */
    self->is_unproved = true;
    atomic_store_explicit(&self->has_early_order, false, memory_order_relaxed);
    tally__auto_clear_probes(self);
    if (tally__auto_begin_probes(self) != TALLY_OK) {
        /* The end of the step tells the other ranks. */
        atomic_store_explicit(&self->lacks_memory, true, memory_order_relaxed);
    }
}

/* ---- in jobs of buckets ---- */

/* What the ranks know of a bucket: of each maxima over ranks. */
struct early {
    struct tally__coding coding[TALLY__MOST_CANDIDATES];
    double exchanges[TALLY__MOST_CANDIDATES];
    double error[TALLY__MOST_CANDIDATES];
};

static void fill_early(const struct tally__auto *self, const tally_bucket *bucket,
                       struct early *early)
{
    size_t b = (size_t)bucket->index;

    *early = (struct early){.exchanges = {0}};
    for (size_t h = 0; h < self->n; h++) {
        const struct tally__auto_probe *probe = &self->probes[h * self->n_params + b];

        early->coding[h] = (struct tally__coding){probe->bytes, probe->code_s};
        early->exchanges[h] = probe->exchanges;
        early->error[h] = tally__auto_opening_error(self, h, bucket);
    }
}

/* The time of the bucket with each candidate; false: the line is not known. */
static bool find_costs(const struct tally__auto *self, const tally_bucket *bucket,
                       struct early *early, double costs[TALLY__MOST_CANDIDATES])
{
    struct tally__profile_bucket own = {.bytes =
                                            (double)(bucket->n * tally_dtype_bytes(bucket->dtype))};
    struct tally__profile_hook hooks[TALLY__MOST_CANDIDATES] = {0};
    struct tally__profile profile = {.hosts = self->hosts,
                                     .ranks_per_host = self->ranks_per_host,
                                     .lanes = 1,
                                     .link = self->profile.link,
                                     .memory = self->profile.memory,
                                     .n_buckets = 1,
                                     .buckets = &own,
                                     .n_hooks = self->n,
                                     .hooks = hooks};

    for (size_t h = 0; h < self->n; h++) {
        hooks[h].exchanges = early->exchanges[h];
        hooks[h].coding = &early->coding[h];
    }
    if (self->seam.profile) {
        self->seam.profile(self->seam.user, &profile);
    }
    for (size_t h = 0; h < self->n; h++) {
        const struct tally__load load = tally__choice_load(&profile, h, 0);

        costs[h] = load.code_s + load.line_s + load.rounds_s;
    }
    return self->has_line || self->seam.profile;
}

/* The candidate with which the bucket would be there first. */
static unsigned char pick(const struct tally__auto *self, const struct early *early,
                          const double *costs)
{
    double best_s = costs[0] * (1 - self->margin);
    unsigned char best = 0;

    for (size_t h = 1; h < self->n; h++) {
        if (costs[h] < best_s && early->error[h] <= self->budget) {
            best = (unsigned char)h;
            best_s = costs[h];
        }
    }
    return best;
}

/* Puts the candidates in the order of what bucket 0 takes with them, the exact one first. */
static void find_order(struct tally__auto *self, const double *costs)
{
    for (size_t h = 0; h < self->n; h++) {
        size_t at = h;

        for (; at > 1 && costs[self->early_order[at - 1]] > costs[h]; at--) {
            self->early_order[at] = self->early_order[at - 1];
        }
        self->early_order[at] = (unsigned char)h;
    }
    atomic_store_explicit(&self->has_early_order, true, memory_order_release);
}

int tally__auto_choose_early(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket)
{
    double costs[TALLY__MOST_CANDIDATES] = {0};
    unsigned char choice = 0;
    struct early early;

    fill_early(self, bucket, &early);
    TRY(tally__auto_maxima(lane, (double *)&early, sizeof early / sizeof(double)));
    if (find_costs(self, bucket, &early, costs)) {
        choice = pick(self, &early, costs);
        if (bucket->index == 0) {
            find_order(self, costs);
        }
    }
    TRY(tally_lane_broadcast(lane, &choice, 1, 0));
    for (int k = 0; k < bucket->n_params; k++) {
        self->settled[bucket->params[k].index] = choice;
    }
    return TALLY_OK;
}

bool tally__auto_get_order(const struct tally__auto *self, unsigned char *order)
{
    bool is_known = atomic_load_explicit(&self->has_early_order, memory_order_acquire);

    for (size_t h = 0; h < self->n; h++) {
        order[h] = is_known ? self->early_order[h] : (unsigned char)h;
    }
    return is_known;
}

/* ---- the end of the step ---- */

int tally__auto_end_opening(struct tally__auto *self, tally_lane *lane)
{
    uint64_t is_spoiled = atomic_load_explicit(&self->saw_infinite, memory_order_relaxed);
    struct tally__offer offer;

    self->n_probed = TALLY__AUTO_OPENING_PROBES;
    self->is_opening = false;
    tally__auto_end_probes(self);
    TRY(tally__agree_any(lane, is_spoiled, &is_spoiled));
    self->is_unproved = false;
    if (is_spoiled) {
        memset(self->settled, 0, self->n_params);
        tally__auto_clear_probes(self);
        return TALLY_OK;
    }
    if (self->hosts <= 0 || (self->hosts > 1 && !self->has_line)) {
        TRY(line_job(lane, self));
    }
    self->has_errors = true;
    TRY(tally__auto_gather(self, lane));
    memset(self->settled, 0, self->n_params);
    if (self->profile.hosts > 1) {
        TRY(tally__auto_propose(self, lane, &offer));
        if (offer.gain > self->margin) {
            memcpy(self->settled, self->proposal, self->n_params);
            self->is_unproved = true;
        }
    }
    tally__auto_clear_probes(self);
    self->has_profile = false;
    return TALLY_OK;
}
