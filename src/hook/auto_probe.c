/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measurements of the hook auto: coding a bucket by every candidate without sending it, and the
 * latency and the rate of the line. In jobs; coding on several lanes at once, each with its bucket.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "exchange/reduction.h"
#include "hook/auto.h"

#define WHAT "measuring for the hook auto"

static double since_s(uint64_t start_ns)
{
    return (double)(tally__now_ns() - start_ns) * 1e-9;
}

/* ---- coding ---- */

/* A copy of a bucket that a prober works on. */
struct copy {
    tally_bucket bucket;
    tally_bucket_param *params;
    float *data;
};

static int make_copy(const tally_bucket *from, struct copy *copy)
{
    size_t n = (size_t)from->n_params;

    copy->bucket = *from;
    copy->params = tally__alloc_array(n, sizeof *copy->params, WHAT);
    copy->data = tally__alloc_unset(from->n * sizeof *copy->data, WHAT);
    if (!copy->params || !copy->data) {
        tally__free(copy->params);
        tally__free(copy->data);
        return TALLY_NOMEM;
    }
    memcpy(copy->params, from->params, n * sizeof *copy->params);
    for (size_t k = 0; k < n; k++) {
        size_t first = from->params[k].offset - from->params[0].offset;

        copy->params[k].gradient = (unsigned char *)(copy->data + first);
    }
    copy->bucket.params = copy->params;
    copy->bucket.data = (void *)copy->data;
    return TALLY_OK;
}

static void free_copy(struct copy *copy)
{
    tally__free(copy->params);
    tally__free(copy->data);
}

/* The square of what the prober leaves out, by samples: with feedback its residual, otherwise the
 * difference between the original and what came out. */
static int measure_loss(const struct tally__auto *self, const tally_bucket *original,
                        const struct copy *copy, struct tally__residuals *residuals, double *square)
{
    const struct tally__samples *samples = &self->samples;
    float *left = tally__alloc_array(samples->n, sizeof *left, WHAT);
    int rc = left ? TALLY_OK : TALLY_NOMEM;

    *square = 0;
    for (int k = 0; rc == TALLY_OK && k < original->n_params; k++) {
        const float *before = original->params[k].gradient;
        const float *after = copy->params[k].gradient;
        size_t i = (size_t)original->params[k].index;
        double own = 0;
        size_t e = 0;

        if (residuals) {
            tally_bucket alone = copy->bucket;

            alone.n_ranks = 1;
            alone.divisor = 1;
            rc = tally__samples_residual(samples, &alone, k, residuals, left);
        }
        for (size_t s = samples->first[i]; s < samples->first[i + 1]; s++, e += samples->step[i]) {
            double lost = residuals ? (double)left[s] : (double)after[e] - (double)before[e];

            own += lost * lost;
        }
        *square += own * (double)samples->step[i];
    }
    tally__free(left);
    return rc;
}

/* Codes the copy with one candidate: coding k of the bucket. */
static int code_once(struct tally__auto *self, tally_lane *lane, const tally_bucket *original,
                     struct copy *copy, size_t h, size_t k)
{
    struct tally__reduction *outer = tally__reduction_here();
    struct tally__reduction own = {.wire.dtype = TALLY_F32, .residuals = self->probe_residuals[h]};
    struct tally__auto_probe *probe = &self->probes[h * self->n_params + (size_t)original->index];
    bool feedback = self->probers[h]->table.feedback != 0;
    double code_s;
    uint64_t start_ns;
    int rc;

    if (feedback) {
        TRY(tally__residuals_lend(own.residuals, &copy->bucket));
    }
    memcpy(copy->data, original->data, original->n * sizeof *copy->data);
    tally__reduction_enter(&own);
    start_ns = tally__now_ns();
    rc = tally__hook_reduce_in_subgroup(self->probers[h], lane, self->alone,
                                        TALLY__DIVISOR_OF_GROUP, &copy->bucket);
    code_s = since_s(start_ns);
    if (rc == TALLY_OK) {
        probe->code_s = k == 0 || code_s < probe->code_s ? code_s : probe->code_s;
        probe->bytes = (double)own.counts.offered_bytes;
        probe->exchanges = (double)own.counts.exchanges;
        rc = measure_loss(self, original, copy, feedback ? own.residuals : NULL, &probe->left[k]);
    }
    if (rc == TALLY_OK && !isfinite(probe->left[k])) {
        rc = TALLY_NUMERIC;
    }
    tally__reduction_enter(outer);
    return rc;
}

