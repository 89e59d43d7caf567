/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of reducers: while the buckets stay the same, a step allocates nothing, apart from one
 * request for each bucket that is under way at once; and every allocation of a step with new
 * buckets may fail on one rank: all ranks hear of it, and the next step works, unless the rank
 * could not even submit its bucket.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/counting_memory.h"
#include "support/framework_model.h"
#include "support/oracle.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const struct ddp_spec specs[] = {{"a", TALLY_F32, 0, 2, {30, 20}},
                                        {"b", TALLY_F32, 0, 1, {5}},
                                        {"c", TALLY_F64, 0, 1, {7}},
                                        {"d", TALLY_F32, 0, 2, {28, 29}}};
static framework_layout layouts[] = {{3, 1, -1, 2, -1, 0, -1, -2}, {0, 1, 3, -1, 2, -1, -2}};
static const char *const hooks[] = {"allreduce", "int8", "powersgd:start=0",
                                    "batched_powersgd:start=0", "quantize_per_tensor"};

static int count(tally_group *group, void *user)
{
    struct framework *framework = calloc(1, sizeof *framework);

    (void)user;
    CHECK(group, framework);
    for (size_t h = 0; h < N_OF(hooks); h++) {
        size_t n_requests;
        size_t before;

        CHECK_OK(group, framework_make(group, specs, N_OF(specs), hooks[h], framework));
        for (unsigned s = 0; s < 3; s++) {
            CHECK_OK(group, framework_step(group, framework, layouts[0], s, 0));
        }
        CHECK(group, ranks_meet(group) == 0);
        before = counting_memory_calls();
        CHECK(group, ranks_meet(group) == 0);
        for (unsigned s = 3; s < 20; s++) {
            CHECK_OK(group, framework_step(group, framework, layouts[0], s, s));
        }
        CHECK(group, ranks_meet(group) == 0);
        /* Up to then a fast lane may have made do with one request for the three buckets. */
        n_requests = ranks_now()->kind == RANKS_THREADS ? 2 * (size_t)tally_group_size(group) : 2;
        CHECK(group, counting_memory_calls() - before <= n_requests);
        CHECK(group, ranks_meet(group) == 0);
        CHECK_OK(group, framework_end(group, framework));
    }
    free(framework);
    return 0;
}

/* The largest of all ranks' numbers. */
static int32_t most(tally_group *group, int32_t value)
{
    tally_future *future;

    if (tally_all_reduce(group, &value, 1, TALLY_I32, TALLY_MAX, &future) != TALLY_OK ||
        ranks_finish(future) != TALLY_OK) {
        return -1;
    }
    return value;
}

/* The n-th allocation of rank 0 fails in a step with new buckets, after n_before other steps.
 * *is_over: there are fewer. */
static int fail_one(tally_group *group, struct framework *framework, unsigned n_before, size_t n,
                    bool *is_over)
{
    bool is_one = tally_group_rank(group) == 0;
    size_t before;
    int status;
    int is_lost;

    for (unsigned s = 0; s < n_before; s++) {
        CHECK_OK(group, framework_step(group, framework, layouts[0], s, 0));
    }
    before = counting_memory_calls();
    counting_memory_fail_nth(is_one ? n : 0);
    status = framework_step(group, framework, layouts[1], 2, 0);
    counting_memory_fail_nth(0);
    /* Rank 0 could not submit a bucket, and has given up the group instead. */
    is_lost = most(group, framework->refused == TALLY_NOMEM);
    *is_over = most(group, is_one && counting_memory_calls() - before >= n) == 0;
    CHECK(group, most(group, status != TALLY_OK) == (status != TALLY_OK));
    CHECK(group, status == TALLY_OK || status == TALLY_NOMEM ||
                     (is_lost && !is_one && status == TALLY_ABORTED));
    status = is_lost ? TALLY_ABORTED : TALLY_OK;
    CHECK_STATUS(group, framework_step(group, framework, layouts[1], 3, 0), status);
    CHECK_STATUS(group, framework_step(group, framework, layouts[0], 4, 0), status);
    return 0;
}

static int fail_each(tally_group *group, const char *hook, unsigned n_before)
{
    struct framework *framework = calloc(1, sizeof *framework);
    bool is_over = false;

    CHECK(group, framework);
    for (size_t n = 1; !is_over; n++) {
        CHECK(group, n < 200);
        CHECK_OK(group, framework_make(group, specs, N_OF(specs), hook, framework));
        /* Giving up ends a creation that another rank has yet to return from. */
        CHECK(group, ranks_meet(group) == 0);
        if (fail_one(group, framework, n_before, n, &is_over) != 0) {
            (void)fprintf(stderr, "hook %s, %u steps, then allocation %zu\n", hook, n_before, n);
            return RANKS_FAILED;
        }
        CHECK_OK(group, framework_end(group, framework));
    }
    free(framework);
    return 0;
}

/* Without a step before it, the first allocation is that of the bucket itself. */
static int fail(tally_group *group, void *user)
{
    (void)user;
    for (size_t h = 0; h < N_OF(hooks); h++) {
        if (fail_each(group, hooks[h], 2) != 0 || fail_each(group, hooks[h], 0) != 0) {
            return RANKS_FAILED;
        }
    }
    return 0;
}

int main(void)
{
    int n_failures = 0;

    oracle_start();
    for (int world = 1; world <= 3; world++) {
        const struct ranks threads = {
            .kind = RANKS_THREADS, .world = world, .lanes = 1, .timeout_s = 60};
        const struct ranks processes = {
            .kind = RANKS_PROCESSES, .world = world, .lanes = 1, .timeout_s = 60, .may_leak = true};

        n_failures += ranks_run(&threads, count, NULL);
        if (ranks_have_processes()) {
            n_failures += ranks_run(&processes, fail, NULL);
        }
    }
    return n_failures != 0;
}
