/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decisions of the hook auto: all ranks put their figures together, rank 0 chooses, and all
 * ranks learn its choice. In step_end, a job on lane 0.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/agree.h"
#include "hook/auto.h"

#define WHAT "a decision of the hook auto"
/* Below this share of its CPU, what backward loses to communication is noise. */
#define LEAST_SHARE 0.05

int tally__auto_maxima(tally_lane *lane, double *values, size_t n)
{
    return tally_lane_all_reduce(lane, values, n, TALLY_F64, TALLY_MAX);
}

int tally__auto_share_lack(struct tally__auto *self, tally_lane *lane, int status)
{
    uint64_t lacks =
        status == TALLY_NOMEM || atomic_load_explicit(&self->lacks_memory, memory_order_relaxed);

    TRY(status == TALLY_NOMEM ? TALLY_OK : status);
    TRY(tally__agree_any(lane, lacks, &lacks));
    atomic_store_explicit(&self->lacks_memory, false, memory_order_relaxed);
    self->gave_up = lacks != 0;
    return lacks ? TALLY_NOMEM : TALLY_OK;
}

const unsigned char *tally__auto_by_bucket(const struct tally__auto *self,
                                           const unsigned char *choice)
{
    for (size_t b = 0; b < self->n_buckets; b++) {
        self->of_buckets[b] = choice[self->slots[b].param];
    }
    return self->of_buckets;
}

struct tally__question tally__auto_question(const struct tally__auto *self)
{
    return (struct tally__question){.profile = &self->profile,
                                    .sums = self->has_errors ? self->sums : NULL,
                                    .losses = self->has_errors ? self->losses : NULL,
                                    .budget = self->budget,
                                    .banned = self->banned};
}

/* ---- this rank's figures ---- */

static double mean(double sum, size_t n)
{
    return n > 0 ? sum / (double)n : 0;
}

/* The standard deviation of forward and backward over the steps of the window. */
static double find_spread(const struct tally__auto *self)
{
    double compute_s = mean(self->forward_s + self->backward_s, self->n_times);

    return sqrt(fmax(mean(self->compute_squares, self->n_times) - compute_s * compute_s, 0));
}

/* The part of its CPU time that backward lost to coding beside it. */
static double find_share(const struct tally__auto *self, double backward_s)
{
    double lost_s = mean(self->probe_backward_s, self->n_probe_times) - backward_s;
    double beside_s = fmin(mean(self->probe_cpu_s, self->n_probe_times), backward_s);
    double share = beside_s > 0 ? fmin(fmax(lost_s / beside_s, 0), 1) : 0;

    return share < LEAST_SHARE ? 0 : share;
}

/* CPU time of the lane for each byte it sends, of what is not coding. */
static double find_cpu_per_byte(const struct tally__auto *self,
                                const struct tally__profile *profile)
{
    double used_s = 0;
    double bytes = 0;

    for (size_t b = 0; b < self->n_buckets; b++) {
        size_t h = self->settled[self->slots[b].param];
        const struct tally__load load = tally__choice_load(profile, h, b);

        used_s += fmax(mean(self->slots[b].cpu_s, self->slots[b].n_cpu) - load.code_s, 0);
        bytes += load.rank_bytes;
    }
    return bytes > 0 ? used_s / bytes : 0;
}

static void fill_coding(const struct tally__auto *self, struct tally__profile *profile)
{
    for (size_t h = 0; h < self->n; h++) {
        struct tally__profile_hook *hook = &profile->hooks[h];

        (void)snprintf(hook->name, sizeof hook->name, "%s", self->candidates[h]->table.name);
        hook->exchanges = 1;
        for (size_t b = 0; b < self->n_buckets; b++) {
            const struct tally__auto_probe *probe = &self->probes[h * self->n_params + b];
            bool is_known = probe->bytes > 0;

            /* A bucket that was not coded travels as it is. */
            hook->coding[b].bytes = is_known ? probe->bytes : self->slots[b].bytes;
            hook->coding[b].code_s = probe->code_s;
            hook->exchanges = fmax(hook->exchanges, probe->exchanges);
        }
    }
}

static int fill_profile(struct tally__auto *self)
{
    struct tally__profile *profile = &self->profile;
    const struct tally__link link = profile->link;
    const struct tally__link memory = profile->memory;

    if (profile->n_buckets != self->n_buckets) {
        tally__profile_free(profile);
        TRY(tally__profile_make(self->n_buckets, self->n, profile));
        profile->link = link;
        profile->memory = memory;
    }
    (void)snprintf(profile->library, sizeof profile->library, "%s", tally_version());
    (void)snprintf(profile->source, sizeof profile->source, "auto");
    profile->hosts = self->hosts;
    profile->ranks_per_host = self->ranks_per_host;
    profile->lanes = (double)self->lanes;
    profile->forward_s = mean(self->forward_s, self->n_times);
    profile->backward_s = mean(self->backward_s, self->n_times);
    profile->spread_s = find_spread(self);
    fill_coding(self, profile);
    for (size_t b = 0; b < self->n_buckets; b++) {
        const struct tally__auto_slot *slot = &self->slots[b];

        profile->buckets[b].bytes = slot->bytes;
        profile->buckets[b].ready_s = fmin(mean(slot->ready_s, slot->n_ready), profile->backward_s);
    }
    if (self->n_probe_times > 0) {
        profile->cpu_share = find_share(self, profile->backward_s);
    }
    profile->cpu_s_per_byte = find_cpu_per_byte(self, profile);
    tally__auto_fill_errors(self);
    return TALLY_OK;
}

/* ---- maxima ---- */