/* Attaches a prober with residuals of its own. */
static int begin_prober(struct tally__auto *self, size_t h)
{
    if (self->is_probing[h]) {
        return TALLY_OK;
    }
    TRY(tally__residuals_make(self->n_params, &self->probe_residuals[h]));
    if (tally__hook_attach(self->probers[h], self->ddp) != TALLY_OK) {
        tally__residuals_free(self->probe_residuals[h]);
        self->probe_residuals[h] = NULL;
        return TALLY_NOMEM;
    }
    self->is_probing[h] = true;
    return TALLY_OK;
}

int tally__auto_begin_probes(struct tally__auto *self)
{
    int rc = TALLY_OK;

    for (size_t h = 0; rc == TALLY_OK && h < self->n; h++) {
        rc = begin_prober(self, h);
    }
    if (rc != TALLY_OK) {
        tally__auto_end_probes(self);
    }
    return rc;
}

void tally__auto_end_probes(struct tally__auto *self)
{
    for (size_t h = 0; h < self->n; h++) {
        if (self->is_probing[h]) {
            tally__residuals_free(self->probe_residuals[h]);
            self->probers[h]->table.detach(self->probers[h]->state, self->ddp);
        }
        self->probe_residuals[h] = NULL;
        self->is_probing[h] = false;
    }
}

void tally__auto_clear_probes(struct tally__auto *self)
{
    memset(self->probes, 0, self->n * self->n_params * sizeof *self->probes);
    for (size_t i = 0; i < self->n * self->n_params; i++) {
        for (size_t k = 0; k < TALLY__AUTO_PROBES; k++) {
            self->probes[i].left[k] = -1;
        }
    }
    memset(self->squares, 0, self->n_params * sizeof *self->squares);
    memset(self->probe_sums, 0, self->samples.n * sizeof *self->probe_sums);
    self->probe_backward_s = 0;
    self->probe_cpu_s = 0;
    self->n_probe_times = 0;
    self->n_probed = 0;
    self->has_errors = false;
    atomic_store_explicit(&self->saw_infinite, false, memory_order_relaxed);
}

/* Adds the samples of the bucket for one coding, which all candidates share. */
static int add_samples(struct tally__auto *self, const tally_bucket *bucket)
{
    double *square = &self->squares[bucket->index];

    for (int i = 0; i < bucket->n_params; i++) {
        tally__samples_add(&self->samples, &bucket->params[i], self->probe_sums, square);
    }
    /* Some candidates refuse such a bucket, others pass it on. */
    return isfinite(*square) ? TALLY_OK : TALLY_NUMERIC;
}

/* Codes the bucket twice with one candidate, as if the next step had the same gradients; once where
 * the second coding would have the same outcome. */
static int code_twice(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket,
                      struct copy *copy, size_t h)
{
    double *left = self->probes[h * self->n_params + (size_t)bucket->index].left;

    TRY(code_once(self, lane, bucket, copy, h, 0));
    if (self->probers[h]->table.feedback) {
        return code_once(self, lane, bucket, copy, h, 1);
    }
    left[1] = left[0];
    return TALLY_OK;
}

/* The candidates in the order of their costs, as far as these are known; the first one with an
 * error within the budget ends it, since those after it are not better. */
