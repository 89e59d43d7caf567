/* SPDX-License-Identifier: Apache-2.0 */
/* Places where ranks cannot meet, or that another process uses already. Nothing is left behind. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_opening.h"

#define SLACK_S 10.0

static char folder[64]; /* ends with a slash */

/* Both ranks of a world of two try to meet there. */
static void try_to_meet(struct fault_opening *opening, double open_timeout_s)
{
    fault_opening_init(opening, 2, folder, open_timeout_s);
}

static void existing_file(void **state)
{
    struct fault_opening opening;
    FILE *file;

    (void)state;
    try_to_meet(&opening, 30);
    file = fopen(opening.rendezvous, "w");
    assert_non_null(file);
    assert_true(fputs("mine", file) >= 0);
    assert_int_equal(fclose(file), 0);
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_ARG, "exists already");
    fault_expect_failure(&opening, 1, TALLY_ARG, "not a socket");
    assert_int_equal(unlink(opening.rendezvous), 0);
    fault_opening_end(&opening);
}

static void directory(void **state)
{
    struct fault_opening opening;

    (void)state;
    try_to_meet(&opening, 30);
    assert_int_equal(mkdir(opening.rendezvous, 0700), 0);
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_ARG, "exists already");
    fault_expect_failure(&opening, 1, TALLY_ARG, "not a socket");
    assert_int_equal(rmdir(opening.rendezvous), 0);
    fault_opening_end(&opening);
}

/* A link to a file that is there, and to one that is not: neither is followed. */
static void symbolic_link(void **state)
{
    static const char *const targets[] = {"/etc/hostname", "/tmp/tally-fault-not-there"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fault_opening opening;

        try_to_meet(&opening, 1);
        assert_int_equal(symlink(targets[i], opening.rendezvous), 0);
        fault_opening_start_all(&opening);
        fault_opening_wait(&opening, 1 + SLACK_S);
        fault_expect_failure(&opening, 0, TALLY_ARG, "exists already");
        assert_int_equal(opening.crew.report[1].n_failures, 1);
        assert_int_equal(unlink(opening.rendezvous), 0);
        fault_opening_end(&opening);
    }
}

static void missing_directory(void **state)
{
    struct fault_opening opening;

    (void)state;
    try_to_meet(&opening, 1);
    (void)snprintf(opening.rendezvous, sizeof opening.rendezvous, "%snowhere/tally-fault-%d",
                   folder, (int)getpid());
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, 1 + SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_SYSTEM, "No such file or directory");
    fault_expect_failure(&opening, 1, TALLY_TIMEOUT, "rank 0 did not come");
    fault_opening_end(&opening);
}

static void too_long(void **state)
{
    struct fault_opening opening;

    (void)state;
    try_to_meet(&opening, 30);
    (void)snprintf(opening.rendezvous, sizeof opening.rendezvous, "%.30s/tally-fault-%0120d",
                   folder, 1);
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_ARG, "is longer than");
    fault_expect_failure(&opening, 1, TALLY_ARG, "is longer than");
    fault_opening_end(&opening);
}

/* No name at all would be one that all jobs of the machine share. */
static void empty(void **state)
{
    static const char *const names[] = {"", "@"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fault_opening opening;

        fault_opening_init(&opening, 2, "@", 1);
        opening.opener[0].config.rendezvous = names[i];
        opening.opener[1].config.rendezvous = names[i];
        fault_opening_start_all(&opening);
        fault_opening_wait(&opening, SLACK_S);
        fault_expect_failure(&opening, 0, TALLY_ARG, "rendezvous");
        fault_expect_failure(&opening, 1, TALLY_ARG, "rendezvous");
        fault_opening_end(&opening);
    }
}

/* Rank 0 of an earlier job was killed while it waited, and its socket is still there. */
static void socket_of_the_dead(void **state)
{
    struct fault_opening opening;
    struct stat info;

    (void)state;
    try_to_meet(&opening, 30);
    fault_opening_start(&opening, 0);
    while (stat(opening.rendezvous, &info) != 0) {
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
    fault_crew_strike(&opening.crew, 0, SIGKILL);
    fault_opening_wait(&opening, SLACK_S);
    assert_int_equal(stat(opening.rendezvous, &info), 0);
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, 2 * SLACK_S);
    fault_expect_success(&opening, 0);
    fault_expect_success(&opening, 1);
    fault_opening_end(&opening);
}

