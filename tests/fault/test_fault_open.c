/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that die, lie or never come while a group is being opened: the others name the rank. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fault/fault_opening.h"

/* Beyond a deadline: for the verdict to reach everybody, and for a busy machine. */
#define SLACK_S 10.0

static void never_comes(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 4, "@", 1);
    fault_opening_start(&opening, 0);
    fault_opening_start(&opening, 2);
    fault_opening_wait(&opening, 1 + SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_TIMEOUT, "rank 1, 3 of 4");
    fault_expect_failure(&opening, 2, TALLY_TIMEOUT, "rank 1, 3 of 4");
    fault_opening_end(&opening);
}

/* The one who waits has waited a little longer than rank 0, and still hears who is missing. */
static void came_before_rank_0(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 3, "@", 1);
    opening.opener[0].delay_ns = 300 * FAULT_NS_PER_MS;
    fault_opening_start(&opening, 1);
    fault_opening_start(&opening, 0);
    fault_opening_wait(&opening, 1.3 + SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_TIMEOUT, "rank 2 of 3");
    fault_expect_failure(&opening, 1, TALLY_TIMEOUT, "rank 2 of 3");
    fault_opening_end(&opening);
}

static void rank_0_never_comes(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 3, "@", 1);
    fault_opening_start(&opening, 1);
    fault_opening_start(&opening, 2);
    fault_opening_wait(&opening, 1 + SLACK_S);
    fault_expect_failure(&opening, 1, TALLY_TIMEOUT, "rank 0 did not come");
    fault_expect_failure(&opening, 2, TALLY_TIMEOUT, "rank 0 did not come");
    fault_opening_end(&opening);
}

static void rank_0_dies(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 4, "@", 30);
    for (int i = 0; i < 3; i++) {
        fault_opening_start(&opening, i);
    }
    fault_sleep_ns(300 * FAULT_NS_PER_MS);
    fault_crew_strike(&opening.crew, 0, SIGKILL);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 1, TALLY_PEER, "rank 0 left");
    fault_expect_failure(&opening, 2, TALLY_PEER, "rank 0 left");
    fault_opening_end(&opening);
}

/* A process connects and leaves, or stays and says nothing: the ranks still meet, or say which rank
 * is missing. */
static void dies_before_hello(void **state)
{
    struct fault_opening opening;
    int connection = -1;

    (void)state;
    fault_opening_init(&opening, 2, "@", 30);
    fault_opening_start(&opening, 0);
    while (connection < 0) {
        fault_sleep_ns(FAULT_NS_PER_MS);
        connection = fault_plain_connect(opening.rendezvous);
    }
    (void)close(connection);
    fault_opening_start(&opening, 1);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_success(&opening, 0);
    fault_expect_success(&opening, 1);
    fault_opening_end(&opening);
}

static void stays_silent(void **state)
{
    struct fault_opening opening;
    int connection = -1;

    (void)state;
    fault_opening_init(&opening, 3, "@", 1);
    fault_opening_start(&opening, 0);
    while (connection < 0) {
        fault_sleep_ns(FAULT_NS_PER_MS);
        connection = fault_plain_connect(opening.rendezvous);
    }
    fault_opening_start(&opening, 1);
    fault_opening_wait(&opening, 1 + SLACK_S);
    (void)close(connection);
    fault_expect_failure(&opening, 0, TALLY_TIMEOUT, "2 of 3");
    fault_expect_failure(&opening, 1, TALLY_TIMEOUT, "2 of 3");
    fault_opening_end(&opening);
}

/* Rank 0 is stopped while the others wait for it: they name it. */
static void rank_0_is_stopped(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 3, "@", 1);
    fault_opening_start(&opening, 0);
    fault_sleep_ns(300 * FAULT_NS_PER_MS);
    fault_crew_strike(&opening.crew, 0, SIGSTOP);
    fault_opening_start(&opening, 1);
    fault_opening_start(&opening, 2);
    fault_sleep_ns(4000 * FAULT_NS_PER_MS);
    fault_crew_strike(&opening.crew, 0, SIGKILL);
    fault_opening_wait(&opening, 5 + SLACK_S);
    fault_expect_failure(&opening, 1, TALLY_TIMEOUT, "rank 0 is stopped");
    fault_expect_failure(&opening, 2, TALLY_TIMEOUT, "rank 0 is stopped");
    fault_opening_end(&opening);
}

/*
 * The victim has said hello and dies; the last rank completes the world, and all ranks hear of it:
 * those with a lower number, who have been welcomed already, and those with a higher.
 */
