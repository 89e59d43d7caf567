/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that is stopped as a whole for longer than its deadline goes on afterwards: stopped time
 * does not count. One rank that is stopped alone is late, and is named.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_support.h"

#define MOST_RANKS 4
#define VICTIM 1
#define TIMEOUT_S 1.0
#define STOPPED_MS 2500
#define HANG_S 60.0

struct scene {
    char rendezvous[64];
    int world;
    int lanes;
    /* Written by each rank, read by the test: how many steps it has taken. */
    atomic_int n_steps[MOST_RANKS];
    atomic_int is_over; /* set by the test: ranks end after the step that all agree on */
};

/* Rank 0 takes its time, so the others wait nearly always. In short naps: the rest of a long one
 * would be over when the process goes on. */
static void compute(int rank)
{
    for (int i = 0; rank == 0 && i < 200; i++) {
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
}

/* Rank 0 says whether to go on. */
static int step(tally_group *group, const struct scene *scene, float *go_on)
{
    tally_future *future;
    int rc;

    compute(tally_group_rank(group));
    *go_on = tally_group_rank(group) == 0 && !atomic_load(&scene->is_over) ? 1.0F : 0.0F;
    rc = tally_all_reduce(group, go_on, 1, TALLY_F32, TALLY_SUM, &future);
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    return rc;
}

static int work(int rank, struct fault_report *report, void *user)
{
    struct scene *scene = user;
    tally_group_config config =
        fault_config(rank, scene->world, scene->rendezvous, TIMEOUT_S, HANG_S);
    tally_group *group = NULL;
    float go_on = 1;
    int rc;

    config.lanes = scene->lanes;
    rc = tally_group_open(&config, &group);
    while (rc == TALLY_OK && go_on > 0) {
        rc = step(group, scene, &go_on);
        atomic_fetch_add(&scene->n_steps[rank], rc == TALLY_OK);
    }
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
    }
    (void)tally_group_close(group);
    return 0;
}

static void signal_all(const struct fault_crew *crew, int number)
{
    for (int r = 0; r < crew->n; r++) {
        assert_int_equal(kill(crew->member[r].pid, number), 0);
    }
}

static void await_steps(struct scene *scene, int n)
{
    uint64_t end_ns = fault_now_ns() + (uint64_t)(HANG_S * 1e9);

    for (int r = 0; r < scene->world; r++) {
        while (atomic_load(&scene->n_steps[r]) < n && fault_now_ns() < end_ns) {
            fault_sleep_ns(FAULT_NS_PER_MS);
        }
    }
}

static struct scene *begin(struct fault_crew *crew, int world, int lanes)
{
    struct scene *scene = fault_shared_alloc(sizeof *scene);

    scene->world = world;
    scene->lanes = lanes;
    (void)snprintf(scene->rendezvous, sizeof scene->rendezvous, "@tally-pause-%d-%d-%d",
                   (int)getpid(), world, lanes);
    fault_crew_init(crew, world);
    fault_crew_start_all(crew, work, scene);
    await_steps(scene, 1);
    return scene;
}

static void all_stop(int world, int lanes)
{
    struct fault_crew crew;
    struct scene *scene = begin(&crew, world, lanes);

    signal_all(&crew, SIGSTOP);
    fault_sleep_ns(STOPPED_MS * FAULT_NS_PER_MS);
    signal_all(&crew, SIGCONT);
    await_steps(scene, atomic_load(&scene->n_steps[0]) + 2);
    atomic_store(&scene->is_over, 1);
    assert_true(fault_crew_wait(&crew, HANG_S));
    for (int r = 0; r < world; r++) {
        assert_string_equal(crew.report[r].failure[0].text, "");
        assert_int_equal(crew.member[r].exit_status, 0);
    }
    fault_crew_free(&crew);
    fault_shared_free(scene, sizeof *scene);
}

static void whole_job(void **state)
{
    (void)state;
    all_stop(3, 1);
    all_stop(2, 0);
}

static void one_rank(void **state)
{
    struct fault_crew crew;
    struct scene *scene = begin(&crew, MOST_RANKS, 1);

    (void)state;
    fault_crew_strike(&crew, VICTIM, SIGSTOP);
    /* The others end by themselves; the stopped one is killed with the crew. */
    for (int i = 0; i < MOST_RANKS * 100000 && !fault_crew_all_ended(&crew); i++) {
        bool is_alone = true;

        for (int r = 0; r < MOST_RANKS; r++) {
            is_alone = is_alone && (r == VICTIM || crew.member[r].pid == 0);
        }
        if (is_alone) {
            break;
        }
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
    for (int r = 0; r < MOST_RANKS; r++) {
        if (r != VICTIM) {
            assert_int_equal(crew.member[r].pid, 0);
            assert_int_equal(crew.report[r].failure[0].status, TALLY_TIMEOUT);
            assert_true(fault_blames(crew.report[r].failure[0].text, VICTIM));
        }
    }
    fault_crew_free(&crew);
    fault_shared_free(scene, sizeof *scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_job),
        cmocka_unit_test(one_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
