/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of the collective bench, as a separate process. One job on the lane measures the
 * collective and both copies in turn; then the application's thread measures the asynchronous form.
 * Before every timed call the rank rewrites its array, and after it checks every element.
 */
#include "bench/collective_rank.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "bench/rank_group.h"
#include "num/num.h"

#define OPEN_TIMEOUT_S 30.0
#define TIMEOUT_S 120.0
/*
 * Elements by which the second array is displaced: half a page and a line. Copies between like
 * places of two pages are slow on some CPUs, memcpy's most of all, and nobody wants to win by that.
 */
#define DISPLACEMENT (2112 / sizeof(float))

struct rank_state {
    const struct collective_run *run;
    struct collective_record *record;
    struct collective_args args;
    struct rank_board board;
    tally_group *group;
    uint64_t loop_start_ns;
    uint32_t n_patterns; /* written so far: the repetition of the pattern */
};

/* ---- the steps of a repetition ------------------------------------------------------------- */

static void rewrite(struct rank_state *s)
{
    s->n_patterns++;
    pattern_fill(s->args.data, 0, s->args.n, s->n_patterns, pattern_factor(s->args.rank));
}

static void keep(struct rank_state *s, enum collective_time what, uint32_t repetition,
                 struct collective_span span)
{
    if (s->run->is_launched) {
        span = (struct collective_span){0, span.end_ns - span.start_ns};
    }
    if (repetition >= COLLECTIVE_WARM_UP) {
        s->record->spans[what][s->record->n[what]++] = span;
    }
}

static const char *const time_names[COLLECTIVE_N_TIMES] = {"the call", "the copy", "memcpy",
                                                           "the submitted call"};

static int judge(const struct rank_state *s, enum collective_time what, size_t n_wrong)
{
    return n_wrong == 0
               ? TALLY_OK
               : tally__fail(TALLY_INTERNAL, "%s, %zu bytes: %s left %zu of %zu elements wrong",
                             s->run->op->name, s->run->bytes, time_names[what], n_wrong, s->args.n);
}

static size_t wrong_in_copy(const struct rank_state *s)
{
    return pattern_count_wrong(s->args.other, 0, s->args.n, s->n_patterns,
                               pattern_factor(s->args.rank));
}

static int do_call(tally_lane *lane, const struct rank_state *s)
{
    return s->run->op->run(lane, &s->args);
}

static int do_copy(tally_lane *lane, const struct rank_state *s)
{
    (void)lane;
    tally__copy(s->args.n * sizeof *s->args.data, (const uint8_t *)s->args.data,
                (uint8_t *)s->args.other);
    return TALLY_OK;
}

static int do_memcpy(tally_lane *lane, const struct rank_state *s)
{
    (void)lane;
    memcpy(s->args.other, s->args.data, s->args.n * sizeof *s->args.data);
    return TALLY_OK;
}

/* Rewrite, barrier, the timed thing, barrier, and a look at its result. */
static int measure(tally_lane *lane, struct rank_state *s, enum collective_time what,
                   uint32_t repetition)
{
    static int (*const things[])(tally_lane *, const struct rank_state *) = {do_call, do_copy,
                                                                             do_memcpy};
    struct collective_span span;
    int rc;

    rewrite(s);
    TRY(tally_lane_barrier(lane));
    span.start_ns = tally__now_ns();
    rc = things[what](lane, s);
    span.end_ns = tally__now_ns();
    TRY(rc);
    /* A rank that is done early must not take a CPU from the others, by looking at its result.
     */
    TRY(tally_lane_barrier(lane));
    keep(s, what, repetition, span);
    return judge(s, what,
                 what == COLLECTIVE_TIME_CALL ? s->run->op->count_wrong(&s->args, s->n_patterns)
                                              : wrong_in_copy(s));
}

/* ---- on the lane --------------------------------------------------------------------------- */

/* Rank 0 decides whether to continue after this number of repetitions. */
static int wants_more(const struct rank_state *s, uint32_t n_done)
{
    const struct repeat_limits *limits = &s->run->limits;
    uint32_t n = n_done < COLLECTIVE_WARM_UP ? 0 : n_done - COLLECTIVE_WARM_UP;
    double seconds = (double)(tally__now_ns() - s->loop_start_ns) * 1e-9;

    return n < limits->max && (n < limits->min || seconds < limits->seconds);
}

