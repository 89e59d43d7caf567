/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opening of the hook auto (auto.h): the choice for the steps that are measured. Over a slow
 * line a step by allreduce may take as long as 30 of the best hook; so even in the first step only
 * the first bucket is sure to travel by it. Every bucket is coded twice before it travels, and
 * takes the best candidate at the rate at which the exact buckets before it have travelled; from
 * that rate on, candidates behind the best one are not coded. The line is measured after the step.
 * On the thread that attaches, on lanes with their buckets, and in step_end, a job on lane 0.
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

void tally__auto_begin_opening(struct tally__auto *self)
{
    self->is_opening = has_line(self);
    if (!self->is_opening) {
        return;
    }
    /* Until its end, some buckets may have other hooks than the exact one. */
    self->is_unproved = true;
    atomic_store_explicit(&self->early_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&self->early_bytes, 0, memory_order_relaxed);
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
    double slowness; /* seconds per byte of exact buckets; 0: none has travelled yet */
    struct tally__coding coding[TALLY__MOST_CANDIDATES];
    double exchanges[TALLY__MOST_CANDIDATES];
    double error[TALLY__MOST_CANDIDATES];
};

static void fill_early(const struct tally__auto *self, const tally_bucket *bucket,
                       struct early *early)
{
    size_t b = (size_t)bucket->index;
    uint64_t bytes = atomic_load_explicit(&self->early_bytes, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&self->early_ns, memory_order_relaxed);

    *early = (struct early){.slowness = bytes > 0 ? 1e-9 * (double)ns / (double)bytes : 0};
    for (size_t h = 0; h < self->n; h++) {
        const struct tally__auto_probe *probe = &self->probes[h * self->n_params + b];

        early->coding[h] = (struct tally__coding){probe->bytes, probe->code_s};
        early->exchanges[h] = probe->exchanges;
        early->error[h] = tally__auto_opening_error(self, h, bucket);
    }
}

/* The candidate with which the bucket would be there first. Among two hosts, a rank sends as many
 * bytes as the bucket has: the rate is that of the exact buckets. */
static unsigned char pick(const struct tally__auto *self, const tally_bucket *bucket,
                          struct early *early)
{
    struct tally__profile_bucket own = {.bytes =
                                            (double)(bucket->n * tally_dtype_bytes(bucket->dtype))};
    struct tally__profile_hook hooks[TALLY__MOST_CANDIDATES] = {0};
    struct tally__profile profile = {.hosts = 2,
                                     .ranks_per_host = 1,
                                     .lanes = 1,
                                     .link.gbit = 8e-9 / early->slowness,
                                     .n_buckets = 1,
                                     .buckets = &own,
                                     .n_hooks = self->n,
                                     .hooks = hooks};
    unsigned char best = 0;
    double best_s = 0;

    for (size_t h = 0; h < self->n; h++) {
        hooks[h].exchanges = early->exchanges[h];
        hooks[h].coding = &early->coding[h];
    }
    if (self->seam.profile) {
        self->seam.profile(self->seam.user, &profile);
    }
    for (size_t h = 0; h < self->n; h++) {
        const struct tally__load load = tally__choice_load(&profile, h, 0);
        double s = load.code_s + load.line_s + load.rounds_s;

        if (h == 0) {
            best_s = s * (1 - self->margin);
        } else if (s < best_s && early->error[h] <= self->budget) {
            best = (unsigned char)h;
            best_s = s;
        }
    }
    return best;
}

int tally__auto_choose_early(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket)
{
    struct early early;
    unsigned char choice = 0;

    fill_early(self, bucket, &early);
    TRY(tally__auto_maxima(lane, (double *)&early, sizeof early / sizeof(double)));
    if (early.slowness > 0) {
        choice = pick(self, bucket, &early);
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

/* Puts the candidates in the order of what bucket 0 would have taken with them, from what it took
 * with the exact one. */
static void find_order(struct tally__auto *self, double slowness)
{
    double costs[TALLY__MOST_CANDIDATES] = {0};

    for (size_t h = 0; h < self->n; h++) {
        const struct tally__auto_probe *probe = &self->probes[h * self->n_params];
        double cost_s = probe->code_s + probe->bytes * slowness;
        size_t at = h;

        for (; at > 1 && costs[at - 1] > cost_s; at--) {
            costs[at] = costs[at - 1];
            self->early_order[at] = self->early_order[at - 1];
        }
        costs[at] = cost_s;
        self->early_order[at] = (unsigned char)h;
    }
    atomic_store_explicit(&self->has_early_order, true, memory_order_release);
}

void tally__auto_note_early(struct tally__auto *self, const tally_bucket *bucket, uint64_t took_ns)
{
    size_t bytes = bucket->n * tally_dtype_bytes(bucket->dtype);

    if (self->settled[bucket->params[0].index] != 0) {
        return;
    }
    atomic_fetch_add_explicit(&self->early_ns, took_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->early_bytes, bytes, memory_order_relaxed);
    if (bucket->index == 0 && bucket->dtype == TALLY_F32 && bytes > 0) {
        find_order(self, 1e-9 * (double)took_ns / (double)bytes);
    }
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
    TRY(tally__auto_count_hosts(self, lane));
    if (self->hosts > 1) {
        TRY(tally__auto_measure_line(self, lane, &self->profile));
        self->has_line = true;
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
