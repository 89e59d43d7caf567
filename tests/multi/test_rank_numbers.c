/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of ranks in messages. In a sub-group with another order every kind of failure names
 * ranks by the launcher's number and adds the sub-group's. Death is in test_fault_exit.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "support/ranks.h"

/* Ranks 1 to 3 in reverse order: rank 3 is 0 of the sub-group, rank 2 is 1, rank 1 is 2. */
#define WORLD 4
#define FIRST "rank 3 (0 of this sub-group)"
#define CULPRIT "rank 1 (2 of this sub-group)"
#define CULPRIT_NUMBER 1

static int n_failures;

struct failure {
    const char *name;
    int (*fail)(tally_group *sub, bool is_culprit); /* runs on each rank; returns its status */
    int status;                                     /* on the ranks that are not the culprit */
    const char *text;                               /* there */
    const char *second;                             /* a second part of it, or NULL */
    double timeout_s;
};

/* ---- ways to fail ---- */

static int reduce(tally_group *sub, size_t n)
{
    float data[8] = {0};
    tally_future *future;
    int rc = tally_all_reduce(sub, data, n, TALLY_F32, TALLY_SUM, &future);

    return rc == TALLY_OK ? ranks_finish(future) : rc;
}

static int bad_root(tally_group *sub, bool is_culprit)
{
    float data[8] = {0};
    tally_future *future;
    int rc = tally_broadcast(sub, data, sizeof data, is_culprit ? 3 : 0, &future);

    return rc == TALLY_OK ? ranks_finish(future) : rc;
}

static int failing_job(tally_lane *lane, void *user)
{
    (void)lane;
    return user ? tally__fail(TALLY_NUMERIC, "the data set is empty") : TALLY_OK;
}

static int failed_job(tally_group *sub, bool is_culprit)
{
    return ranks_job(sub, 0, failing_job, is_culprit ? sub : NULL);
}

static int other_call(tally_group *sub, bool is_culprit)
{
    return reduce(sub, is_culprit ? 5 : 4);
}

static int other_root(tally_group *sub, bool is_culprit)
{
    float data[8] = {0};
    tally_future *future;
    int rc = tally_broadcast(sub, data, sizeof data, is_culprit ? 1 : 0, &future);

    return rc == TALLY_OK ? ranks_finish(future) : rc;
}

static int other_sizes(tally_group *sub, bool is_culprit)
{
    const size_t two[] = {2, 2, 2};
    const size_t three[] = {3, 3, 3};
    char from[9] = {0};
    char to[9];
    tally_future *future;
    int rc = tally_all_to_all(sub, from, is_culprit ? three : two, to, two, &future);

    return rc == TALLY_OK ? ranks_finish(future) : rc;
}

/* The rank at fault does not come before the others have failed. */
static int late(tally_group *sub, bool is_culprit)
{
    int rc;

    if (is_culprit) {
        return ranks_await(&ranks_words()[0], 2) == 0 ? TALLY_TIMEOUT : RANKS_FAILED;
    }
    rc = reduce(sub, 4);
    atomic_fetch_add(&ranks_words()[0], 1);
    return rc;
}

static int closing(tally_group *sub, bool is_culprit)
{
    return is_culprit ? TALLY_PEER : reduce(sub, 4);
}

static int aborting(tally_group *sub, bool is_culprit)
{
    if (is_culprit && tally_group_abort(sub, "the disk is full") != TALLY_OK) {
        return RANKS_FAILED;
    }
    return reduce(sub, 4);
}

static int make_ddp(tally_group *sub, size_t n, const char *hook, int n_steps)
{
    float data[8] = {0};
    float grad[8] = {0};
    const size_t shape[] = {n};
    const tally_param param = {.size = sizeof(tally_param),
                               .name = "weight",
                               .data = data,
                               .grad = grad,
                               .shape = shape,
                               .n_dims = 1,
                               .dtype = TALLY_F32};
    tally_ddp *ddp = NULL;
    int rc = tally_ddp_create(sub, &param, 1, NULL, &ddp);

    if (rc == TALLY_OK && hook) {
        rc = tally_ddp_set_hook(ddp, hook);
    }
    for (int i = 0; rc == TALLY_OK && i < n_steps; i++) {
        rc = tally_ddp_grad_ready(ddp, 0);
        rc = rc == TALLY_OK ? tally_ddp_wait(ddp) : rc;
    }
    tally_ddp_free(ddp);
    return rc;
}

