/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applications that read all descriptors, close all of them, or pass them to children. A rank that
 * lives never counts as dead, and a dead rank never as alive.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_support.h"

#define SLACK_S 20.0
/* Longer than it takes until ranks ask whether the others live. */
#define LATE_NS (400 * FAULT_NS_PER_MS)

struct scene {
    int world;
    char rendezvous[100];
    void (*act)(void); /* for rank 1, once all ranks are there */
};

/* Rank 1 acts, comes late, and waits for the others, who come late too. */
static int act_and_meet(int rank, struct fault_report *report, void *user)
{
    const struct scene *scene = user;
    tally_group_config config = fault_config(rank, scene->world, scene->rendezvous, 20, 20);
    tally_group *group;
    int rc = tally_group_open(&config, &group);

    rc = rc == TALLY_OK ? fault_barrier(group) : rc;
    if (rc == TALLY_OK && rank == 1) {
        scene->act();
        fault_sleep_ns(LATE_NS);
    }
    rc = rc == TALLY_OK ? fault_barrier(group) : rc;
    if (rc == TALLY_OK && rank != 1) {
        fault_sleep_ns(LATE_NS);
    }
    rc = rc == TALLY_OK ? fault_barrier(group) : rc;
    if (rc != TALLY_OK) {
        fault_note_failure(report, rc);
    }
    (void)tally_group_close(group);
    fault_set_milestone(report, FAULT_CLOSED);
    return 0;
}

static void run(struct scene *scene, struct fault_crew *crew)
{
    static int n_scenes;

    (void)snprintf(scene->rendezvous, sizeof scene->rendezvous, "@tally-fault-%d-%d", (int)getpid(),
                   n_scenes++);
    if (!fault_crew_run(crew, scene->world, act_and_meet, scene, SLACK_S)) {
        fail_msg("a rank hangs");
    }
}

static void expect_all_well(const struct fault_crew *crew)
{
    for (int r = 0; r < crew->n; r++) {
        if (crew->report[r].n_failures > 0 || crew->member[r].exit_status != 0) {
            fail_msg("rank %d, exit status %x: %s", r, (unsigned)crew->member[r].exit_status,
                     crew->report[r].failure[0].text);
        }
    }
}

static void end(const struct scene *scene, struct fault_crew *crew)
{
    const char *left;

    fault_crew_free(crew);
    left = fault_leftovers(scene->rendezvous + 1);
    if (left) {
        fail_msg("%s", left);
    }
}

/* Calls visit with the number of every open descriptor. */
static void for_all_descriptors(void (*visit)(int fd))
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (folder && (entry = readdir(folder)) != NULL) {
        int fd = (int)strtol(entry->d_name, NULL, 10);

        if (entry->d_name[0] != '.' && fd != dirfd(folder)) {
            visit(fd);
        }
    }
    if (folder) {
        (void)closedir(folder);
    }
}

static void open_and_close(int fd)
{
    char path[64];
    int again;

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (again >= 0) {
        (void)close(again);
    }
}

/* Opens and closes each one, as a tool does that lists the open files of a process. */
static void look_at_all(void)
{
    for_all_descriptors(open_and_close);
}

static void close_one(int fd)
{
    if (fd > STDERR_FILENO) {
        (void)close(fd);
    }
}

/* As a daemon does when it starts. */
static void close_all(void)
{
    for_all_descriptors(close_one);
}

/* The same, and something else takes the numbers: pipes that can be read at once. */
static void replace_all(void)
{
    close_all();
    for (int i = 0; i < 20; i++) {
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) == 0) {
            (void)!write(ends[1], "x", 1);
        }
    }
}

/* Dies, and leaves a child that has all descriptors for some seconds more. */
static void die_and_leave_child(void)
{
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, 0);
        fault_sleep_ns(1500 * FAULT_NS_PER_MS);
        _exit(0);
    }
    (void)raise(SIGKILL);
}

static void all_stay_alive(void **state)
{
    void (*const acts[])(void) = {look_at_all, close_all, replace_all};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof acts / sizeof acts[0]; i++) {
        struct scene scene = {.world = 2 + (int)(i % 2), .act = acts[i / 2]};
        struct fault_crew crew;

        run(&scene, &crew);
        expect_all_well(&crew);
        end(&scene, &crew);
    }
}

static void dead_with_a_child(void **state)
{
    struct scene scene = {.world = 3, .act = die_and_leave_child};
    struct fault_crew crew;
    uint64_t start_ns = fault_now_ns();
    uint64_t told_ns;

    (void)state;
    run(&scene, &crew);
    told_ns = fault_now_ns();
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(crew.report[r].n_failures, 1);
        assert_int_equal(crew.report[r].failure[0].status, TALLY_PEER);
        assert_true(fault_blames(crew.report[r].failure[0].text, 1));
    }
    /* Long before the deadline; the child is an orphan of ours by now. */
    assert_true(told_ns - start_ns < UINT64_C(15000) * FAULT_NS_PER_MS);
    while (waitpid(-1, NULL, 0) > 0) {
    }
    end(&scene, &crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stay_alive),
        cmocka_unit_test(dead_with_a_child),
    };

    fault_leftovers_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
