/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce and reduce-scatter: every dtype and op, lengths around every boundary, blocking on a
 * lane and asynchronous, against the oracle bit for bit, and the same bits in every configuration.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/oracle.h"
#include "support/ranks.h"

#define MOST RANKS_REPEATS(1000003, 300007) /* many pieces */
#define GUARD 64
#define GUARD_BYTE 0xa5

static const size_t lengths[] = {0, 1, 3, 63, 64, 65, 1000, 2049, 70001, MOST};

struct call {
    unsigned char *data;
    unsigned char *input; /* the bytes of data before */
    size_t n;
    int dtype;
    int op;
    unsigned seed;
    bool scatters;
};

static int job(tally_lane *lane, void *user)
{
    const struct call *call = user;

    return (call->scatters ? tally_lane_reduce_scatter : tally_lane_all_reduce)(
        lane, call->data, call->n, call->dtype, call->op);
}

static int run(tally_group *group, const struct call *call, bool blocking)
{
    tally_future *future = NULL;

    if (blocking) {
        CHECK_OK(group,
                 tally_submit(group, call->dtype % 2, job, (void *)(uintptr_t)call, &future));
    } else {
        CHECK_OK(group, (call->scatters ? tally_reduce_scatter : tally_all_reduce)(
                            group, call->data, call->n, call->dtype, call->op, &future));
    }
    CHECK_OK(group, ranks_finish(future));
    return 0;
}

/* The part that reduce-scatter does not write is still this rank's input. */
static int check_untouched(tally_group *group, const struct call *call, size_t start, size_t n)
{
    size_t bytes = tally_dtype_bytes(call->dtype);
    size_t end = (start + n) * bytes;

    CHECK(group, memcmp(call->data, call->input, start * bytes) == 0);
    CHECK(group, memcmp(call->data + end, call->input + end, call->n * bytes - end) == 0);
    return 0;
}

/* All ranks have the same bits, which their notes prove, so each compares a part of them. */
static void own_part(const tally_group *group, size_t n, size_t *start, size_t *count)
{
    size_t world = (size_t)tally_group_size(group);
    size_t rank = (size_t)tally_group_rank(group);

    *start = n * rank / world;
    *count = n * (rank + 1) / world - *start;
}

static int check(tally_group *group, const struct call *call)
{
    int world = tally_group_size(group);
    size_t bytes = tally_dtype_bytes(call->dtype);
    size_t start;
    size_t n;
    size_t n_right;

    if (call->scatters) {
        tally_shard(call->n, world, tally_group_rank(group), &start, &n);
    } else {
        own_part(group, call->n, &start, &n);
    }
    n_right = oracle_compare(&(struct oracle_reduction){call->dtype, call->op, call->seed, world},
                             start, n, call->data + start * bytes);
    if (n_right != n) {
        char text[160];

        (void)snprintf(text, sizeof text, "%s dtype %d op %d, %zu elements: element %zu is wrong",
                       call->scatters ? "reduce-scatter" : "all-reduce", call->dtype, call->op,
                       call->n, start + n_right);
        return ranks_fail(group, __FILE__, __LINE__, text);
    }
    for (size_t i = 0; i < GUARD; i++) {
        CHECK(group, call->data[call->n * bytes + i] == GUARD_BYTE);
    }
    if (call->scatters) {
        return check_untouched(group, call, start, n);
    }
    ranks_note(group,
               tally_group_rank(group) == 0 ? oracle_hash(call->dtype, call->n, call->data) : 0,
               ranks_hash(0, call->data, call->n * bytes));
    return 0;
}

static int run_and_check(tally_group *group, struct call *call, bool blocking)
{
    size_t bytes = tally_dtype_bytes(call->dtype);

    oracle_fill(call->dtype, call->seed, tally_group_rank(group), call->n, call->input);
    memcpy(call->data, call->input, call->n * bytes);
    memset(call->data + call->n * bytes, GUARD_BYTE, GUARD);
    CHECK(group, run(group, call, blocking) == 0);
    return check(group, call);
}

/* The longest ones only where it is not the kernels that are tested. */
static bool is_worth_it(size_t n, int dtype, int op)
{
    if (n < RANKS_REPEATS(MOST, 70001)) {
        return true;
    }
    return (dtype == TALLY_F32 && op == TALLY_SUM) || (dtype == TALLY_BF16 && op == TALLY_MEAN);
}

static int run_all(tally_group *group, struct call *call)
{
    unsigned n_calls = 0;

    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        for (int i = 0; i < (TALLY_U8 + 1) * (TALLY_MAX + 1); i++) {
            call->n = lengths[l];
            call->dtype = i / (TALLY_MAX + 1);
            call->op = i % (TALLY_MAX + 1);
            if (!is_worth_it(call->n, call->dtype, call->op)) {
                continue;
            }
            call->seed = n_calls++;
            call->scatters = false;
            CHECK(group, run_and_check(group, call, call->op % 2 == 0) == 0);
            call->scatters = true;
            CHECK(group, run_and_check(group, call, call->op % 2 == 1) == 0);
        }
    }
    return 0;
}

static int body(tally_group *group, void *user)
{
    struct call call = {.data = ranks_buffer(group, MOST * sizeof(float) + GUARD),
                        .input = malloc((size_t)MOST * 4)};
    int rc = RANKS_FAILED;

    (void)user;
    if (call.data && call.input) {
        rc = run_all(group, &call);
    }
    if (rc == 0) {
        ranks_buffer_free(group, call.data);
    }
    free(call.input);
    return rc;
}

int main(void)
{
    oracle_start();
    return ranks_run_all(body, NULL, 2, true) != 0;
}