static int other_parameters(tally_group *sub, bool is_culprit)
{
    return make_ddp(sub, is_culprit ? 5 : 4, NULL, 0);
}

static int other_hook(tally_group *sub, bool is_culprit)
{
    return make_ddp(sub, 4, is_culprit ? "bf16" : "fp16", 0);
}

static int fewer_steps(tally_group *sub, bool is_culprit)
{
    int rc = make_ddp(sub, 4, NULL, is_culprit ? 1 : 2);

    return is_culprit && rc == TALLY_OK ? TALLY_MISMATCH : rc;
}

/* ---- what is said ---- */

static const struct failure failures[] = {
    {"bad root", bad_root, TALLY_ARG, CULPRIT ": broadcast: root 3 is not in 0..2", NULL, 0},
    {"failed job", failed_job, TALLY_NUMERIC, CULPRIT ": the data set is empty", NULL, 0},
    {"another call", other_call, TALLY_MISMATCH, FIRST " is in all-reduce of 4 f32 (sum)",
     CULPRIT " is in all-reduce of 5", 0},
    {"another root", other_root, TALLY_MISMATCH, "from " FIRST, "from rank 2 (1 of this sub-group)",
     0},
    {"other sizes", other_sizes, TALLY_MISMATCH, CULPRIT " sends 3 bytes to rank ",
     " of this sub-group), which expects 2", 0},
    {"timeout", late, TALLY_TIMEOUT, CULPRIT " did not arrive within 0.5 s",
     " of this sub-group) waited for it", 0.5},
    {"close", closing, TALLY_PEER, CULPRIT " closed its group while rank ",
     " of this sub-group) waits in", 0},
    {"abort", aborting, TALLY_ABORTED, CULPRIT " gave up: the disk is full", NULL, 0},
    {"ddp: other parameters", other_parameters, TALLY_MISMATCH,
     "shape is [4] on " FIRST " and [5] on " CULPRIT, NULL, 0},
    {"ddp: another hook", other_hook, TALLY_MISMATCH, "hook is 'fp16' on " FIRST,
     "'bf16' on " CULPRIT, 0},
    {"ddp: fewer steps", fewer_steps, TALLY_MISMATCH, CULPRIT " freed its ddp after 1 step",
     " of this sub-group) waits in step 2", 0},
};

static int body(tally_group *group, void *user)
{
    const struct failure *failure = user;
    int rank = tally_group_rank(group);
    bool is_culprit = rank == CULPRIT_NUMBER;
    tally_group *sub;

    CHECK_OK(group, tally_group_split(group, rank == 0 ? -1 : 1, -rank, &sub));
    if (sub) {
        CHECK(group, tally_group_rank(sub) == WORLD - 1 - rank);
        CHECK_STATUS(group, failure->fail(sub, is_culprit), failure->status);
    }
    if (sub && !is_culprit) {
        CHECK_TEXT(group, tally_last_error(), failure->text);
        CHECK_TEXT(group, tally_last_error(), failure->second ? failure->second : "");
    }
    return tally_group_close(sub);
}

/* In the group that spans the world both numbers are the same. */
static int world_body(tally_group *group, void *user)
{
    bool is_culprit = tally_group_rank(group) == CULPRIT_NUMBER;
    tally_group *same;

    (void)user;
    CHECK_STATUS(group, failed_job(group, is_culprit), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "rank 1: the data set is empty");
    CHECK_STATUS(group, other_parameters(group, is_culprit), TALLY_MISMATCH);
    CHECK_TEXT(group, tally_last_error(), "shape is [4] on rank 0 and [5] on rank 1;");
    CHECK_OK(group, tally_group_split(group, 0, 0, &same));
    CHECK_STATUS(group, failed_job(same, is_culprit), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "rank 1: the data set is empty");
    return tally_group_close(same);
}

static void run(const char *name, ranks_body *what, const void *user, double timeout_s)
{
    const struct ranks ranks = {.lanes = 1, .timeout_s = timeout_s, .may_leak = true};

    n_failures += ranks_run_worlds(name, &ranks, (const int[]){WORLD, 0}, what, (void *)user);
}

int main(void)
{
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        run(failures[i].name, body, &failures[i], failures[i].timeout_s);
    }
    run("the world", world_body, NULL, 0);
    return n_failures != 0;
}