static void dies_after_hello(void **state)
{
    (void)state;
    for (int victim = 1; victim < 4; victim++) {
        struct fault_opening opening;
        int last = victim == 1 ? 2 : 1;
        char words[24];

        fault_opening_init(&opening, 4, "@", 30);
        for (int i = 0; i < 4; i++) {
            if (i != last) {
                fault_opening_start(&opening, i);
            }
        }
        fault_sleep_ns(300 * FAULT_NS_PER_MS);
        fault_crew_strike(&opening.crew, victim, SIGKILL);
        fault_sleep_ns(50 * FAULT_NS_PER_MS);
        fault_opening_start(&opening, last);
        fault_opening_wait(&opening, 0.4 + SLACK_S);
        (void)snprintf(words, sizeof words, "rank %d ", victim);
        for (int i = 0; i < 4; i++) {
            if (i != victim) {
                fault_expect_failure(&opening, i, TALLY_PEER, words);
            }
        }
        fault_opening_end(&opening);
    }
}

static void claimed_twice(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 3, "@", 30);
    opening.opener[2].config.rank = 1;
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, SLACK_S);
    for (int i = 0; i < 3; i++) {
        fault_expect_failure(&opening, i, TALLY_MISMATCH, "two processes claim to be rank 1");
    }
    fault_opening_end(&opening);
}

static void other_world(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 2, "@", 30);
    opening.opener[1].config.world = 5;
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_MISMATCH, "rank 1 says 5 ranks, rank 0 says 2");
    fault_expect_failure(&opening, 1, TALLY_MISMATCH, "rank 1 says 5 ranks, rank 0 says 2");
    fault_opening_end(&opening);
}

static void other_lanes(void **state)
{
    struct fault_opening opening;

    (void)state;
    fault_opening_init(&opening, 2, "@", 30);
    opening.opener[1].config.lanes = 3;
    fault_opening_start_all(&opening);
    fault_opening_wait(&opening, SLACK_S);
    fault_expect_failure(&opening, 0, TALLY_MISMATCH, "rank 1 has 3 lanes, rank 0 has 1");
    fault_expect_failure(&opening, 1, TALLY_MISMATCH, "rank 1 has 3 lanes, rank 0 has 1");
    fault_opening_end(&opening);
}

static void rank_out_of_range(void **state)
{
    static const int places[][2] = {{2, 2}, {-1, 2}, {-7, 2}, {1 << 30, 2}, {0, -1}, {0, 1 << 30}};

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct fault_opening opening;

        fault_opening_init(&opening, 1, "@", 30);
        opening.opener[0].config.rank = places[i][0];
        opening.opener[0].config.world = places[i][1];
        fault_opening_start_all(&opening);
        fault_opening_wait(&opening, SLACK_S);
        fault_expect_failure(&opening, 0, TALLY_ARG,
                             places[i][1] == 2 ? "is not in 0..1" : "world of");
        fault_opening_end(&opening);
    }
}

/*
 * kill -9 at any moment of the opening. A survivor either fails at once and blames the victim, or
 * finds it missing at the deadline, or opens and hears of it at the first barrier.
 */
static void killed_while_opening(void **state)
{
    uint64_t random = 7;

    (void)state;
    for (int trial = 0; trial < 40; trial++) {
        struct fault_opening opening;
        int world = 2 + (int)fault_random(&random, 3);
        int victim = (int)fault_random(&random, (uint32_t)world);

        fault_opening_init(&opening, world, "@", 0.7);
        fault_opening_start_all(&opening);
        fault_sleep_ns(fault_random(&random, 6000) * UINT64_C(1000));
        fault_crew_strike(&opening.crew, victim, SIGKILL);
        fault_opening_wait(&opening, 0.7 + SLACK_S);
        for (int i = 0; i < world; i++) {
            const struct fault_report *report = &opening.crew.report[i];

            if (i != victim && report->n_failures > 0 &&
                !fault_blames(report->failure[0].text, victim)) {
                fail_msg("trial %d, victim %d: rank %d was told %s: %s", trial, victim, i,
                         tally_status_name(report->failure[0].status), report->failure[0].text);
            }
        }
        fault_opening_end(&opening);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_comes),          cmocka_unit_test(came_before_rank_0),
        cmocka_unit_test(rank_0_never_comes),   cmocka_unit_test(rank_0_dies),
        cmocka_unit_test(rank_0_is_stopped),    cmocka_unit_test(dies_before_hello),
        cmocka_unit_test(stays_silent),         cmocka_unit_test(dies_after_hello),
        cmocka_unit_test(claimed_twice),        cmocka_unit_test(other_world),
        cmocka_unit_test(other_lanes),          cmocka_unit_test(rank_out_of_range),
        cmocka_unit_test(killed_while_opening),
    };

    (void)fault_private_dev_shm("64k");
    fault_leftovers_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
