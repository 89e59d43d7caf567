/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways a rank can end with its group open, and what the others say: that it ended without
 * closing its group, that it died, or, where an exit handler closes the group, that it closed it.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_support.h"

#define VICTIM 1
#define HANG_S 60.0

struct scene {
    char rendezvous[64];
    int world;
    void (*end)(void); /* of the victim; NULL: it returns from its function */
    bool closes_late;  /* in an exit handler that is older than the group */
    bool splits;       /* the others wait in a sub-group, where the victim is rank 0 */
};

static tally_group *group_at_exit;

static void close_at_exit(void)
{
    (void)tally_group_close(group_at_exit);
}

static void end_by_exit(void)
{
    exit(0);
}

static void end_at_once(void)
{
    _exit(0);
}

static void end_by_signal(void)
{
    (void)raise(SIGKILL);
}

static int work(int rank, struct fault_report *report, void *user)
{
    const struct scene *scene = user;
    const tally_group_config config =
        fault_config(rank, scene->world, scene->rendezvous, HANG_S, HANG_S);
    tally_group *group = NULL;
    tally_group *inner = NULL;
    int rc;

    if (scene->closes_late && rank == VICTIM) {
        (void)atexit(close_at_exit);
    }
    rc = tally_group_open(&config, &group);
    rc = rc == TALLY_OK ? fault_barrier(group) : rc;
    if (rc == TALLY_OK && scene->splits) {
        rc = tally_group_split(group, 0, rank < VICTIM ? scene->world : rank, &inner);
    }
    if (rc != TALLY_OK) {
        fault_complain(report, "cannot begin: %s", tally_last_error());
        return 1;
    }
    if (rank == VICTIM) {
        group_at_exit = group;
        if (scene->end) {
            scene->end();
        }
        return 0;
    }
    fault_note_failure(report, fault_barrier(inner ? inner : group));
    (void)tally_group_close(inner);
    (void)tally_group_close(group);
    return 0;
}

static void play(struct scene *scene, const char *text)
{
    static int n_scenes;
    struct fault_crew crew;
    char part[80];

    (void)snprintf(scene->rendezvous, sizeof scene->rendezvous, "@tally-exit-%d-%d", (int)getpid(),
                   n_scenes++);
    (void)snprintf(part, sizeof part, "rank %d%s %s", VICTIM,
                   scene->splits ? " (0 of this sub-group)" : "", text);
    assert_true(fault_crew_run(&crew, scene->world, work, scene, HANG_S));
    for (int r = 0; r < scene->world; r++) {
        assert_string_equal(crew.report[r].complaint, "");
        if (r != VICTIM) {
            assert_int_equal(crew.report[r].failure[0].status, TALLY_PEER);
            if (!strstr(crew.report[r].failure[0].text, part)) {
                fail_msg("no '%s' in '%s'", part, crew.report[r].failure[0].text);
            }
        }
    }
    fault_crew_free(&crew);
}

static void ends_open(void **state)
{
    static void (*const ends[])(void) = {NULL, end_by_exit};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        for (int world = 2; world < 5; world++) {
            struct scene scene = {.world = world, .end = ends[i], .splits = world == 3};

            play(&scene, "ended without closing its group");
        }
    }
}

static void dies(void **state)
{
    static void (*const ends[])(void) = {end_at_once, end_by_signal};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct scene scene = {.world = 3, .end = ends[i / 2], .splits = i % 2 == 1};

        play(&scene, "died");
    }
}

static void closes_late(void **state)
{
    struct scene scene = {.world = 3, .closes_late = true};

    (void)state;
    play(&scene, "closed its group");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_open),
        cmocka_unit_test(dies),
        cmocka_unit_test(closes_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
