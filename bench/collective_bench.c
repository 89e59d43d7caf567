/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the collective bench: for every size some rounds, in each of which every side is
 * measured once; then the medians of all rounds together. Ranks and peers are processes of their
 * own, and here is one thread that collects; or this is one of the ranks that a launcher has
 * started, and every one of them collects.
 */
#include "bench/collective_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "bench/rank_team.h"
#include "bench/timing.h"

#define N_ROUNDS 3
#define TIMEOUT_S 600.0

/* Per round, so that there are at least 12 times in all. */
#define MIN_REPEATS 4

struct samples {
    size_t n;
    double us[N_ROUNDS * COLLECTIVE_MAX_REPEATS];
};

/* Everything taken for one line of the report. */
struct point {
    struct samples times[COLLECTIVE_N_TIMES];
    struct samples two_ranks;
    struct samples peers[N_PEERS];
    struct peer_times peer[N_PEERS]; /* of the last round */
};

static int check(const struct collective_bench *bench)
{
    char names[128] = "";
    size_t used = 0;

    for (size_t i = 0; i < n_collective_ops; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, " %s", collective_ops[i].name);
    }
    if (!collective_op_find(bench->op)) {
        return tally__fail(TALLY_ARG, "unknown op '%s'; accepted:%s", bench->op, names);
    }
    for (int p = 0; p < N_PEERS; p++) {
        if (bench->peers[p] && strcmp(bench->op, "all_reduce") != 0) {
            return tally__fail(TALLY_ARG, "peers are measured for all_reduce only, not for %s",
                               bench->op);
        }
        if (bench->peers[p] && bench->launch.is_launched) {
            return tally__fail(TALLY_ARG, "peers are not measured under a launcher");
        }
    }
    if (bench->compare_two && bench->launch.is_launched) {
        return tally__fail(TALLY_ARG, "two ranks cannot be chosen of those that were launched");
    }
    for (size_t i = 0; i < bench->n_ranks; i++) {
        if (bench->ranks[i] < 1 || bench->ranks[i] > PATTERN_MAX_RANKS) {
            return tally__fail(TALLY_ARG, "%d ranks are not in 1..%d", bench->ranks[i],
                               PATTERN_MAX_RANKS);
        }
    }
    for (size_t i = 0; i < bench->n_bytes; i++) {
        if (bench->bytes[i] == 0 || bench->bytes[i] % sizeof(float) != 0) {
            return tally__fail(TALLY_ARG, "%zu bytes are no whole number of 4-byte elements",
                               bench->bytes[i]);
        }
    }
    return TALLY_OK;
}

/* Adds one round's times: for each repetition from the first start to the last end. */
static void add_spans(const struct collective_run *run, enum collective_time what,
                      struct samples *samples)
{
    const struct collective_record *records = run->board.records;

    for (uint32_t i = 0; i < records[0].n[what]; i++) {
        struct collective_span all = records[0].spans[what][i];

        for (int r = 1; r < run->ranks; r++) {
            const struct collective_span *span = &records[r].spans[what][i];

            all.start_ns = span->start_ns < all.start_ns ? span->start_ns : all.start_ns;
            all.end_ns = span->end_ns > all.end_ns ? span->end_ns : all.end_ns;
        }
        samples->us[samples->n++] = (double)(all.end_ns - all.start_ns) * 1e-3;
    }
}

/* Runs the ranks once; times has room for each kind that is measured. */
static int run_ranks(const struct rank_launch *launch, struct collective_run *run,
                     struct samples *times)
{
    static unsigned n_runs;
    int n_times = run->only_call ? 1 : COLLECTIVE_N_TIMES;
    int rc;

    (void)snprintf(run->rendezvous, sizeof run->rendezvous, "@tally-bench-%ld-%u", (long)getpid(),
                   n_runs++);
    TRY(rank_board_create(run->ranks, sizeof(struct collective_record), &run->board));
    rc = launch->is_launched ? collective_rank(launch->rank, run)
                             : rank_team_run(run->ranks, collective_rank, run, TIMEOUT_S);
    for (int t = 0; rc == TALLY_OK && t < n_times; t++) {
        add_spans(run, (enum collective_time)t, &times[t]);
    }
    rank_board_free(&run->board);
    return rc;
}