/* Numbers on their way into an array, or back. */
struct pack {
    double *values; /* NULL: only counts them */
    size_t n;
    bool is_back;
};

static void pass(struct pack *pack, double *field)
{
    if (pack->values && pack->is_back) {
        *field = pack->values[pack->n];
    } else if (pack->values) {
        pack->values[pack->n] = *field;
    }
    pack->n++;
}

static void pass_all(struct tally__auto *self, struct pack *pack)
{
    struct tally__profile *profile = &self->profile;
    /* The slowest line has most seconds per bit. */
    double slowness = profile->link.gbit > 0 ? 1 / profile->link.gbit : 0;

    pass(pack, &profile->forward_s);
    pass(pack, &profile->backward_s);
    pass(pack, &profile->spread_s);
    pass(pack, &profile->cpu_share);
    pass(pack, &profile->cpu_s_per_byte);
    pass(pack, &profile->hosts);
    pass(pack, &profile->ranks_per_host);
    pass(pack, &profile->link.latency_s);
    pass(pack, &profile->link.message_s);
    pass(pack, &profile->memory.latency_s);
    pass(pack, &profile->memory.gbit);
    pass(pack, &slowness);
    profile->link.gbit = slowness > 0 ? 1 / slowness : 0;
    for (size_t b = 0; b < self->n_buckets; b++) {
        pass(pack, &profile->buckets[b].bytes);
        pass(pack, &profile->buckets[b].ready_s);
        pass(pack, &self->sums[b]);
    }
    for (size_t h = 0; h < self->n; h++) {
        pass(pack, &profile->hooks[h].exchanges);
        for (size_t b = 0; b < self->n_buckets; b++) {
            pass(pack, &profile->hooks[h].coding[b].bytes);
            pass(pack, &profile->hooks[h].coding[b].code_s);
            pass(pack, &self->losses[h * self->n_buckets + b]);
        }
    }
}

/* This rank's figures, and room for all of them. */
static int prepare_figures(struct tally__auto *self, double **values)
{
    struct pack pack = {.values = NULL};

    *values = NULL;
    TRY(fill_profile(self));
    if (self->seam.profile) {
        self->seam.profile(self->seam.user, &self->profile);
    }
    pass_all(self, &pack);
    *values = tally__alloc_array(pack.n, sizeof **values, WHAT);
    return *values ? TALLY_OK : TALLY_NOMEM;
}

int tally__auto_gather(struct tally__auto *self, tally_lane *lane)
{
    double *values;
    int rc = tally__auto_agree_memory(self, lane, prepare_figures(self, &values));
    struct pack pack = {.values = values};

    if (rc == TALLY_OK) {
        pass_all(self, &pack);
        rc = tally__auto_maxima(lane, values, pack.n);
    }
    pack = (struct pack){.values = values, .is_back = true};
    if (rc == TALLY_OK) {
        pass_all(self, &pack);
        tally__auto_finish_errors(self);
        self->has_profile = true;
    }
    tally__free(values);
    return rc;
}

/* ---- choosing ---- */

/* Rank 0's choice and its gain, on its way to all ranks. */
static int choose(struct tally__auto *self, struct tally__offer *offer)
{
    struct tally__question question = tally__auto_question(self);
    struct tally__answer now;
    struct tally__answer then;

    TRY(tally__choice_replay(&question, tally__auto_by_bucket(self, self->settled), &now));
    TRY(tally__choose(&question, self->of_buckets, &then));
    for (size_t i = 0; i < self->n_params; i++) {
        self->proposal[i] = self->home[i] >= 0 ? self->of_buckets[self->home[i]] : 0;
    }
    offer->gain = now.step_s > 0 ? (now.step_s - then.step_s) / now.step_s : 0;
    offer->is_more_exact = self->has_errors && then.error < now.error;
    return TALLY_OK;
}

int tally__auto_most_gain(const struct tally__auto *self, double *gain)
{
    struct tally__question question = tally__auto_question(self);
    struct tally__answer now;

    TRY(tally__choice_replay(&question, tally__auto_by_bucket(self, self->settled), &now));
    *gain = now.step_s > 0 ? (now.step_s - now.least_s) / now.step_s : 0;
    return TALLY_OK;
}

/* All ranks have the same figures: a rank that would choose otherwise computes otherwise. */
static void compare(const struct tally__auto *self, const unsigned char *own)
{
    if (memcmp(own, self->proposal, self->n_params) != 0) {
        tally__log(TALLY_LOG_WARN,
                   "auto: rank %d would have chosen otherwise than rank 0 from the same figures; "
                   "rank 0's choice counts",
                   self->rank);
    }
}

int tally__auto_propose(struct tally__auto *self, tally_lane *lane, struct tally__offer *offer)
{
    unsigned char *own = tally__alloc_array(self->n_params, 1, WHAT);
    int rc = own ? choose(self, offer) : TALLY_NOMEM;

    rc = tally__auto_agree_memory(self, lane, rc);
    if (rc == TALLY_OK) {
        memcpy(own, self->proposal, self->n_params);
        rc = tally_lane_broadcast(lane, self->proposal, self->n_params, 0);
    }
    if (rc == TALLY_OK) {
        rc = tally_lane_broadcast(lane, offer, sizeof *offer, 0);
    }
    if (rc == TALLY_OK) {
        compare(self, own);
    }
    tally__free(own);
    for (size_t i = 0; rc == TALLY_OK && i < self->n_params; i++) {
        if (self->proposal[i] >= self->n) {
            return tally__fail(TALLY_INTERNAL, "rank 0 chose a candidate that there is not");
        }
    }
    return rc;
}