static int code_for_opening(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket)
{
    unsigned char order[TALLY__MOST_CANDIDATES];
    bool is_known = tally__auto_get_order(self, order);
    struct copy copy;
    int rc;

    for (size_t k = 0; k < TALLY__AUTO_OPENING_PROBES; k++) {
        TRY(add_samples(self, bucket));
    }
    TRY(make_copy(bucket, &copy));
    rc = code_twice(self, lane, bucket, &copy, 0);
    for (size_t i = 1; rc == TALLY_OK && i < self->n; i++) {
        rc = code_twice(self, lane, bucket, &copy, order[i]);
        if (is_known && tally__auto_opening_error(self, order[i], bucket) <= self->budget) {
            break;
        }
    }
    free_copy(&copy);
    return rc;
}

static int code_by_all(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket)
{
    struct copy copy;
    int rc = TALLY_OK;

    TRY(add_samples(self, bucket));
    TRY(make_copy(bucket, &copy));
    for (size_t h = 0; rc == TALLY_OK && h < self->n; h++) {
        rc = code_once(self, lane, bucket, &copy, h, (size_t)self->in_phase);
    }
    free_copy(&copy);
    return rc;
}

/* Infinities, NaN and a lack of memory do not fail the step: its end tells the other ranks. */
int tally__auto_code(struct tally__auto *self, tally_lane *lane, const tally_bucket *bucket)
{
    int rc;

    if (!self->is_probing[0]) {
        return TALLY_OK; /* this rank had no memory for it; the end of the step says so */
    }
    rc = (self->is_opening ? code_for_opening : code_by_all)(self, lane, bucket);
    if (rc == TALLY_NUMERIC) {
        atomic_store_explicit(&self->saw_infinite, true, memory_order_relaxed);
    }
    if (rc == TALLY_NOMEM) {
        atomic_store_explicit(&self->lacks_memory, true, memory_order_relaxed);
    }
    return rc == TALLY_NUMERIC || rc == TALLY_NOMEM ? TALLY_OK : rc;
}

/* ---- the line ---- */

/* Rounds that are timed; the sizes of the exchanges, in bytes; and how long the last one must take.
 */
#define N_ROUNDS 8
#define FIRST_BYTES ((size_t)128 << 10)
#define MOST_BYTES ((size_t)16 << 20)
#define LONG_S 0.008
/* Bytes that are copied to time memory. */
#define COPIED_BYTES ((size_t)4 << 20)

static int largest(tally_lane *lane, double *value)
{
    return tally_lane_all_reduce(lane, value, 1, TALLY_F64, TALLY_MAX);
}

/* The shortest round, as the slowest rank saw it. */
static int time_round(tally_lane *lane, double *seconds)
{
    *seconds = INFINITY;
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t start_ns = tally__now_ns();
        double s;

        TRY(tally_lane_barrier(lane));
        s = since_s(start_ns);
        *seconds = s < *seconds ? s : *seconds;
    }
    return largest(lane, seconds);
}

static int time_exchange(tally_lane *lane, float *data, size_t bytes, double *seconds)
{
    uint64_t start_ns;

    memset(data, 0, bytes);
    TRY(tally_lane_barrier(lane));
    start_ns = tally__now_ns();
    TRY(tally_lane_all_reduce(lane, data, bytes / sizeof *data, TALLY_F32, TALLY_SUM));
    *seconds = since_s(start_ns);
    return largest(lane, seconds);
}

/* The rate of exchanges of growing size. The first ones empty the bucket of a shaper; from then on
 * the difference between two is the line's. The last one alone tells less than the line's rate, and
 * more than a difference to one that still went through the shaper's bucket. */
static int find_gbit(const struct tally__auto *self, tally_lane *lane, float *data, size_t most,
                     struct tally__link *link)
{
    const struct tally__cluster cluster = {
        .hosts = self->hosts, .ranks_per_host = self->ranks_per_host, .link = *link};
    double before_s = 0;
    double before = 0;

    for (size_t bytes = most < FIRST_BYTES ? most : FIRST_BYTES;; bytes *= 2) {
        const struct tally__parcel parcel = {(double)bytes, (double)bytes, 0, 1};
        double sent = tally__load_of(&cluster, TALLY__FLAT, &parcel).host_bytes;
        double s;

        TRY(time_exchange(lane, data, bytes, &s));
        link->gbit = sent * 8e-9 / s;
        if (before > 0 && s - before_s > s / 4) {
            link->gbit = fmax(link->gbit, (sent - before) * 8e-9 / (s - before_s));
        }
        if (2 * bytes > most || (s > LONG_S && before > 0)) {
            return TALLY_OK;
        }
        before_s = s;
        before = sent;
    }
}