static int run_peers(const struct collective_bench *bench, const struct collective_run *run,
                     struct point *point)
{
    for (int p = 0; p < N_PEERS; p++) {
        struct samples *samples = &point->peers[p];
        struct peer_times *times = &point->peer[p];

        if (!bench->peers[p] || !peer_exists((enum peer)p)) {
            continue;
        }
        TRY(peer_run((enum peer)p, run->ranks, run->bytes, &run->limits, TIMEOUT_S, times));
        memcpy(samples->us + samples->n, times->us, times->n * sizeof *samples->us);
        samples->n += times->n;
    }
    return TALLY_OK;
}

/* Every side once, in turn. */
static int run_round(const struct collective_bench *bench, struct collective_run run,
                     struct point *point)
{
    TRY(run_ranks(&bench->launch, &run, point->times));
    if (bench->compare_two && run.ranks > 2) {
        struct collective_run two = run;

        two.bytes = run.bytes / sizeof(float) * (size_t)run.ranks / 2 * sizeof(float);
        two.ranks = 2;
        two.only_call = true;
        TRY(run_ranks(&bench->launch, &two, &point->two_ranks));
    }
    return run_peers(bench, &run, point);
}

static double median(struct samples *samples)
{
    return samples->n > 0 ? bench_quantile(samples->us, samples->n, 0.5) : (double)NAN;
}

static void conclude(const struct collective_run *run, struct point *point,
                     struct collective_result *result)
{
    struct samples *call = &point->times[COLLECTIVE_TIME_CALL];

    result->op = run->op->name;
    result->ranks = run->ranks;
    result->bytes = run->bytes;
    result->heap = run->heap;
    result->n_samples = call->n;
    result->us = median(call);
    result->us_p99 = bench_quantile(call->us, call->n, 0.99);
    result->algbw_gbps = (double)run->bytes / result->us * 1e-3;
    result->busbw_gbps = result->algbw_gbps * collective_op_bus_factor(run->op, run->ranks);
    result->copy_us = median(&point->times[COLLECTIVE_TIME_COPY]);
    result->memcpy_us = median(&point->times[COLLECTIVE_TIME_MEMCPY]);
    result->submit_us = median(&point->times[COLLECTIVE_TIME_SUBMIT]);
    result->two_rank_us = median(&point->two_ranks);
    for (int p = 0; p < N_PEERS; p++) {
        result->peer_us[p] = median(&point->peers[p]);
        result->peer_version[p] = point->peers[p].n > 0 ? point->peer[p].version : NULL;
    }
}

static int measure_point(const struct collective_bench *bench, int ranks, size_t bytes,
                         struct point *point)
{
    const struct collective_run run = {.op = collective_op_find(bench->op),
                                       .ranks = ranks,
                                       .bytes = bytes,
                                       .heap = bench->heap,
                                       .only_call = bench->launch.is_launched,
                                       .is_launched = bench->launch.is_launched,
                                       .limits = {.min = MIN_REPEATS,
                                                  .max = COLLECTIVE_MAX_REPEATS,
                                                  .seconds = bench->seconds / N_ROUNDS}};
    struct collective_result result;

    memset(point, 0, sizeof *point);
    for (int round = 0; round < N_ROUNDS; round++) {
        TRY(run_round(bench, run, point));
    }
    if (bench->launch.rank == 0) {
        conclude(&run, point, &result);
        bench->report(&result, bench->user);
    }
    return TALLY_OK;
}

int collective_bench_run(const struct collective_bench *bench)
{
    struct point *point;
    int rc = TALLY_OK;

    TRY(check(bench));
    point = tally__alloc(sizeof *point, "the times of the collective bench");
    TRY(point ? TALLY_OK : TALLY_NOMEM);
    for (size_t r = 0; r < bench->n_ranks && rc == TALLY_OK; r++) {
        for (size_t b = 0; b < bench->n_bytes && rc == TALLY_OK; b++) {
            rc = measure_point(bench, bench->ranks[r], bench->bytes[b], point);
        }
    }
    tally__free(point);
    return rc;
}
