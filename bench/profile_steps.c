/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the profile bench. The application's thread of a rank enters. */
#include "bench/profile_steps.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/timing.h"

#define WHAT "the profile bench"
/* Steps before the first that counts. */
#define N_WARM_UP 3

/* ---- all ranks ---- */

static int finish(int rc, tally_future *const *future)
{
    if (rc == TALLY_OK) {
        rc = tally_future_wait(*future);
        tally_future_free(*future);
    }
    return rc;
}

int profile_barrier(tally_group *group)
{
    tally_future *future;

    return finish(tally_barrier(group, &future), &future);
}

int profile_max(struct profile_work *work, double *values, size_t n)
{
    tally_future *future;

    return finish(tally_all_reduce(work->group, values, n, TALLY_F64, TALLY_MAX, &future), &future);
}

int profile_count_hosts(struct profile_work *work, double *hosts, double *ranks_per_host)
{
    size_t n = (size_t)tally_group_size(work->group);
    struct tally__machine *machines = tally__alloc_array(n, sizeof *machines, WHAT);
    size_t *bytes = tally__alloc_array(n, sizeof *bytes, WHAT);
    struct tally__machine own;
    tally_future *future;
    double n_hosts = 0;
    double most = 0;
    int rc = machines && bytes ? TALLY_OK : TALLY_NOMEM;

    tally__machine_here(&own);
    for (size_t r = 0; rc == TALLY_OK && r < n; r++) {
        bytes[r] = sizeof own;
    }
    if (rc == TALLY_OK) {
        rc = finish(tally_all_gather(work->group, &own, bytes, machines, &future), &future);
    }
    for (size_t r = 0; rc == TALLY_OK && r < n; r++) {
        double n_same = 0;
        size_t first = n;

        for (size_t s = n; s-- > 0;) {
            if (tally__machine_is_same(&machines[r], &machines[s])) {
                first = s;
                n_same++;
            }
        }
        n_hosts += first == r;
        most = n_same > most ? n_same : most;
    }
    tally__free(machines);
    tally__free(bytes);
    *hosts = n_hosts;
    *ranks_per_host = most;
    return rc;
}

/* ---- the model ---- */

int profile_side_make(struct profile_work *work, tally_group *group, const char *hook,
                      struct profile_side *side)
{
    size_t n_params = work->input.n_params;
    tally_param *params = tally__alloc_array(n_params, sizeof *params, WHAT);
    tally_ddp_config config;
    int rc;

    side->gradients = tally__alloc_array(n_params, sizeof *side->gradients, WHAT);
    TRY(params && side->gradients ? TALLY_OK : TALLY_NOMEM);
    for (size_t p = 0; p < n_params; p++) {
        const struct hooks_param *param = &work->input.params[p];

        params[p] = (tally_param){.size = sizeof *params,
                                  .name = param->name,
                                  .n_dims = param->n_dims,
                                  .shape = param->shape,
                                  .dtype = TALLY_F32,
                                  .data = work->data + param->first};
    }
    tally_ddp_config_init(&config, sizeof config);
    config.bucket_cap_bytes = work->bench->bucket_bytes;
    config.keep_parameters = 1;
    rc = tally_ddp_create(group, params, n_params, &config, &side->ddp);
    tally__free(params);
    TRY(rc);
    TRY(tally_ddp_set_hook(side->ddp, hook));
    for (size_t p = 0; p < n_params; p++) {
        side->gradients[p] = tally_ddp_grad(side->ddp, (int)p);
    }
    return TALLY_OK;
}

int profile_side_free(struct profile_side *side)
{
    TRY(tally_ddp_free(side->ddp));
    tally__free(side->gradients);
    return TALLY_OK;
}

/* Every parameter has its part of backward, by its size. All ranks have the same work. */
static int plan_backward(struct profile_work *work)
{
    double unit_ns = 1; /* a timed backward counts nanoseconds */
    double n_units;
    size_t n_before = 0;
    uint64_t given = 0;

    work->units = tally__alloc_array(work->input.n_params, sizeof *work->units, WHAT);
    TRY(work->units ? TALLY_OK : TALLY_NOMEM);
    if (!work->bench->is_timed) {
        TRY(backward_create(&work->backward));
        TRY(profile_barrier(work->group));
        unit_ns = backward_unit_ns(&work->backward);
        TRY(profile_max(work, &unit_ns, 1));
    }
    n_units = work->bench->backward_ms * 1e6 / unit_ns;
    for (size_t p = work->input.n_params; p-- > 0;) {
        uint64_t until;

        n_before += work->input.params[p].n;
        until = (uint64_t)(n_units * ((double)n_before / (double)work->input.n));
        work->units[p] = until - given;
        given = until;
    }
    return TALLY_OK;
}

