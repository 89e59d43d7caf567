/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of groups: ranks that disagree, ranks that abort, ranks that close early. Every rank gets
 * the status and the reason, later calls get ABORTED at once, and closing works.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "support/ranks.h"

#define MOST_RANKS 8

static int n_failures;

/* ---- ranks that disagree ---- */

/* Room for what the calls below move, in memory that outlives every rank's view of it. */
struct arena {
    float data[4096];
    unsigned char received[4096];
    size_t bytes[MOST_RANKS];
    size_t received_bytes[MOST_RANKS];
};

static struct arena arenas[MOST_RANKS];

/* One call, in the form of the last rank (odd) or of the others. */
typedef int wrong_call(tally_group *group, struct arena *arena, bool odd, tally_future **future);

static int wrong_op(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return tally_all_reduce(group, arena->data, 100, TALLY_F32, odd ? TALLY_MAX : TALLY_SUM,
                            future);
}

static int wrong_dtype(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return tally_all_reduce(group, arena->data, 100, odd ? TALLY_I32 : TALLY_F32, TALLY_SUM,
                            future);
}

static int wrong_count(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return tally_all_reduce(group, arena->data, odd ? 101 : 100, TALLY_F32, TALLY_SUM, future);
}

/* One rank would take one phase, the others two. */
static int wrong_phases(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return tally_all_reduce(group, arena->data, odd ? 4096 : 100, TALLY_F32, TALLY_SUM, future);
}

static int wrong_scatter(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return (odd ? tally_reduce_scatter : tally_all_reduce)(group, arena->data, 4096, TALLY_F32,
                                                           TALLY_SUM, future);
}

static int wrong_root(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return tally_broadcast(group, arena->data, 100, odd ? 1 : 0, future);
}

static int wrong_bytes(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    return tally_broadcast(group, arena->data, odd ? 400 : 100, 0, future);
}

static int wrong_collective(tally_group *group, struct arena *arena, bool odd,
                            tally_future **future)
{
    return odd ? tally_barrier(group, future) : tally_broadcast(group, arena->data, 100, 0, future);
}

static int gather(tally_group *group, struct arena *arena, tally_future **future)
{
    return tally_all_gather(group, arena->data, arena->bytes, arena->received, future);
}

static int wrong_gather(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        arena->bytes[r] = odd && r == 0 ? 41 : 40;
    }
    return gather(group, arena, future);
}

/* The same number of bytes in all, divided otherwise. */
static int wrong_division(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        arena->bytes[r] = 40;
    }
    if (odd) {
        arena->bytes[0] = 39;
        arena->bytes[1] = 41;
    }
    return gather(group, arena, future);
}

static int to_all(tally_group *group, struct arena *arena, tally_future **future)
{
    return tally_all_to_all(group, arena->data, arena->bytes, arena->received,
                            arena->received_bytes, future);
}

static int wrong_to_all(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        arena->bytes[r] = 40;
        arena->received_bytes[r] = odd && r == 0 ? 39 : 40;
    }
    return to_all(group, arena, future);
}

/* No rank sends anything, but one rank waits for something. */
static int wrong_nothing(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    memset(arena->bytes, 0, sizeof arena->bytes);
    memset(arena->received_bytes, 0, sizeof arena->received_bytes);
    arena->received_bytes[0] = odd ? 5 : 0;
    return to_all(group, arena, future);
}

/* One rank has submitted a job more. */
static int wrong_number(tally_group *group, struct arena *arena, bool odd, tally_future **future)
{
    (void)arena;
    if (odd) {
        tally_future *first;
        int rc = tally_barrier(group, &first);

        if (rc != TALLY_OK) {
            return rc;
        }
        (void)ranks_finish(first);
    }
    return tally_barrier(group, future);
}

struct mismatch {
    const char *name;
    wrong_call *call;
    const char *texts[2]; /* both calls, as the reason names them */
};

