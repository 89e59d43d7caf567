/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the hooks bench: runs several teams of ranks, one after the other, so that one
 * unlucky placement of memory does not decide, and takes the medians of all their steps. Knows the
 * error that each hook's result may have. Ranks are separate processes; one thread collects here.
 */
#include "bench/hooks_bench.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "bench/hooks_rank.h"
#include "bench/rank_team.h"
#include "bench/timing.h"

#define MAX_TEAMS 3
/* Time limit of a team; with many ranks on few CPUs, ranks take turns. */
#define TIMEOUT_S 600.0
#define TIMEOUT_S_PER_RANK 60.0

/* Everything taken, in milliseconds. */
struct samples {
    size_t n;
    double all[HOOKS_N_SIDES][HOOKS_MAX_STEPS];
};

/* ---- what is right ------------------------------------------------------------------------- */

/* The relative error a hook may have on the bench's gradients: twice what it has with the coarsest
 * of its options and 64 ranks, or more. */
static const struct {
    const char *name;
    double max_error;
} known[] = {
    {"allreduce", 1e-6},
    {"fp16", 2e-3},
    {"bf16", 2e-2},
    {"int8", 0.1},
    {"quantize_per_tensor", 0.15},
    {"quantize_per_channel", 0.1},
    {"postlocal", (double)INFINITY}, /* as far as ranks are alone */
    {"noop", (double)INFINITY},
};
/*
 * For all other hooks, such as PowerSGD, which finds no structure in these gradients: the result
 * must not be worse than zeros, up to rounding.
 */
#define MAX_ERROR_OF_OTHERS 1.01

/* Whether a name occurs in the text of a hook, as a whole word. */
static bool names(const char *text, const char *name)
{
    size_t length = strlen(name);

    while (*text) {
        size_t n = 0;

        while (isalnum((unsigned char)text[n]) || text[n] == '_') {
            n++;
        }
        if (n == length && memcmp(text, name, n) == 0) {
            return true;
        }
        text += n ? n : 1;
    }
    return false;
}

/* A hook in wrappers has the errors of all of them. */
static double max_error_of(const char *hook)
{
    double most = 0;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (names(hook, known[i].name) && known[i].max_error > most) {
            most = known[i].max_error;
        }
    }
    return most > 0 ? most : MAX_ERROR_OF_OTHERS;
}

static int check(const struct hooks_bench *bench)
{
    if (bench->ranks < 1 || bench->ranks > HOOKS_MAX_RANKS) {
        return tally__fail(TALLY_ARG, "%d ranks are not in 1..%d", bench->ranks, HOOKS_MAX_RANKS);
    }
    if (bench->bytes % sizeof(float) != 0 || bench->bytes / sizeof(float) < HOOKS_MIN_ELEMENTS) {
        return tally__fail(TALLY_ARG, "%zu bytes are not %d or more whole 4-byte elements",
                           bench->bytes, HOOKS_MIN_ELEMENTS);
    }
    if (bench->n_steps < 1 || bench->n_steps > HOOKS_MAX_STEPS) {
        return tally__fail(TALLY_ARG, "%zu steps are not in 1..%d", bench->n_steps,
                           HOOKS_MAX_STEPS);
    }
    return TALLY_OK;
}

/* ---- collecting ---------------------------------------------------------------------------- */

/* All ranks together, from the first start to the last end. */
static double join_ms(const struct hooks_run *run, enum hooks_side side, size_t step)
{
    const struct hooks_record *records = run->board.records;
    struct hooks_span all = records[0].spans[side][step];

    for (int r = 1; r < run->bench->ranks; r++) {
        const struct hooks_span *span = &records[r].spans[side][step];

        all.start_ns = span->start_ns < all.start_ns ? span->start_ns : all.start_ns;
        all.end_ns = span->end_ns > all.end_ns ? span->end_ns : all.end_ns;
    }
    return ((double)all.end_ns - (double)all.start_ns) * 1e-6;
}

static void add_samples(const struct hooks_run *run, struct samples *samples)
{
    for (size_t step = 0; step < run->n_steps; step++) {
        for (int side = 0; side < HOOKS_N_SIDES; side++) {
            samples->all[side][samples->n] = join_ms(run, (enum hooks_side)side, step);
        }
        samples->n++;
    }
}

/* The largest value over all ranks. */
static void add_facts(const struct hooks_run *run, struct hooks_result *result)
{
    for (int r = 0; r < run->bench->ranks; r++) {
        const struct hooks_record *record = (const struct hooks_record *)run->board.records + r;

        result->wire_bytes =
            record->wire_bytes > result->wire_bytes ? record->wire_bytes : result->wire_bytes;
        result->host_bytes =
            record->host_bytes > result->host_bytes ? record->host_bytes : result->host_bytes;
        if (run->means && record->error.all > result->error.all) {
            result->error = record->error;
        }
    }
}

static int run_team(struct hooks_run *run, struct samples *samples, struct hooks_result *result)
{
    static unsigned n_runs;
    int ranks = run->bench->ranks;
    int rc;

    (void)snprintf(run->rendezvous, sizeof run->rendezvous, "@tally-hooks-%ld-%u", (long)getpid(),
                   n_runs++);
    TRY(rank_board_create(ranks, sizeof(struct hooks_record), &run->board));
    rc = run->bench->launch.is_launched
             ? hooks_rank(run->bench->launch.rank, run)
             : rank_team_run(ranks, hooks_rank, run, TIMEOUT_S + TIMEOUT_S_PER_RANK * ranks);
    if (rc == TALLY_OK) {
        add_samples(run, samples);
        add_facts(run, result);
    }
    rank_board_free(&run->board);
    return rc;
}

/* The first team compares its results with the exact means: the others' are the same. There is but
 * one team of ranks that were launched. */
static int run_teams(struct hooks_run *run, struct samples *samples, struct hooks_result *result)
{
    size_t n_steps = run->bench->n_steps;
    size_t max_teams = run->bench->launch.is_launched ? 1 : MAX_TEAMS;
    size_t n_teams = n_steps < max_teams ? n_steps : max_teams;
    size_t means_bytes = run->bench->bytes / sizeof(float) * sizeof(double);
    double *means = rank_team_share(means_bytes);
    int rc = means ? TALLY_OK : TALLY_NOMEM;

    for (size_t team = 0; team < n_teams && rc == TALLY_OK; team++) {
        run->n_steps = n_steps / n_teams + (team < n_steps % n_teams);
        run->means = team == 0 ? means : NULL;
        rc = run_team(run, samples, result);
    }
    rank_team_unshare(means, means_bytes);
    return rc;
}

int hooks_bench_run(const struct hooks_bench *bench, struct hooks_result *result)
{
    struct hooks_run run = {.bench = bench};
    struct hooks_result made = {0};
    struct samples *samples;
    int rc;

    TRY(check(bench));
    run.max_error = max_error_of(bench->hook);
    run.ends_alike = !names(bench->hook, "noop") && !names(bench->hook, "postlocal");
    samples = tally__alloc(sizeof *samples, "the times of the hooks bench");
    TRY(samples ? TALLY_OK : TALLY_NOMEM);
    rc = run_teams(&run, samples, &made);
    if (rc == TALLY_OK) {
        made.ms = bench_quantile(samples->all[HOOKS_TESTED], samples->n, 0.5);
        made.plain_ms = bench_quantile(samples->all[HOOKS_PLAIN], samples->n, 0.5);
        made.plain_ratio = made.ms / made.plain_ms;
        *result = made;
    }
    tally__free(samples);
    return rc;
}