int profile_work_make(struct profile_work *work)
{
    tally_ddp_stats stats = {.size = sizeof stats};

    TRY(tally_group_split(work->group, work->rank, 0, &work->alone));
    TRY(hooks_input_create(work->bench->bytes / sizeof(float), &work->input));
    work->data = tally__alloc_array(work->input.n, sizeof *work->data, WHAT);
    work->source = tally__alloc_array(work->input.n, sizeof *work->source, WHAT);
    TRY(work->data && work->source ? TALLY_OK : TALLY_NOMEM);
    for (size_t p = 0; p < work->input.n_params; p++) {
        const struct hooks_param *param = &work->input.params[p];

        hooks_input_fill(param, work->rank, 0, param->n, work->source + param->first);
    }
    TRY(plan_backward(work));
    TRY(profile_side_make(work, work->group, "allreduce", &work->plain));
    TRY(profile_side_make(work, work->alone, "int8", &work->coder));
    TRY(tally_ddp_get_stats(work->plain.ddp, &stats));
    work->n_buckets = stats.n_buckets;
    return work->n_buckets <= PROFILE_MAX_BUCKETS
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "%zu buckets are more than %d: use larger ones",
                             work->n_buckets, PROFILE_MAX_BUCKETS);
}

int profile_work_free(struct profile_work *work)
{
    TRY(profile_side_free(&work->coder));
    TRY(profile_side_free(&work->plain));
    TRY(tally_group_close(work->alone));
    backward_free(&work->backward);
    tally__free(work->units);
    tally__free(work->data);
    tally__free(work->source);
    hooks_input_free(&work->input);
    return TALLY_OK;
}

/* ---- one step ---- */

static void write_gradients(const struct profile_work *work, const struct profile_side *side)
{
    for (size_t p = 0; p < work->input.n_params; p++) {
        const struct hooks_param *param = &work->input.params[p];

        memcpy(side->gradients[p], work->source + param->first, param->n * sizeof *work->source);
    }
}

static void sleep_until(uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / TALLY__NS_PER_SECOND),
                                   .tv_nsec = (long)(until_ns % TALLY__NS_PER_SECOND)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

static int announce_all(const struct profile_work *work, const struct profile_side *side)
{
    for (size_t p = work->input.n_params; p-- > 0;) {
        TRY(tally_ddp_grad_ready(side->ddp, (int)p));
    }
    return TALLY_OK;
}

/* Backward; with announces, each gradient is announced when it is complete. */
static int go_backward(struct profile_work *work, const struct profile_side *announces)
{
    uint64_t until_ns = tally__now_ns();

    for (size_t p = work->input.n_params; p-- > 0;) {
        until_ns += work->units[p];
        if (work->bench->is_timed) {
            sleep_until(until_ns);
        } else {
            backward_burn(&work->backward, work->units[p]);
        }
        if (announces) {
            TRY(tally_ddp_grad_ready(announces->ddp, (int)p));
        }
    }
    return TALLY_OK;
}

static int take_step(struct profile_work *work, const struct profile_side *side,
                     enum profile_kind kind, double *backward_s)
{
    uint64_t start_ns;

    if (kind == PROFILE_BESIDE || kind == PROFILE_AT_ONCE) {
        TRY(announce_all(work, side));
    }
    start_ns = tally__now_ns();
    if (kind != PROFILE_AT_ONCE) {
        TRY(go_backward(work, kind == PROFILE_OVERLAPPED ? side : NULL));
    }
    *backward_s = (double)(tally__now_ns() - start_ns) * 1e-9;
    return kind == PROFILE_BACKWARD ? TALLY_OK : tally_ddp_wait(side->ddp);
}

/* ---- many steps ---- */

static double spread_of(const double *samples, size_t n, double *mean)
{
    double sum = 0;
    double squares = 0;

    for (size_t i = 0; i < n; i++) {
        sum += samples[i];
        squares += samples[i] * samples[i];
    }
    *mean = sum / (double)n;
    return sqrt(fmax(squares / (double)n - *mean * *mean, 0));
}