/* The way through memory: a copy within data, and a round of this rank alone. */
static int measure_memory(const struct tally__auto *self, tally_lane *lane, float *data,
                          size_t bytes, struct tally__link *memory)
{
    tally_lane *alone = tally_lane_for(lane, self->alone);
    size_t half = bytes / 2 < COPIED_BYTES ? bytes / 2 : COPIED_BYTES;
    uint64_t start_ns;
    double s;

    memset(data, 0, 2 * half); /* the copy is timed, not the first use of its pages */
    start_ns = tally__now_ns();
    memcpy((unsigned char *)data + half, data, half);
    s = since_s(start_ns);
    memory->gbit = s > 0 ? (double)half * 8e-9 / s : 0;
    start_ns = tally__now_ns();
    TRY(alone ? tally_lane_barrier(alone) : TALLY_ARG);
    memory->latency_s = since_s(start_ns);
    return TALLY_OK;
}

int tally__auto_measure_line(struct tally__auto *self, tally_lane *lane,
                             struct tally__profile *profile)
{
    double n_ranks = (double)self->n_ranks;
    double flights = tally__round_flights(n_ranks, n_ranks - self->ranks_per_host);
    double total = 0;
    double round_s = 0;
    size_t most;
    float *data;
    int rc;

    for (size_t b = 0; b < self->n_buckets; b++) {
        total += self->slots[b].bytes;
    }
    for (size_t i = 0; i < self->n_params && self->n_buckets == 0; i++) {
        total += (double)(tally_ddp_param_count(self->ddp, (int)i) * sizeof *data);
    }
    /* A line that carries little is measured with little. */
    most = total > (double)MOST_BYTES ? MOST_BYTES : ((size_t)total + 8192) / 64 * 64;
    data = tally__alloc_unset(most, WHAT);
    rc = tally__auto_agree_memory(self, lane, data ? TALLY_OK : TALLY_NOMEM);
    if (rc == TALLY_OK) {
        rc = time_round(lane, &round_s);
    }
    if (rc == TALLY_OK) {
        profile->link.latency_s = flights > 0 ? round_s / flights : round_s;
        profile->link.message_s = profile->link.latency_s / 2 / (n_ranks - 1);
        rc = find_gbit(self, lane, data, most, &profile->link);
    }
    if (rc == TALLY_OK) {
        rc = measure_memory(self, lane, data, most, &profile->memory);
    }
    tally__free(data);
    return rc;
}

int tally__auto_count_hosts(struct tally__auto *self, tally_lane *lane)
{
    size_t n = (size_t)self->n_ranks;
    struct tally__machine *machines = tally__alloc_array(n, sizeof *machines, WHAT);
    size_t *bytes = tally__alloc_array(n, sizeof *bytes, WHAT);
    struct tally__machine own;
    int rc = tally__auto_agree_memory(self, lane, machines && bytes ? TALLY_OK : TALLY_NOMEM);

    tally__machine_here(&own);
    for (size_t r = 0; rc == TALLY_OK && r < n; r++) {
        bytes[r] = sizeof own;
    }
    if (rc == TALLY_OK) {
        rc = tally_lane_all_gather(lane, &own, bytes, machines);
    }
    self->hosts = 0;
    self->ranks_per_host = 1;
    for (size_t r = 0; rc == TALLY_OK && r < n; r++) {
        double n_same = 0;
        size_t first = n;

        for (size_t s = n; s-- > 0;) {
            if (tally__machine_is_same(&machines[r], &machines[s])) {
                first = s;
                n_same++;
            }
        }
        self->hosts += first == r;
        self->ranks_per_host = n_same > self->ranks_per_host ? n_same : self->ranks_per_host;
    }
    tally__free(machines);
    tally__free(bytes);
    return rc;
}
