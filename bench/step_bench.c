/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the step bench: several teams of ranks, one after the other, so that one unlucky
 * placement of memory does not decide; then the medians of all their steps. Ranks are processes of
 * their own; here is one thread that collects.
 */
#include "bench/step_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "bench/bind.h"
#include "bench/pattern.h"
#include "bench/rank_team.h"
#include "bench/step_rank.h"
#include "bench/timing.h"

#define MAX_TEAMS 3
/* Time limit of a team without its backward passes; more than any team needs. */
#define TIMEOUT_S 600.0

/* Everything taken, in milliseconds. */
struct samples {
    size_t n;
    size_t n_teams;
    double create[MAX_TEAMS]; /* of the slowest rank */
    double all[STEP_N_SIDES][STEP_MAX_STEPS];
    double backward[STEP_MAX_STEPS]; /* of the overlapped step */
    double exposed[STEP_MAX_STEPS];
    double in_wait[STEP_MAX_STEPS];  /* after the hook, of the rank that saw most */
    double update[STEP_MAX_STEPS];   /* on call, without what came before */
    double added[2][STEP_MAX_STEPS]; /* by the optimizer to the overlapped step: on call, behind */
};

static int check(const struct step_bench *bench)
{
    if (bench->ranks < 1 || bench->ranks > PATTERN_MAX_RANKS) {
        return tally__fail(TALLY_ARG, "%d ranks are not in 1..%d", bench->ranks, PATTERN_MAX_RANKS);
    }
    if (bench->bytes == 0 || bench->bytes % sizeof(float) != 0) {
        return tally__fail(TALLY_ARG, "%zu bytes are no whole number of 4-byte elements",
                           bench->bytes);
    }
    if (bench->n_params < 1 || bench->n_params > bench->bytes / sizeof(float)) {
        return tally__fail(TALLY_ARG, "%zu parameters cannot share %zu elements", bench->n_params,
                           bench->bytes / sizeof(float));
    }
    if (bench->n_steps < 1 || bench->n_steps > STEP_MAX_STEPS) {
        return tally__fail(TALLY_ARG, "%zu steps are not in 1..%d", bench->n_steps, STEP_MAX_STEPS);
    }
    return TALLY_OK;
}

static double ms(uint64_t from_ns, uint64_t to_ns)
{
    return ((double)to_ns - (double)from_ns) * 1e-6;
}

/* All ranks together: the first start, the last end of a backward, the last end. */
static struct step_span join(const struct step_run *run, enum step_side side, size_t step)
{
    const struct step_record *records = run->board.records;
    struct step_span all = records[0].spans[side][step];

    for (int r = 1; r < run->bench->ranks; r++) {
        const struct step_span *span = &records[r].spans[side][step];

        all.start_ns = span->start_ns < all.start_ns ? span->start_ns : all.start_ns;
        all.backward_end_ns = span->backward_end_ns > all.backward_end_ns ? span->backward_end_ns
                                                                          : all.backward_end_ns;
        all.end_ns = span->end_ns > all.end_ns ? span->end_ns : all.end_ns;
    }
    return all;
}

static double longest_in_wait(const struct step_run *run, size_t step)
{
    const struct step_record *records = run->board.records;
    double longest = 0;

    for (int r = 0; r < run->bench->ranks; r++) {
        longest = records[r].in_wait_ms[step] > longest ? records[r].in_wait_ms[step] : longest;
    }
    return longest;
}

static double longest_create(const struct step_run *run)
{
    const struct step_record *records = run->board.records;
    double longest = 0;

    for (int r = 0; r < run->bench->ranks; r++) {
        longest = records[r].create_ms > longest ? records[r].create_ms : longest;
    }
    return longest;
}

static void add_samples(const struct step_run *run, struct samples *samples)
{
    samples->create[samples->n_teams++] = longest_create(run);
    for (size_t step = 0; step < run->n_steps; step++) {
        size_t i = samples->n++;
        struct step_span span = join(run, STEP_OVERLAPPED, step);

        samples->backward[i] = ms(span.start_ns, span.backward_end_ns);
        samples->exposed[i] = ms(span.backward_end_ns, span.end_ns);
        for (int side = 0; side < STEP_N_SIDES; side++) {
            span = join(run, (enum step_side)side, step);
            samples->all[side][i] = ms(span.start_ns, span.end_ns);
        }
        span = join(run, STEP_UPDATED_ON_CALL, step);
        samples->update[i] = ms(span.backward_end_ns, span.end_ns);
        samples->in_wait[i] = longest_in_wait(run, step);
        for (int k = 0; k < 2; k++) {
            samples->added[k][i] =
                samples->all[STEP_UPDATED_ON_CALL + k][i] - samples->all[STEP_OVERLAPPED][i];
        }
    }
}