static int note_buckets(const struct profile_work *work, const struct profile_side *side,
                        bool is_first, struct profile_times *times)
{
    for (size_t b = 0; b < work->n_buckets; b++) {
        tally_bucket_stats stats = {.size = sizeof stats};
        double taken_s;

        TRY(tally_ddp_get_bucket_stats(side->ddp, b, &stats));
        taken_s = stats.done_s - stats.start_s;
        times->bytes[b] = (double)stats.bytes;
        times->sent[b] = (double)stats.wire_bytes;
        times->bucket_s[b] =
            is_first || taken_s < times->bucket_s[b] ? taken_s : times->bucket_s[b];
    }
    return TALLY_OK;
}

/* Medians of this rank's steps, then maxima over ranks. */
static int sum_up(struct profile_work *work, double samples[3][PROFILE_MAX_STEPS],
                  struct profile_times *times)
{
    size_t n = work->bench->n_steps;
    double mean;

    times->spread_s = spread_of(samples[0], n, &mean);
    TRY(profile_max(work, samples[0], n)); /* a step ends with its slowest rank */
    times->step_s = bench_quantile(samples[0], n, 0.5);
    times->backward_s = bench_quantile(samples[1], n, 0.5);
    times->comm_s = bench_quantile(samples[2], n, 0.5);
    TRY(profile_max(work, &times->backward_s, 1));
    TRY(profile_max(work, &times->spread_s, 1));
    TRY(profile_max(work, &times->comm_s, 1));
    return profile_max(work, times->bucket_s, work->n_buckets);
}

int profile_steps(struct profile_work *work, const struct profile_side *side,
                  enum profile_kind kind, struct profile_times *times)
{
    double samples[3][PROFILE_MAX_STEPS] = {{0}};
    tally_ddp_stats stats = {.size = sizeof stats};

    *times = (struct profile_times){0};
    for (size_t step = 0; step < N_WARM_UP + work->bench->n_steps; step++) {
        size_t at = step < N_WARM_UP ? 0 : step - N_WARM_UP;
        uint64_t start_ns;

        if (side) {
            write_gradients(work, side);
        }
        TRY(profile_barrier(work->group));
        start_ns = tally__now_ns();
        TRY(take_step(work, side, kind, &samples[1][at]));
        samples[0][at] = (double)(tally__now_ns() - start_ns) * 1e-9;
        if (side) {
            TRY(tally_ddp_get_stats(side->ddp, &stats));
            samples[2][at] = stats.comm_s;
            TRY(note_buckets(work, side, at == 0, times));
        }
    }
    times->wire_bytes = (double)stats.wire_bytes;
    return sum_up(work, samples, times);
}

/* Adds the means of a step to the sums. */
static void add_means(const struct profile_work *work, const struct profile_side *side,
                      double *sums)
{
    for (size_t p = 0; p < work->input.n_params; p++) {
        const struct hooks_param *param = &work->input.params[p];

        for (size_t i = 0; i < param->n; i++) {
            sums[param->first + i] += (double)side->gradients[p][i];
        }
    }
}

static double compare(const struct profile_work *work, const double *sums, double *exact)
{
    double n_steps = (double)work->bench->n_steps;
    double off = 0;
    double norm = 0;

    for (size_t p = 0; p < work->input.n_params; p++) {
        const struct hooks_param *param = &work->input.params[p];

        hooks_input_mean(param, tally_group_size(work->group), 0, param->n, exact + param->first);
    }
    for (size_t i = 0; i < work->input.n; i++) {
        double wanted = n_steps * exact[i];

        off += (sums[i] - wanted) * (sums[i] - wanted);
        norm += wanted * wanted;
    }
    return sqrt(off / norm);
}

int profile_error(struct profile_work *work, const struct profile_side *side, double *error)
{
    double *sums = tally__alloc_array(work->input.n, sizeof *sums, WHAT);
    double *exact = tally__alloc_array(work->input.n, sizeof *exact, WHAT);
    double unused;

    TRY(sums && exact ? TALLY_OK : TALLY_NOMEM);
    for (size_t step = 0; step < work->bench->n_steps; step++) {
        write_gradients(work, side);
        TRY(take_step(work, side, PROFILE_AT_ONCE, &unused));
        add_means(work, side, sums);
    }
    *error = compare(work, sums, exact);
    tally__free(sums);
    tally__free(exact);
    return isfinite(*error) ? TALLY_OK
                            : tally__fail(TALLY_INTERNAL, "the sum of the means is not a number");
}
