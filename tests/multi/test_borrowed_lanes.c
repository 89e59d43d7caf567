/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that borrow the lane of a sub-group and fail on one rank, while others are in a collective
 * of that sub-group, or about to be. Everybody hears why long before the deadline, the job's own
 * group lives on, and the sub-group is at its end on every rank: also for a call that is the very
 * one that others were waiting in.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "support/ranks.h"

#define TIMEOUT_S 60
#define SOON_NS (10 * TALLY__NS_PER_SECOND)

static int n_failures;

/* The use of the sub-group after the failure. */
enum next { NEXT_SAME_CALL, NEXT_BARRIER, NEXT_ALL_REDUCE, NEXT_SPLIT, N_NEXT };

struct plan {
    bool last_fails;    /* the last rank, or rank 0 */
    bool met_before;    /* the sub-group has done something in this job already */
    int others_late_ms; /* the failure comes before the others' call, or while they wait in it */
    int failure_late_ms;
    enum next next;
};

struct scene {
    const struct plan *plan;
    tally_group *sub;
    int rc; /* of the call in the sub-group */
};

static int sum_in(tally_lane *lane)
{
    float data[4] = {1, 2, 3, 4};

    return tally_lane_all_reduce(lane, data, 4, TALLY_F32, TALLY_SUM);
}

static int failing_job(tally_lane *lane, void *user)
{
    struct scene *scene = user;
    const struct plan *plan = scene->plan;
    tally_group *group = tally_lane_group(lane);
    tally_lane *sub = tally_lane_for(lane, scene->sub);
    int who = plan->last_fails ? tally_group_size(group) - 1 : 0;

    CHECK(group, sub != NULL);
    if (plan->met_before) {
        CHECK_OK(group, sum_in(sub));
    }
    if (tally_group_rank(group) == who) {
        ranks_sleep_ms(plan->failure_late_ms);
        return tally_job_fail(lane, TALLY_NUMERIC, "the dog ate it");
    }
    ranks_sleep_ms(plan->others_late_ms);
    scene->rc = sum_in(sub);
    CHECK(group, scene->rc != TALLY_OK);
    return scene->rc;
}

/* As if nothing had happened: for who failed, this is the first such call, for others the second.
 */
static int same_job(tally_lane *lane, void *user)
{
    struct scene *scene = user;

    scene->rc = sum_in(tally_lane_for(lane, scene->sub));
    return scene->rc;
}

static int finish_if(int rc, tally_future *future)
{
    return rc == TALLY_OK ? ranks_finish(future) : rc;
}

/* The next use of the sub-group fails on this rank, soon and with the reason. */
static int check_sub_ended(tally_group *group, struct scene *scene)
{
    uint64_t start = tally__now_ns();
    float data[4] = {1, 2, 3, 4};
    tally_group *child;
    tally_future *future = NULL;
    int rc = TALLY_OK;

    switch (scene->plan->next) {
    case NEXT_SAME_CALL:
        CHECK(group, ranks_job(group, 0, same_job, scene) != TALLY_OK);
        rc = scene->rc;
        break;
    case NEXT_BARRIER:
        rc = tally_barrier(scene->sub, &future);
        rc = finish_if(rc, future);
        break;
    case NEXT_ALL_REDUCE:
        rc = tally_all_reduce(scene->sub, data, 4, TALLY_F32, TALLY_SUM, &future);
        rc = finish_if(rc, future);
        CHECK(group, data[0] == 1 && data[3] == 4);
        break;
    default:
        rc = tally_group_split(scene->sub, 0, 0, &child);
    }
    CHECK(group, rc == TALLY_ABORTED || rc == TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "the dog ate it");
    CHECK(group, tally__now_ns() - start < SOON_NS);
    return 0;
}

static int failing_body(tally_group *group, void *user)
{
    struct scene scene = {.plan = user};
    uint64_t start;

    CHECK_OK(group, tally_group_split(group, 0, -tally_group_rank(group), &scene.sub));
    start = tally__now_ns();
    CHECK_STATUS(group, ranks_job(group, 0, failing_job, &scene), TALLY_NUMERIC);
    CHECK_TEXT(group, tally_last_error(), "the dog ate it");
    CHECK(group, tally__now_ns() - start < SOON_NS);
    ranks_note(group, 0, ranks_hash(0, tally_last_error(), strlen(tally_last_error())));
    CHECK(group, ranks_check_alive(group) == 0);
    CHECK(group, check_sub_ended(group, &scene) == 0);
    CHECK(group, ranks_check_alive(group) == 0);
    CHECK_OK(group, tally_group_close(scene.sub));
    /* The group can make another one, which is not like the first. */
    CHECK_OK(group, tally_group_split(group, 0, 0, &scene.sub));
    CHECK(group, ranks_check_alive(scene.sub) == 0);
    CHECK_OK(group, ranks_job(group, 0, same_job, &scene));
    CHECK_OK(group, tally_group_close(scene.sub));
    return 0;
}

