/* SPDX-License-Identifier: Apache-2.0 */
/* Another user's process: it must not join, nor lure anybody. Only root can become another user. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_opening.h"

#define STRANGER 65534
#define SLACK_S 10.0

static char folder[64]; /* ends with a slash; everybody may enter and write */

/* A stranger knocks as rank 1 and is sent away; the honest rank 1 comes later and is let in. */
static void stranger_knocks(const char *before, int status)
{
    struct fault_opening opening;

    fault_opening_init(&opening, 3, before, 30);
    for (int i = 0; i < 3; i++) {
        opening.opener[i].config.world = 2;
    }
    opening.opener[2].config.rank = 1;
    opening.opener[2].uid = STRANGER;
    fault_opening_start(&opening, 0);
    fault_sleep_ns(200 * FAULT_NS_PER_MS);
    fault_opening_start(&opening, 2);
    fault_sleep_ns(300 * FAULT_NS_PER_MS);
    fault_opening_start(&opening, 1);
    fault_opening_wait(&opening, 0.5 + SLACK_S);
    fault_expect_success(&opening, 0);
    fault_expect_success(&opening, 1);
    fault_expect_failure(&opening, 2, status, "rendezvous");
    fault_opening_end(&opening);
}

/* The mode of the path keeps a stranger from connecting at all. */
static void knocks_at_path(void **state)
{
    (void)state;
    stranger_knocks(folder, TALLY_SYSTEM);
}

/* A name without a file has no mode: both sides look at who the other is. */
static void knocks_at_name(void **state)
{
    (void)state;
    stranger_knocks("@", TALLY_SYSTEM);
}

/* The same, by a program that connects, sends any bytes, and ignores refusals. */
static int knock_plainly(int rank, struct fault_report *report, void *user)
{
    const struct fault_opening *opening = user;
    char bytes[32] = "let me in";
    int fd = -1;

    (void)rank;
    if (setuid(STRANGER) != 0) {
        fault_complain(report, "cannot become another user");
        return 1;
    }
    for (int i = 0; i < 1000 && fd < 0; i++) {
        fault_sleep_ns(FAULT_NS_PER_MS);
        fd = fault_plain_connect(opening->rendezvous);
    }
    if (fd < 0 || send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) < 0) {
        return 0;
    }
    fault_sleep_ns(500 * FAULT_NS_PER_MS);
    if (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
        fault_complain(report, "a stranger was answered");
    }
    return 0;
}

static void knocks_plainly(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 3, "@", 30);
    for (int i = 0; i < 2; i++) {
        opening.opener[i].config.world = 2;
    }
    opening.opener[1].delay_ns = 300 * FAULT_NS_PER_MS;
    fault_opening_start(&opening, 0);
    fault_crew_start(&opening.crew, 2, knock_plainly, &opening);
    fault_opening_start(&opening, 1);
    fault_opening_wait(&opening, 1 + SLACK_S);
    fault_expect_success(&opening, 0);
    fault_expect_success(&opening, 1);
    assert_string_equal(opening.crew.report[2].complaint, "");
    fault_opening_end(&opening);
}

/* A stranger plays rank 0: the honest rank 1 must not hand it its memory. */
static int play_rank_0(int rank, struct fault_report *report, void *user)
{
    const struct fault_opening *opening = user;
    char bytes[256];
    int listener;
    int fd;

    (void)rank;
    if (setuid(STRANGER) != 0) {
        fault_complain(report, "cannot become another user");
        return 1;
    }
    (void)umask(0);
    listener = fault_plain_listen(opening->rendezvous, SOCK_SEQPACKET, 8);
    if (listener < 0) {
        fault_complain(report, "the stranger cannot listen");
        return 1;
    }
    fault_set_milestone(report, FAULT_OPEN);
    fd = accept(listener, NULL, NULL);
    if (fd >= 0 && recv(fd, bytes, sizeof bytes, 0) > 0) {
        fault_complain(report, "rank 1 has spoken to a stranger");
    }
    return 0;
}

static void lured(const char *before)
{
    struct fault_opening opening;

    fault_opening_init(&opening, 2, before, 30);
    opening.start_ns = fault_now_ns();
    fault_crew_start(&opening.crew, 0, play_rank_0, &opening);
    while (atomic_load_explicit(&opening.crew.report[0].milestone, memory_order_acquire) ==
               FAULT_BORN &&
           !fault_crew_all_ended(&opening.crew)) {
        fault_sleep_ns(FAULT_NS_PER_MS);
    }
    fault_opening_start(&opening, 1);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 1, TALLY_SYSTEM, "belongs to another user");
    assert_string_equal(opening.crew.report[0].complaint, "");
    (void)unlink(opening.rendezvous);
    fault_opening_end(&opening);
}

static void lured_to_path(void **state)
{
    (void)state;
    lured(folder);
}

static void lured_to_name(void **state)
{
    (void)state;
    lured("@");
}

/* An honest rank 0 finds a stranger's socket, alive or dead: it may remove neither. */
static void strangers_socket(void **state)
{
    struct fault_opening opening;
    int listener;
    struct stat info;

    (void)state;
    fault_opening_init(&opening, 2, folder, 30);
    listener = fault_plain_listen(opening.rendezvous, SOCK_SEQPACKET, 8);
    assert_true(listener >= 0);
    assert_int_equal(chown(opening.rendezvous, STRANGER, (gid_t)-1), 0);
    (void)close(listener);
    fault_opening_start(&opening, 0);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_ARG, "exists already");
    assert_int_equal(stat(opening.rendezvous, &info), 0);
    assert_int_equal(unlink(opening.rendezvous), 0);
    fault_opening_end(&opening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knocks_at_path), cmocka_unit_test(knocks_at_name),
        cmocka_unit_test(knocks_plainly), cmocka_unit_test(lured_to_path),
        cmocka_unit_test(lured_to_name),  cmocka_unit_test(strangers_socket),
    };
    int n_failed;

    if (geteuid() != 0) {
        printf("skipped: only root can start a process of another user\n");
        return FAULT_SKIP;
    }
    (void)snprintf(folder, sizeof folder, "/tmp/tally-fault-XXXXXX");
    if (!mkdtemp(folder) || chmod(folder, 0777) != 0) {
        perror("test_fault_user: mkdtemp");
        return 1;
    }
    folder[strlen(folder)] = '/';
    fault_leftovers_begin();
    n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (rmdir(folder) != 0) {
        (void)fprintf(stderr, "%s is not empty\n", folder);
        return 1;
    }
    return n_failed;
}
