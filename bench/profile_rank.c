/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the profile bench, as a separate process. The application's thread computes, or
 * sleeps, announces gradients and waits; the lane codes and communicates. Figures are maxima over
 * ranks, so that all ranks have the same profile; rank 0 writes it.
 */
#include "bench/profile_rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tally.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/profile_steps.h"
#include "bench/timing.h"

#define OPEN_TIMEOUT_S 120.0
#define OPERATION_TIMEOUT_S 600.0
#define N_BARRIERS 65
#define N_COPIES 5
/* Below this share of its CPU, what backward loses to communication is noise. */
#define LEAST_SHARE 0.05

/* ---- links ---- */

/* The median time of a barrier. */
static int time_barrier(tally_group *group, double *seconds)
{
    double samples[N_BARRIERS];

    for (int i = 0; i < N_BARRIERS; i++) {
        uint64_t start_ns = tally__now_ns();

        TRY(profile_barrier(group));
        samples[i] = (double)(tally__now_ns() - start_ns) * 1e-9;
    }
    *seconds = bench_quantile(samples, N_BARRIERS, 0.5);
    return TALLY_OK;
}

/* The rate of copies, in Gbit/s. */
static double copy_gbit(const struct profile_work *work)
{
    double samples[N_COPIES];

    for (int i = 0; i < N_COPIES; i++) {
        uint64_t start_ns = tally__now_ns();

        memcpy(work->data, work->source, work->input.n * sizeof *work->data);
        samples[i] = (double)(tally__now_ns() - start_ns) * 1e-9;
    }
    return (double)(work->input.n * sizeof *work->data) * 8e-9 /
           bench_quantile(samples, N_COPIES, 0.5);
}

/* The rate of the line: all bytes of a step without a backward, in the time that neither coding nor
 * flights explain. */
static double find_gbit(const struct tally__profile *profile, const struct profile_times *times)
{
    struct tally__cluster cluster = tally__profile_cluster(profile);
    double line_s = 0;
    double bytes = 0;

    for (size_t b = 0; b < profile->n_buckets; b++) {
        const struct tally__coding *coding = &profile->hooks[0].coding[b];
        const struct tally__parcel parcel = {profile->buckets[b].bytes, coding->bytes,
                                             coding->code_s, 1};
        struct tally__load load = tally__load_of(&cluster, TALLY__FLAT, &parcel);

        line_s += times->bucket_s[b] - load.code_s - load.rounds_s;
        bytes += profile->hosts > 1 ? load.host_bytes : load.rank_bytes;
    }
    return line_s > 0 ? bytes * 8e-9 / line_s : 0;
}

static int measure_links(struct profile_work *work, struct tally__profile *profile)
{
    double n_ranks = profile->hosts * profile->ranks_per_host;
    double round_s;
    double alone_s;

    TRY(time_barrier(work->group, &round_s));
    TRY(time_barrier(work->alone, &alone_s));
    profile->memory = (struct tally__link){alone_s, 0, copy_gbit(work)};
    if (profile->hosts > 1) {
        double flights = tally__round_flights(n_ranks, n_ranks - profile->ranks_per_host);

        profile->link.latency_s = round_s / flights;
        /* An upper bound: handling a message is a part of its flight, on both sides. */
        profile->link.message_s = profile->link.latency_s / 2 / (n_ranks - 1);
    } else {
        profile->memory.latency_s = round_s;
    }
    return profile_max(work, &profile->memory.latency_s, 1);
}

/* ---- backward ---- */

/* Backward alone; then beside a lane that codes for a hook without sending; then beside the
 * all-reduce. */
static int measure_backward(struct profile_work *work, struct tally__profile *profile)
{
    struct profile_times alone;
    struct profile_times coding;
    struct profile_times sending;
    double first = (double)work->input.params[work->input.n_params - 1].n / (double)work->input.n;
    double lost_s;

    TRY(profile_steps(work, NULL, PROFILE_BACKWARD, &alone));
    TRY(profile_steps(work, &work->coder, PROFILE_BESIDE, &coding));
    TRY(profile_steps(work, &work->plain, PROFILE_BESIDE, &sending));
    /* Times count from the first announcement, when the last parameter's gradient is complete. */
    profile->forward_s = first * alone.backward_s;
    profile->backward_s = (1 - first) * alone.backward_s;
    profile->spread_s = alone.spread_s;
    if (work->bench->is_timed) {
        return TALLY_OK; /* it needs no CPU, so it loses none */
    }
    lost_s = coding.backward_s - alone.backward_s;
    profile->cpu_share =
        coding.comm_s > 0 ? fmin(fmax(lost_s / fmin(coding.comm_s, coding.backward_s), 0), 1) : 0;
    if (profile->cpu_share < LEAST_SHARE) {
        profile->cpu_share = 0;
        return TALLY_OK;
    }
    lost_s = fmax(sending.backward_s - alone.backward_s, 0) / profile->cpu_share;
    profile->cpu_s_per_byte =
        sending.wire_bytes > 0
            ? lost_s / (sending.wire_bytes * fmin(1, sending.backward_s / sending.comm_s))
            : 0;
    return TALLY_OK;
}

/* Sets the time at which backward alone would have completed each bucket. */
static void fill_buckets(const struct profile_work *work, const struct profile_times *times,
                         struct tally__profile *profile)
{
    double total_s = profile->forward_s + profile->backward_s;
    double bytes = 0;

    for (size_t b = 0; b < profile->n_buckets; b++) {
        bytes += times->bytes[b];
        profile->buckets[b].bytes = times->bytes[b];
        profile->buckets[b].ready_s =
            fmax(total_s * bytes / (double)(work->input.n * sizeof(float)) - profile->forward_s, 0);
    }
}