/* Rank 0 dies while another rank waits with it: that one removes the socket. */
static void removed_by_the_living(void **state)
{
    struct fault_opening opening;
    struct stat info;

    (void)state;
    fault_opening_init(&opening, 3, folder, 30);
    fault_opening_start(&opening, 0);
    fault_opening_start(&opening, 1);
    while (stat(opening.rendezvous, &info) != 0) {
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
    fault_sleep_ns(300 * FAULT_NS_PER_MS);
    fault_crew_strike(&opening.crew, 0, SIGKILL);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 1, TALLY_PEER, "rank 0 left");
    fault_opening_end(&opening);
}

/* By the time the group is complete, another process has put something else at the path: it stays.
 */
static void replaced_path(void **state)
{
    struct fault_opening opening;
    struct stat info;
    FILE *file;

    (void)state;
    try_to_meet(&opening, 4);
    fault_opening_start(&opening, 0);
    while (stat(opening.rendezvous, &info) != 0) {
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
    assert_int_equal(unlink(opening.rendezvous), 0);
    file = fopen(opening.rendezvous, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    fault_opening_wait(&opening, 4 + SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_TIMEOUT, "rank 1 of 2");
    assert_int_equal(stat(opening.rendezvous, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(unlink(opening.rendezvous), 0);
    fault_opening_end(&opening);
}

/* Another job waits there: its rank 0 stays undisturbed and the second is told. */
static void socket_of_the_living(const char *before)
{
    struct fault_opening first;
    struct fault_opening second;

    fault_opening_init(&first, 2, before, 30);
    fault_opening_init(&second, 1, before, 30);
    fault_opening_start(&first, 0);
    fault_sleep_ns(200 * FAULT_NS_PER_MS);
    second.opener[0].config.world = 2;
    second.opener[0].config.rendezvous = first.rendezvous;
    fault_opening_start(&second, 0);
    fault_opening_wait(&second, SLACK_S);
    fault_expect_failure(&second, 0, TALLY_ARG, "another rank 0 of this job, or another job");
    fault_opening_start(&first, 1);
    fault_opening_wait(&first, 2 * SLACK_S);
    fault_expect_success(&first, 0);
    fault_expect_success(&first, 1);
    fault_opening_end(&second);
    fault_opening_end(&first);
}

static void living_with_path(void **state)
{
    (void)state;
    socket_of_the_living(folder);
}

static void living_without_path(void **state)
{
    (void)state;
    socket_of_the_living("@");
}

/* A process listens and never answers; once its queue is full, even connecting would block. */
static void deaf_listener(void **state)
{
    struct fault_opening opening;
    int listener;
    int first;
    int second;

    (void)state;
    fault_opening_init(&opening, 2, "@", 1);
    listener = fault_plain_listen(opening.rendezvous, SOCK_SEQPACKET, 0);
    assert_true(listener >= 0);
    first = fault_plain_connect(opening.rendezvous);
    second = fault_plain_connect(opening.rendezvous);
    fault_opening_start(&opening, 1);
    fault_opening_wait(&opening, 1 + SLACK_S);
    fault_expect_failure(&opening, 1, TALLY_TIMEOUT, "");
    (void)close(first);
    (void)close(second);
    (void)close(listener);
    fault_opening_end(&opening);
}

/* The socket of some other program, of another kind. */
static void foreign_program(void **state)
{
    struct fault_opening opening;
    int listener;

    (void)state;
    try_to_meet(&opening, 1);
    listener = fault_plain_listen(opening.rendezvous, SOCK_STREAM, 4);
    assert_true(listener >= 0);
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, 1 + SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_ARG, "exists already");
    fault_expect_failure(&opening, 1, TALLY_SYSTEM, "cannot connect");
    (void)close(listener);
    assert_int_equal(unlink(opening.rendezvous), 0);
    fault_opening_end(&opening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(existing_file),
        cmocka_unit_test(directory),
        cmocka_unit_test(symbolic_link),
        cmocka_unit_test(missing_directory),
        cmocka_unit_test(too_long),
        cmocka_unit_test(empty),
        cmocka_unit_test(socket_of_the_dead),
        cmocka_unit_test(removed_by_the_living),
        cmocka_unit_test(replaced_path),
        cmocka_unit_test(living_with_path),
        cmocka_unit_test(living_without_path),
        cmocka_unit_test(deaf_listener),
        cmocka_unit_test(foreign_program),
    };
    int n_failed;

    (void)snprintf(folder, sizeof folder, "/tmp/tally-fault-XXXXXX");
    if (!mkdtemp(folder)) {
        perror("test_fault_rendezvous: mkdtemp");
        return 1;
    }
    folder[strlen(folder)] = '/';
    (void)fault_private_dev_shm("64k");
    fault_leftovers_begin();
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (rmdir(folder) != 0) {
        (void)fprintf(stderr, "%s is not empty\n", folder);
        return 1;
    }
    return n_failed;
}