static const struct mismatch mismatches[] = {
    {"op", wrong_op, {"all-reduce of 100 f32 (sum)", "all-reduce of 100 f32 (max)"}},
    {"dtype", wrong_dtype, {"all-reduce of 100 f32 (sum)", "all-reduce of 100 i32 (sum)"}},
    {"count", wrong_count, {"all-reduce of 100 f32", "all-reduce of 101 f32"}},
    {"phases", wrong_phases, {"all-reduce of 100 f32", "all-reduce of 4096 f32"}},
    {"scatter", wrong_scatter, {"all-reduce of 4096", "reduce-scatter of 4096"}},
    {"root", wrong_root, {"broadcast of 100 bytes from rank 0", "from rank 1"}},
    {"bytes", wrong_bytes, {"broadcast of 100 bytes", "broadcast of 400 bytes"}},
    {"collective", wrong_collective, {"broadcast of 100 bytes", "barrier"}},
    {"all-gather", wrong_gather, {"all-gather of ", "all-gather of "}},
    {"division", wrong_division, {"all-gather of ", "sizes"}},
    {"all-to-all", wrong_to_all, {"sends 40 bytes", "expects 39"}},
    {"nothing", wrong_nothing, {"sends 0 bytes", "expects 5"}},
    {"number", wrong_number, {"barrier", "barrier"}},
};

/* After the end every call fails at once, with the reason. */
static int check_ended(tally_group *group, const char *reason)
{
    uint64_t start = tally__now_ns();
    tally_future *future;
    tally_group *child;
    void *memory;

    CHECK_STATUS(group, tally_barrier(group, &future), TALLY_ABORTED);
    CHECK_TEXT(group, tally_last_error(), reason);
    CHECK_STATUS(group, tally_group_alloc(group, 100, &memory), TALLY_ABORTED);
    CHECK_STATUS(group, tally_group_split(group, 0, 0, &child), TALLY_ABORTED);
    CHECK_TEXT(group, tally_last_error(), reason);
    CHECK(group, tally__now_ns() - start < 10 * TALLY__NS_PER_SECOND);
    return 0;
}

static int mismatch_body(tally_group *group, void *user)
{
    const struct mismatch *mismatch = user;
    int rank = tally_group_rank(group);
    bool odd = rank == tally_group_size(group) - 1;
    tally_future *future;
    int rc;

    rc = mismatch->call(group, &arenas[rank], odd, &future);
    if (odd && mismatch->call == wrong_number && rc == TALLY_ABORTED) {
        /* Its first barrier met the others' second one. */
        return check_ended(group, mismatch->texts[0]);
    }
    CHECK_OK(group, rc);
    rc = ranks_finish(future);
    if (rc == TALLY_OK && mismatch->call == wrong_number && !odd) {
        /* The first one was fine; the others learn of it in the next call. */
        CHECK_OK(group, tally_broadcast(group, arenas[rank].data, 4, 0, &future));
        rc = ranks_finish(future);
    }
    CHECK_STATUS(group, rc, TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), mismatch->texts[0]);
    CHECK_TEXT(group, tally_last_error(), mismatch->texts[1]);
    return check_ended(group, mismatch->texts[0]);
}

static void test_mismatches(void)
{
    static const int worlds[] = {2, 3, 7};

    for (size_t i = 0; i < sizeof mismatches / sizeof mismatches[0]; i++) {
        for (int k = 0; k < 9; k++) {
            const struct ranks ranks = {.kind = k % 3 == 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                        .memory = k % 3 == 0 ? RANKS_GROUP_MEMORY : RANKS_STAGED,
                                        .world = worlds[k / 3],
                                        .lanes = 1};

            n_failures += ranks_run_named(mismatches[i].name, &ranks, mismatch_body,
                                          (void *)(uintptr_t)&mismatches[i]);
        }
    }
}

/* ---- giving up ---- */

/*
 * The last rank comes only when the others have heard that rank 0 gave up: it is told in its first
 * round, although they had arrived there before.
 */
static int abort_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    int last = tally_group_size(group) - 1;
    const char *reason = user;
    tally_future *future;
    float data[16] = {0};

    if (rank == last) {
        CHECK(group, ranks_await(&ranks_words()[0], (uint32_t)last) == 0);
    }
    CHECK_OK(group, tally_all_reduce(group, data, 16, TALLY_F32, TALLY_SUM, &future));
    if (rank == 0) {
        ranks_sleep_ms(50);
        CHECK_OK(group, tally_group_abort(group, reason));
    }
    if (rank == last && tally_future_wait(future) == TALLY_OK) {
        tally_future_free(future);
        CHECK_OK(group, tally_barrier(group, &future));
    }
    CHECK_STATUS(group, ranks_finish(future), TALLY_ABORTED);
    CHECK_TEXT(group, tally_last_error(), reason);
    CHECK_TEXT(group, tally_last_error(), "rank 0 gave up");
    atomic_fetch_add(&ranks_words()[0], 1);
    CHECK_OK(group, tally_group_abort(group, "the first reason stands"));
    return check_ended(group, reason);
}