static int lane_loop(tally_lane *lane, void *user)
{
    struct rank_state *s = user;

    s->loop_start_ns = tally__now_ns();
    for (uint32_t i = 0;; i++) {
        int more = wants_more(s, i);

        TRY(tally_lane_broadcast(lane, &more, sizeof more, 0));
        if (!more) {
            return TALLY_OK;
        }
        TRY(measure(lane, s, COLLECTIVE_TIME_CALL, i));
        if (!s->run->only_call) {
            TRY(measure(lane, s, COLLECTIVE_TIME_COPY, i));
            TRY(measure(lane, s, COLLECTIVE_TIME_MEMCPY, i));
        }
    }
}

/* A failure of ours gets its text into the future this way; those of exchanges have theirs. */
static int lane_job(tally_lane *lane, void *user)
{
    int rc = lane_loop(lane, user);

    return rc == TALLY_INTERNAL ? tally_job_fail(lane, rc, tally_last_error()) : rc;
}

/* ---- on the application's thread ----------------------------------------------------------- */

static int finish(int rc, tally_future *future)
{
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    return rc;
}

static int submit_loop(struct rank_state *s)
{
    s->loop_start_ns = tally__now_ns();
    for (uint32_t i = 0;; i++) {
        int more = wants_more(s, i);
        struct collective_span span;
        tally_future *future = NULL;
        int rc = tally_broadcast(s->group, &more, sizeof more, 0, &future);

        TRY(finish(rc, future));
        future = NULL;
        if (!more) {
            return TALLY_OK;
        }
        rewrite(s);
        TRY(rank_board_meet(&s->board));
        span.start_ns = tally__now_ns();
        rc = s->run->op->submit(s->group, &s->args, &future);
        if (rc == TALLY_OK) {
            rc = tally_future_wait(future);
        }
        span.end_ns = tally__now_ns();
        tally_future_free(future);
        TRY(rc);
        TRY(rank_board_meet(&s->board));
        keep(s, COLLECTIVE_TIME_SUBMIT, i, span);
        TRY(judge(s, COLLECTIVE_TIME_SUBMIT, s->run->op->count_wrong(&s->args, s->n_patterns)));
    }
}

static int measure_all(struct rank_state *s)
{
    tally_future *future = NULL;
    int rc = tally_submit(s->group, 0, lane_job, s, &future);

    TRY(finish(rc, future));
    return s->run->only_call ? TALLY_OK : submit_loop(s);
}

/* ---- set-up -------------------------------------------------------------------------------- */

static int get_memory(struct rank_state *s, size_t n, float **memory)
{
    void *got = NULL;

    if (s->run->heap) {
        got = tally__alloc_array(n, sizeof(float), "the collective bench");
        TRY(got ? TALLY_OK : TALLY_NOMEM);
    } else {
        TRY(tally_group_alloc(s->group, n * sizeof(float), &got));
    }
    *memory = got;
    return TALLY_OK;
}

/* The second array also holds what all_to_all brings: one shard, as long as the longest, per rank.
 */
static size_t other_elements(const struct collective_args *a)
{
    size_t n = a->n;

    for (int r = 0; r < a->ranks; r++) {
        size_t received = a->shard_bytes[r] / sizeof *a->data * (size_t)a->ranks;

        n = received > n ? received : n;
    }
    return n;
}

/* The process ends after this, so a failure leaves its memory and its group to the system. */
static int measure_in_group(struct rank_state *s)
{
    struct collective_args *args = &s->args;
    float *second;

    collective_args_shards(args);
    TRY(get_memory(s, args->n, &args->data));
    TRY(get_memory(s, other_elements(args) + DISPLACEMENT, &second));
    args->other = second + DISPLACEMENT;
    TRY(measure_all(s));
    if (s->run->heap) {
        tally__free(second);
        tally__free(args->data);
        return TALLY_OK;
    }
    TRY(tally_group_free(s->group, second));
    return tally_group_free(s->group, args->data);
}

int collective_rank(int rank, void *user)
{
    const struct collective_run *run = user;
    struct rank_state s = {
        .run = run,
        .record = (struct collective_record *)run->board.records + rank,
        .args = {.rank = rank, .ranks = run->ranks, .n = run->bytes / sizeof(float)},
        .board = run->board,
    };
    const struct rank_group wanted = {.is_launched = run->is_launched,
                                      .rank = rank,
                                      .ranks = run->ranks,
                                      .rendezvous = run->rendezvous,
                                      .lanes = 1,
                                      .open_timeout_s = OPEN_TIMEOUT_S,
                                      .timeout_s = TIMEOUT_S};

    TRY(rank_group_open(&wanted, &s.group));
    TRY(rank_board_join(&s.board, rank, wanted.is_launched ? s.group : NULL));
    TRY(measure_in_group(&s));
    /* A rank that a launcher started has only its own record so far. */
    TRY(rank_board_meet(&s.board));
    rank_board_leave(&s.board);
    return tally_group_close(s.group);
}