/* ---- hooks ---- */

/* A hook's coding in a group of one rank; its bytes, its error and its steps among all ranks. */
static int measure_hook(struct profile_work *work, size_t h, struct tally__profile *profile,
                        struct profile_row *row)
{
    const char *text = work->bench->hooks[h];
    struct tally__profile_hook *hook = &profile->hooks[h];
    double n_ranks = profile->hosts * profile->ranks_per_host;
    struct profile_times alone;
    struct profile_times all;
    struct profile_side side;

    (void)snprintf(hook->name, sizeof hook->name, "%s", text);
    TRY(profile_side_make(work, work->alone, text, &side));
    TRY(profile_steps(work, &side, PROFILE_AT_ONCE, &alone));
    TRY(profile_side_free(&side));
    TRY(profile_side_make(work, work->group, text, &side));
    TRY(profile_error(work, &side, &hook->error));
    TRY(profile_steps(work, &side, PROFILE_OVERLAPPED, &all));
    TRY(profile_side_free(&side));
    hook->exchanges = strstr(text, "powersgd") ? 2 : 1;
    for (size_t b = 0; b < profile->n_buckets; b++) {
        hook->coding[b].code_s = alone.bucket_s[b];
        hook->coding[b].bytes = all.sent[b] * n_ranks / (2 * (n_ranks - 1));
    }
    (void)snprintf(row->hook, sizeof row->hook, "%s", text);
    row->step_ms = 1e3 * all.step_s;
    row->error = hook->error;
    row->wire_bytes = (unsigned long long)all.wire_bytes;
    return TALLY_OK;
}

static int forecast_rows(const struct tally__profile *profile, struct profile_result *result)
{
    struct tally__cluster cluster = tally__profile_cluster(profile);

    for (size_t h = 0; h < profile->n_hooks; h++) {
        const struct tally__way way = {&profile->hooks[h], TALLY__FLAT, 0};
        struct tally__forecast forecast;

        TRY(tally__forecast(profile, &way, &cluster, &forecast));
        result->rows[h].forecast_ms = 1e3 * forecast.step_s;
        result->rows[h].host_bytes = forecast.host_bytes;
    }
    result->n = profile->n_hooks;
    result->hosts = profile->hosts;
    result->gbit = profile->hosts > 1 ? profile->link.gbit : profile->memory.gbit;
    result->latency_us =
        1e6 * (profile->hosts > 1 ? profile->link.latency_s : profile->memory.latency_s);
    result->backward_ms = 1e3 * (profile->forward_s + profile->backward_s);
    result->cpu_share = profile->cpu_share;
    return TALLY_OK;
}

static int write_file(const struct tally__profile *profile, const char *path)
{
    size_t bytes = tally__profile_write(profile, NULL, 0) + 1;
    char *text = tally__alloc(bytes, "a profile");
    FILE *file;
    bool failed;

    TRY(text ? TALLY_OK : TALLY_NOMEM);
    (void)tally__profile_write(profile, text, bytes);
    file = fopen(path, "w");
    failed = !file || fwrite(text, 1, bytes - 1, file) != bytes - 1;
    if (file) {
        failed = fclose(file) != 0 || failed;
    }
    tally__free(text);
    return failed ? tally__fail(TALLY_SYSTEM, "cannot write the profile %s", path) : TALLY_OK;
}

static int measure(struct profile_work *work, struct tally__profile *profile,
                   struct profile_result *result)
{
    struct profile_times at_once;

    (void)snprintf(profile->library, sizeof profile->library, "%s", tally_version());
    (void)snprintf(profile->source, sizeof profile->source, "tally bench profile");
    TRY(profile_count_hosts(work, &profile->hosts, &profile->ranks_per_host));
    profile->lanes = 1;
    TRY(measure_links(work, profile));
    TRY(measure_backward(work, profile));
    for (size_t h = 0; h < profile->n_hooks; h++) {
        TRY(measure_hook(work, h, profile, &result->rows[h]));
    }
    TRY(profile_steps(work, &work->plain, PROFILE_AT_ONCE, &at_once));
    fill_buckets(work, &at_once, profile);
    *(profile->hosts > 1 ? &profile->link.gbit : &profile->memory.gbit) =
        find_gbit(profile, &at_once);
    return forecast_rows(profile, result);
}

/* The process ends after this, so a failure leaves its memory and its group to the system. */
static int measure_in_group(struct profile_work *work, struct profile_result *result)
{
    struct tally__profile profile;
    struct profile_result *made = tally__alloc(sizeof *made, "the profile bench");

    TRY(made ? TALLY_OK : TALLY_NOMEM);
    TRY(profile_work_make(work));
    TRY(tally__profile_make(work->n_buckets, work->bench->n_hooks, &profile));
    TRY(measure(work, &profile, made));
    if (work->rank == 0) {
        *result = *made;
        TRY(work->bench->file ? write_file(&profile, work->bench->file) : TALLY_OK);
    }
    TRY(profile_barrier(work->group));
    tally__profile_free(&profile);
    tally__free(made);
    return profile_work_free(work);
}

int profile_rank(int rank, void *user)
{
    const struct profile_run *run = user;
    struct profile_work work = {.bench = run->bench, .rank = rank};
    const struct rank_group wanted = {.is_launched = run->bench->launch.is_launched,
                                      .rank = rank,
                                      .ranks = run->bench->ranks,
                                      .rendezvous = run->rendezvous,
                                      .lanes = 1,
                                      .open_timeout_s = OPEN_TIMEOUT_S,
                                      .timeout_s = OPERATION_TIMEOUT_S};

    TRY(rank_group_open(&wanted, &work.group));
    TRY(measure_in_group(&work, run->result));
    return tally_group_close(work.group);
}