/* A job of several equal rounds: what a rank that is late said before must not be taken for now. */
static int late_job(tally_lane *lane, void *user)
{
    tally_group *group = tally_lane_group(lane);
    uint32_t n_others = (uint32_t)tally_group_size(group) - 1;

    (void)user;
    for (int i = 0; i < 4; i++) {
        CHECK_OK(group, tally_lane_barrier(lane));
    }
    if (tally_group_rank(group) == (int)n_others) {
        CHECK(group, ranks_await(&ranks_words()[1], n_others) == 0);
    }
    atomic_fetch_add(&ranks_words()[0], 1);
    return tally_lane_barrier(lane);
}

static int stale_body(tally_group *group, void *user)
{
    uint32_t n_others = (uint32_t)tally_group_size(group) - 1;
    tally_future *future;

    (void)user;
    CHECK_OK(group, tally_submit(group, 0, late_job, NULL, &future));
    if (tally_group_rank(group) == 0) {
        CHECK(group, ranks_await(&ranks_words()[0], n_others) == 0);
        ranks_sleep_ms(50);
        CHECK_OK(group, tally_group_abort(group, "enough"));
    }
    CHECK_STATUS(group, ranks_finish(future), TALLY_ABORTED);
    CHECK_TEXT(group, tally_last_error(), "enough");
    atomic_fetch_add(&ranks_words()[1], 1);
    return 0;
}

/* ---- closing early ---- */

/* Rank 0 closes in good order while the others wait for it; rank 1 comes late. */
static int close_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    tally_future *future;

    (void)user;
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_OK(group, ranks_finish(future));
    if (rank == 0) {
        CHECK_OK(group, ranks_close(group));
        return 0;
    }
    if (rank == 1) {
        ranks_sleep_ms(200);
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_PEER);
    CHECK_TEXT(group, tally_last_error(), "rank 0 closed its group");
    return check_ended(group, "rank 0 closed its group");
}

/* The last rank closes: the others wait for rank 1 first, which is late. */
static int close_last_body(tally_group *group, void *user)
{
    int rank = tally_group_rank(group);
    int last = tally_group_size(group) - 1;
    char text[64];
    tally_future *future;

    (void)user;
    if (rank == last) {
        CHECK_OK(group, ranks_close(group));
        return 0;
    }
    if (rank == 1) {
        ranks_sleep_ms(200);
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_PEER);
    (void)snprintf(text, sizeof text, "rank %d closed its group", last);
    CHECK_TEXT(group, tally_last_error(), text);
    return 0;
}

/* ---- deadlines ---- */

static int timeout_body(tally_group *group, void *user)
{
    tally_future *future;

    (void)user;
    if (tally_group_rank(group) == tally_group_size(group) - 1) {
        CHECK(group, ranks_await(&ranks_words()[0], (uint32_t)tally_group_size(group) - 1) == 0);
        return 0;
    }
    CHECK_OK(group, tally_barrier(group, &future));
    CHECK_STATUS(group, ranks_finish(future), TALLY_TIMEOUT);
    CHECK_TEXT(group, tally_last_error(), "did not arrive within 0.5 s; rank ");
    atomic_fetch_add(&ranks_words()[0], 1);
    return check_ended(group, "did not arrive");
}

static void test(const char *name, ranks_body *body, double timeout_s, void *user)
{
    static const int worlds[] = {2, 3, 7, 0};
    const struct ranks ranks = {.lanes = 1, .timeout_s = timeout_s};

    n_failures += ranks_run_worlds(name, &ranks, worlds, body, user);
}

int main(void)
{
    char reason[] = "the disk is full";

    test_mismatches();
    test("abort", abort_body, 0, reason);
    test("abort in a row of rounds", stale_body, 0, NULL);
    test("close", close_body, 0, NULL);
    test("close of the last", close_last_body, 0, NULL);
    test("timeout", timeout_body, 0.5, NULL);
    return n_failures != 0;
}