static int run_team(struct step_run *run, struct samples *samples, struct step_result *result)
{
    static unsigned n_runs;
    const struct step_bench *bench = run->bench;
    /* Up to five sides have a backward; with more ranks than CPUs they take turns. */
    double backward_s = 5e-3 * bench->backward_ms * (double)(run->n_steps + 2) * bench->ranks;
    int rc;

    (void)snprintf(run->rendezvous, sizeof run->rendezvous, "@tally-step-%ld-%u", (long)getpid(),
                   n_runs++);
    TRY(rank_board_create(bench->ranks, sizeof(struct step_record), &run->board));
    rc = bench->launch.is_launched
             ? step_rank(bench->launch.rank, run)
             : rank_team_run(bench->ranks, step_rank, run, TIMEOUT_S + 4 * backward_s);
    if (rc == TALLY_OK) {
        add_samples(run, samples);
        result->wire_bytes = ((const struct step_record *)run->board.records)->wire_bytes;
    }
    rank_board_free(&run->board);
    return rc;
}

static double median(double *samples, size_t n, bool measured)
{
    return measured ? bench_quantile(samples, n, 0.5) : (double)NAN;
}

/* The cost of an optimizer. */
static void conclude_updates(const struct step_bench *bench, struct samples *samples,
                             struct step_result *result)
{
    bool measured = bench->backward_ms > 0 && bench->optimizer;
    size_t n = samples->n;

    result->on_call_ms = median(samples->all[STEP_UPDATED_ON_CALL], n, measured);
    result->behind_ms = median(samples->all[STEP_UPDATED_BEHIND], n, measured);
    result->update_ms = median(samples->update, n, measured);
    result->exposed_on_call = median(samples->added[0], n, measured);
    result->exposed_behind = median(samples->added[1], n, measured);
    result->in_wait_ms = median(samples->in_wait, n, measured);
    result->exposed_ratio = result->exposed_on_call > 0
                                ? result->exposed_behind / result->exposed_on_call
                                : (double)NAN;
    result->update_over_traffic =
        result->update_ms / median(samples->all[STEP_TRAFFIC], n, measured);
}

static void conclude(const struct step_bench *bench, struct samples *samples,
                     struct step_result *result)
{
    double side[STEP_N_SIDES];
    double backward = bench_quantile(samples->backward, samples->n, 0.5);

    for (int s = 0; s < STEP_N_SIDES; s++) {
        bool measured = bench->backward_ms > 0 || s >= STEP_ALL_REDUCE;

        side[s] = median(samples->all[s], samples->n, measured);
    }
    result->cpus = bench_cpus();
    result->create_ms = median(samples->create, samples->n_teams, true);
    result->overlapped_ms = side[STEP_OVERLAPPED];
    result->serial_ms = side[STEP_SERIAL];
    result->backward_ms = side[STEP_BACKWARD];
    result->all_reduce_ms = side[STEP_ALL_REDUCE];
    result->at_once_ms = side[STEP_AT_ONCE];
    result->exposed_ms = median(samples->exposed, samples->n, bench->backward_ms > 0);
    conclude_updates(bench, samples, result);
    result->comm_ms = result->serial_ms - result->backward_ms;
    result->overlap = result->comm_ms > 0
                          ? (result->serial_ms - result->overlapped_ms) / result->comm_ms
                          : (double)NAN;
    result->backward_stretch = backward / result->backward_ms;
    result->step_over_allreduce = result->at_once_ms / result->all_reduce_ms;
}

int step_bench_run(const struct step_bench *bench, struct step_result *result)
{
    struct step_run run = {.bench = bench};
    struct step_result made = {0};
    struct samples *samples;
    /* There is but one team of ranks that were launched. */
    size_t max_teams = bench->launch.is_launched ? 1 : MAX_TEAMS;
    size_t n_teams;
    int rc = TALLY_OK;

    TRY(check(bench));
    samples = tally__alloc(sizeof *samples, "the times of the step bench");
    TRY(samples ? TALLY_OK : TALLY_NOMEM);
    n_teams = bench->n_steps < max_teams ? bench->n_steps : max_teams;
    for (size_t team = 0; team < n_teams && rc == TALLY_OK; team++) {
        run.n_steps = bench->n_steps / n_teams + (team < bench->n_steps % n_teams);
        rc = run_team(&run, samples, &made);
    }
    if (rc == TALLY_OK) {
        conclude(bench, samples, &made);
        *result = made;
    }
    tally__free(samples);
    return rc;
}
