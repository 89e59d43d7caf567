/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model against cases computed by hand: messages, flights and bytes of each exchange, the
 * slowest of many ranks, and the replay of a step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "comm/group.h"
#include "exchange/two_phase.h"
#include "tune/replay.h"

#define TINY 1e-12

static const struct tally__link line = {.latency_s = 1e-4, .message_s = 1e-6, .gbit = 1};
static const struct tally__link memory = {.latency_s = 1e-6, .message_s = 0, .gbit = 80};

static struct tally__load load(double hosts, double per_host, enum tally__scheme scheme,
                               double bytes)
{
    const struct tally__cluster cluster = {hosts, per_host, line, memory};
    const struct tally__parcel parcel = {bytes, bytes, 0.5, 1};

    return tally__load_of(&cluster, scheme, &parcel);
}

static void near(double value, double expected)
{
    assert_true(value >= expected - TINY && value <= expected + TINY);
}

/* Two hosts, 1 MB: half of it goes, half of the result comes back. 4 flights: the round, the
 * shards, the results, the end. */
static void test_two_phases(void **state)
{
    struct tally__load two = load(2, 1, TALLY__FLAT, 1e6);

    (void)state;
    near(two.host_bytes, 1e6);
    near(two.rank_bytes, 1e6);
    near(two.line_s, 8e-3);
    near(two.messages, 1 + 2 * 2 + 1); /* shards of 500 KB are two pieces */
    near(two.rounds_s, 4e-4 + 6e-6);
    near(two.code_s, 0.5);
    /* Four hosts: 3/4 goes, 3 results of 1/4 come; pieces of 250 KB. */
    near(load(4, 1, TALLY__FLAT, 1e6).host_bytes, 1.5e6);
    near(load(4, 1, TALLY__FLAT, 1e6).messages, 3 + 2 * 3 + 3);
}

/* A shard of up to 32 KiB goes with the line of the round. */
static void test_riders(void **state)
{
    struct tally__load rides = load(2, 1, TALLY__FLAT, 60000);

    (void)state;
    near(rides.messages, 1 + 1 + 1);
    near(rides.rounds_s, 3e-4 + 3e-6);
    near(rides.host_bytes, 60000);
}

static void test_one_phase(void **state)
{
    struct tally__load small = load(4, 1, TALLY__FLAT, 1000);

    (void)state;
    near(small.host_bytes, 3000);
    near(small.messages, 3 + 3);
    near(small.rounds_s, 2e-4 + 6e-6);
}

/* All ranks of a host share its link: 4 ranks on each of 2 hosts send 4 times 2 * 4/8 of it. */
static void test_shared_link(void **state)
{
    struct tally__load flat = load(2, 4, TALLY__FLAT, 8e6);
    struct tally__load within = load(2, 4, TALLY__WITHIN_HOSTS, 8e6);

    (void)state;
    near(flat.rank_bytes, 8e6);
    near(flat.host_bytes, 32e6);
    near(flat.line_s, 0.256);
    near(within.host_bytes, 8e6);
    /* The line, and memory at 10 GB/s: 2 * 3/4 of the bytes to add, all of them to copy. */
    near(within.line_s, 0.064 + 8e6 * 2.5 / 10e9);
    near(within.rounds_s, 4e-4 + 1e-6 * 4 + within.messages * 1e-6);
}

static void test_alone_and_near(void **state)
{
    struct tally__load alone = load(1, 1, TALLY__FLAT, 1e6);
    struct tally__load host = load(1, 2, TALLY__FLAT, 1e6);

    (void)state;
    near(alone.line_s + alone.rounds_s + alone.messages + alone.host_bytes, 0);
    near(host.host_bytes, 0);
    near(host.rank_bytes, 1e6);
    near(host.line_s, 1e-4);
    near(host.messages, 0);
}

/* Many ranks spread their lines in log2 W flights; a flat exchange still sends two messages to
 * each. */
static void test_many_ranks(void **state)
{
    struct tally__load many = load(100000, 1, TALLY__FLAT, 25e6);

    (void)state;
    near(tally__round_flights(9, 8), 1);
    near(tally__round_flights(10, 9), 4);
    near(tally__round_flights(100000, 99999), 17);
    near(many.messages, 17 + 2 * 99999 + 17);
    near(many.rounds_s, (17 + 2 + 17) * 1e-4 + many.messages * 1e-6);
}

/* Expected maxima of normal numbers: 0.5642 of 2, 1.5388 of 10, 2.5076 of 100 (tables); of
 * exponential numbers H(n) - 1. */