/* ---- failures that end nothing ---- */

static int refused_job(tally_lane *lane, void *user)
{
    const struct scene *scene = user;
    tally_group *group = tally_lane_group(lane);
    float data[4] = {1, 2, 3, 4};
    bool wrong = scene->rc != 0 && tally_group_rank(group) == tally_group_size(group) - 1;

    return tally_lane_all_reduce(tally_lane_for(lane, scene->sub), wrong ? NULL : data, 4,
                                 TALLY_F32, TALLY_SUM);
}

/*
 * A wrong argument in the sub-group is known to all its ranks at once. The next job has nothing to
 * do with it, also when it is the first job of a group that lies where a closed one lay.
 */
static int refused_body(tally_group *group, void *user)
{
    struct scene scene = {0};
    tally_group *host;

    (void)user;
    CHECK_OK(group, tally_group_split(group, 0, 0, &scene.sub));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(group, tally_group_split(group, 0, 0, &host));
        scene.rc = i % 2 == 0;
        CHECK_STATUS(group, ranks_job(host, 0, refused_job, &scene),
                     scene.rc ? TALLY_ARG : TALLY_OK);
        CHECK_OK(group, tally_group_close(host));
    }
    CHECK(group, ranks_check_alive(scene.sub) == 0);
    CHECK_OK(group, tally_group_close(scene.sub));
    return ranks_check_alive(group);
}

/* ---- all of it ---- */

/* Rank 0 is in no sub-group and fails; of the others, the last one comes late. */
static int bystander_job(tally_lane *lane, void *user)
{
    tally_group *group = tally_lane_group(lane);

    if (tally_group_rank(group) == 0) {
        return tally_job_fail(lane, TALLY_NUMERIC, "not my sub-group");
    }
    if (tally_group_rank(group) == tally_group_size(group) - 1) {
        ranks_sleep_ms(100);
    }
    return sum_in(tally_lane_for(lane, user));
}

/* The job fails everywhere, but the sub-group has nothing to do with it and lives on. */
static int bystander_body(tally_group *group, void *user)
{
    tally_group *sub;
    tally_future *future;
    int rank = tally_group_rank(group);

    (void)user;
    CHECK_OK(group, tally_group_split(group, rank == 0 ? -1 : 0, rank, &sub));
    CHECK_STATUS(group, ranks_job(group, 0, bystander_job, sub), TALLY_NUMERIC);
    if (sub) {
        CHECK_OK(group, tally_barrier(sub, &future));
        CHECK_OK(group, ranks_finish(future));
    }
    CHECK_OK(group, tally_group_close(sub));
    return 0;
}

static void run(const char *name, ranks_body *body, struct plan *plan, int world)
{
    for (int k = 0; k < 3; k++) {
        const struct ranks ranks = {.kind = k == 2 ? RANKS_PROCESSES : RANKS_THREADS,
                                    .world = world,
                                    .lanes = k,
                                    .timeout_s = TIMEOUT_S};

        n_failures += ranks_run_named(name, &ranks, body, plan);
    }
}

static void test_failures(void)
{
    static const struct {
        int others_late_ms;
        int failure_late_ms;
    } times[] = {{0, 0}, {50, 0}, {0, 50}};

    for (int k = 0; k < 3 * N_NEXT; k++) {
        for (int flags = 0; flags < 4; flags++) {
            struct plan plan = {flags & 1, flags & 2, times[k % 3].others_late_ms,
                                times[k % 3].failure_late_ms, (enum next)(k / 3)};
            char name[96];

            (void)snprintf(name, sizeof name, "next %d, last %d, met %d, others %d ms, failure %d",
                           (int)plan.next, plan.last_fails, plan.met_before, plan.others_late_ms,
                           plan.failure_late_ms);
            run(name, failing_body, &plan, ranks_worlds[1 + (k + flags) % (RANKS_N_WORLDS - 1)]);
        }
    }
}

int main(void)
{
    test_failures();
    for (size_t w = 0; w < RANKS_N_WORLDS; w++) {
        run("refused", refused_body, NULL, ranks_worlds[w]);
    }
    run("bystander", bystander_body, NULL, 3);
    run("bystander", bystander_body, NULL, 4);
    return n_failures != 0;
}