static void test_slowest(void **state)
{
    (void)state;
    near(tally__slowest(1, false), 0);
    assert_true(tally__slowest(2, false) > 0.55 && tally__slowest(2, false) < 0.60);
    assert_true(tally__slowest(10, false) > 1.53 && tally__slowest(10, false) < 1.56);
    assert_true(tally__slowest(100, false) > 2.49 && tally__slowest(100, false) < 2.52);
    assert_true(tally__slowest(10, true) > 1.92 && tally__slowest(10, true) < 1.94);
}

/* ---- replay ---- */

static struct tally__replay_bucket bucket(double ready_s, double code_s, double line_s)
{
    return (struct tally__replay_bucket){
        .ready_s = ready_s, .load = {.code_s = code_s, .line_s = line_s}, .cpu_s = code_s};
}

/* Two buckets on one lane: the second waits for the first. */
static void test_lane_order(void **state)
{
    struct tally__replay_bucket buckets[] = {bucket(2, 0, 5), bucket(4, 0, 3)};
    struct tally__replay replay = {6, 0, 1, 2, buckets};
    struct tally__replayed replayed = tally__replay(&replay);

    (void)state;
    near(buckets[0].start_s, 2);
    near(buckets[0].done_s, 7);
    near(buckets[1].start_s, 7);
    near(buckets[1].done_s, 10);
    near(replayed.backward_s, 6);
    near(replayed.exposed_s, 4);
}

/* Two lanes code at once, and take turns on the line. */
static void test_two_lanes(void **state)
{
    struct tally__replay_bucket buckets[] = {bucket(1, 1, 4), bucket(2, 1, 2)};
    struct tally__replay replay = {3, 0, 2, 2, buckets};
    struct tally__replayed replayed = tally__replay(&replay);

    (void)state;
    near(buckets[0].done_s, 6);
    near(buckets[1].start_s, 2);
    near(buckets[1].done_s, 8);
    near(replayed.exposed_s, 5);
}

/* Backward hides everything. */
static void test_hidden(void **state)
{
    struct tally__replay_bucket buckets[] = {bucket(1, 0, 1), bucket(3, 0, 1)};
    struct tally__replay replay = {5, 1, 1, 2, buckets};
    struct tally__replayed replayed = tally__replay(&replay);

    (void)state;
    near(replayed.backward_s, 5);
    near(replayed.exposed_s, 0);
}

/*
 * Coding takes all of backward's CPU: bucket 0 codes from 2 to 5 and stops backward, which had 2 of
 * 4 seconds left to bucket 1; so bucket 1 is ready at 7, and its coding costs another second of
 * the 3 that remain.
 */
static void test_stolen_cpu(void **state)
{
    struct tally__replay_bucket buckets[] = {bucket(2, 3, 0), bucket(4, 1, 0)};
    struct tally__replay replay = {7, 1, 1, 2, buckets};
    struct tally__replayed replayed = tally__replay(&replay);

    (void)state;
    near(buckets[0].done_s, 5);
    near(buckets[1].start_s, 7);
    near(buckets[1].done_s, 8);
    near(replayed.backward_s, 11);
    near(replayed.exposed_s, 0);
}

/* Half a share: while bucket 0 codes, from 1 to 5, backward does half of its work. */
static void test_shared_cpu(void **state)
{
    struct tally__replay_bucket buckets[] = {bucket(1, 4, 2), bucket(6, 0, 1)};
    struct tally__replay replay = {6, 0.5, 1, 2, buckets};
    struct tally__replayed replayed = tally__replay(&replay);

    (void)state;
    /* Coding is spread over the six seconds of the bucket: 2/3 of a CPU, half of it backward's. */
    near(buckets[0].done_s, 7);
    near(replayed.backward_s, 8);
    near(buckets[1].start_s, 8);
    near(replayed.exposed_s, 1);
}

/* One phase through memory ends where the exchange has it: beyond, a rank sends two shards of half
 * the data, in one more flight each. */
static void test_near_limit(void **state)
{
    static const tally_group group; /* without far ranks */
    double most = (double)tally__one_phase_bytes(&group);

    (void)state;
    near(load(1, 3, TALLY__FLAT, most).rank_bytes, 2 * most);
    near(load(1, 3, TALLY__FLAT, most + 3).rank_bytes, 4 * (most + 3) / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_limit),  cmocka_unit_test(test_two_phases),
        cmocka_unit_test(test_riders),      cmocka_unit_test(test_one_phase),
        cmocka_unit_test(test_shared_link), cmocka_unit_test(test_alone_and_near),
        cmocka_unit_test(test_many_ranks),  cmocka_unit_test(test_slowest),
        cmocka_unit_test(test_lane_order),  cmocka_unit_test(test_two_lanes),
        cmocka_unit_test(test_hidden),      cmocka_unit_test(test_stolen_cpu),
        cmocka_unit_test(test_shared_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
