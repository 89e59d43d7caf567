/* SPDX-License-Identifier: Apache-2.0 */
/* Forecasts from a profile that is easy to compute by hand; reading and writing profiles; and what
 * a reader says about damaged ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/counting_memory.h"
#include "tally.h"
#include "tune/forecast.h"

#define MOST_TEXT 8192

/* Forward 10 ms, backward 90 ms with one bucket of 10 MB that is ready at its end; allreduce, and a
 * hook of a tenth of the bytes that codes for 20 ms. */
static void make(struct tally__profile *profile)
{
    assert_int_equal(tally__profile_make(1, 2, profile), TALLY_OK);
    (void)snprintf(profile->library, sizeof profile->library, "0.1.0");
    (void)snprintf(profile->source, sizeof profile->source, "test");
    profile->hosts = 2;
    profile->ranks_per_host = 1;
    profile->lanes = 1;
    profile->forward_s = 0.01;
    profile->backward_s = 0.09;
    profile->spread_s = 0;
    profile->cpu_share = 0;
    profile->cpu_s_per_byte = 0;
    profile->link = (struct tally__link){1e-4, 0, 1};
    profile->memory = (struct tally__link){1e-6, 0, 80};
    profile->buckets[0] = (struct tally__profile_bucket){10e6, 0.09};
    (void)snprintf(profile->hooks[0].name, TALLY__PROFILE_NAME, "allreduce");
    profile->hooks[0].exchanges = 1;
    profile->hooks[0].coding[0] = (struct tally__coding){10e6, 0};
    (void)snprintf(profile->hooks[1].name, TALLY__PROFILE_NAME, "tenth");
    profile->hooks[1].exchanges = 1;
    profile->hooks[1].error = 0.01;
    profile->hooks[1].coding[0] = (struct tally__coding){1e6, 0.02};
}

static void near(double value, double expected)
{
    assert_true(fabs(value - expected) <= 1e-9 + 1e-3 * fabs(expected));
}

static struct tally__forecast forecast(const struct tally__profile *profile, size_t hook,
                                       const struct tally__cluster *cluster, double period)
{
    const struct tally__way way = {&profile->hooks[hook], TALLY__FLAT, period};
    struct tally__forecast answer;

    assert_int_equal(tally__forecast(profile, &way, cluster, &answer), TALLY_OK);
    return answer;
}

static void test_step(void **state)
{
    struct tally__profile profile;
    struct tally__cluster cluster;
    struct tally__forecast plain;
    struct tally__forecast tenth;

    (void)state;
    make(&profile);
    cluster = tally__profile_cluster(&profile);
    plain = forecast(&profile, 0, &cluster, 0);
    tenth = forecast(&profile, 1, &cluster, 0);
    /* 10 MB at 1 Gbit/s are 80 ms, and 4 flights. */
    near(plain.step_s, 0.1 + 0.08 + 4e-4);
    near(plain.exposed_s, 0.0804);
    near(plain.host_bytes, 10e6);
    assert_int_equal(plain.binds, TALLY__TERM_LINE);
    assert_false(plain.is_far);
    near(plain.break_even_gbit, 0);
    near(tenth.step_s, 0.1 + 0.02 + 0.008 + 4e-4);
    assert_int_equal(tenth.binds, TALLY__TERM_CODING);
    /* 9 MB saved for 20 ms: 3.6 Gbit/s. */
    near(tenth.break_even_gbit, 3.6);
    /* The hopeful view codes while the line is busy; the doubtful one has nine tenths of the line.
     */
    near(tenth.low_s, 0.1 + 0.02 + 4e-4);
    near(tenth.high_s, 0.1 + 0.02 + 0.008 / 0.9 + 4e-4);
    tally__profile_free(&profile);
}

static void test_periods_and_spread(void **state)
{
    struct tally__profile profile;
    struct tally__cluster cluster;

    (void)state;
    make(&profile);
    cluster = tally__profile_cluster(&profile);
    near(forecast(&profile, 0, &cluster, 10).step_s, 0.1 + 0.0804 / 10);
    near(forecast(&profile, 0, &cluster, 10).host_bytes, 1e6);
    /* The slowest of 100 ranks is 2.5 standard deviations late; over 100 steps a tenth of that. */
    profile.spread_s = 0.1;
    profile.hosts = 100;
    cluster.hosts = 100;
    cluster.link.gbit = 1e4;
    near(forecast(&profile, 0, &cluster, 100).step_s - 0.1, 0.1 * tally__slowest(100, false) / 10);
    assert_int_equal(forecast(&profile, 0, &cluster, 0).binds, TALLY__TERM_SLOWEST);
    tally__profile_free(&profile);
}

/* More than ten times from what was measured, up or down, is far. */
static void test_far(void **state)
{
    struct tally__profile profile;
    struct tally__cluster cluster;

    (void)state;
    make(&profile);
    cluster = tally__profile_cluster(&profile);
    cluster.hosts = 20;
    cluster.link.gbit = 10;
    assert_false(forecast(&profile, 0, &cluster, 0).is_far);
    cluster.hosts = 21;
    assert_true(forecast(&profile, 0, &cluster, 0).is_far);
    cluster.hosts = 2;
    cluster.link.gbit = 0.09;
    assert_true(forecast(&profile, 0, &cluster, 0).is_far);
    cluster.link = (struct tally__link){2e-3, 0, 1};
    assert_true(forecast(&profile, 0, &cluster, 0).is_far);
    cluster.hosts = 100000;
    assert_true(forecast(&profile, 0, &cluster, 0).messages > 199998);
    tally__profile_free(&profile);
}

/* ---- the file ---- */

static void test_round_trip(void **state)
{
    struct tally__profile profile;
    struct tally__profile again;
    char first[MOST_TEXT];
    char second[MOST_TEXT];
    size_t n;

    (void)state;
    make(&profile);
    profile.forward_s = 1.0 / 3;
    n = tally__profile_write(&profile, first, sizeof first);
    assert_true(n < sizeof first && strlen(first) == n);
    assert_int_equal(tally__profile_write(&profile, NULL, 0), n);
    assert_int_equal(tally__profile_read("f", first, n, &again), TALLY_OK);
    assert_true(again.forward_s == profile.forward_s);
    assert_int_equal(tally__profile_write(&again, second, sizeof second), n);
    assert_string_equal(first, second);
    tally__profile_free(&again);
    tally__profile_free(&profile);
}

/* Reads the text of make() with one part replaced. */
static void refuses(const char *part, const char *by, const char *says)
{
    struct tally__profile profile;
    char text[MOST_TEXT];
    char changed[MOST_TEXT];
    char *at;

    make(&profile);
    (void)tally__profile_write(&profile, text, sizeof text);
    tally__profile_free(&profile);
    at = strstr(text, part);
    assert_non_null(at);
    (void)snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, by,
                   at + strlen(part));
    assert_int_equal(tally__profile_read("run.json", changed, strlen(changed), &profile),
                     TALLY_ARG);
    assert_string_equal(tally_last_error(), says);
}

static void test_damaged(void **state)
{
    struct tally__profile profile;

    (void)state;
    refuses("\"tally_profile\": 1", "\"tally_profile\": 2",
            "run.json is a profile of version 2; this tally reads version 1");
    refuses(
        "\"lanes\": 1", "\"lanes\": 0",
        "run.json, line 7: not a profile of tally: expected a number from 1 to 64 as \"lanes\"");
    refuses("\"forward_s\"", "\"forwards\"",
            "run.json, line 8: not a profile of tally: expected \"forward_s\"");
    refuses("\"backward_s\": 0.09", "\"backward_s\": nan",
            "run.json, line 9: not a profile of tally: expected a number from 0 to 1e+06 as "
            "\"backward_s\"");
    refuses("\"n_buckets\": 1", "\"n_buckets\": 900000000",
            "run.json, line 15: not a profile of tally: expected a number from 1 to 672 as "
            "\"n_buckets\"");
    refuses("\"n_buckets\": 1", "\"n_buckets\": 2",
            "run.json, line 17: not a profile of tally: expected ','");
    refuses("\"tenth\"", "\"allreduce\"", "run.json, line 22: the hook 'allreduce' is there twice");
    refuses("\"allreduce\"", "\"other\"",
            "run.json: the first hook of a profile is allreduce, not 'other'");
    refuses("]\n}\n", "]\n}\nmore", "run.json, line 25: not a profile of tally: expected the end");
    assert_int_equal(tally__profile_read("run.json", "", 0, &profile), TALLY_ARG);
    assert_string_equal(tally_last_error(),
                        "run.json, line 1: not a profile of tally: expected '{'");
}

static int read_and_forecast(void *user)
{
    struct tally__profile profile;
    struct tally__way way = {NULL, TALLY__FLAT, 0};
    struct tally__cluster cluster;
    struct tally__forecast answer;
    int rc = tally__profile_read("f", user, strlen(user), &profile);

    if (rc == TALLY_OK) {
        way.hook = &profile.hooks[1];
        cluster = tally__profile_cluster(&profile);
        rc = tally__forecast(&profile, &way, &cluster, &answer);
        tally__profile_free(&profile);
    }
    return rc;
}

static void test_out_of_memory(void **state)
{
    struct tally__profile profile;
    char text[MOST_TEXT];

    (void)state;
    make(&profile);
    (void)tally__profile_write(&profile, text, sizeof text);
    tally__profile_free(&profile);
    assert_true(counting_memory_exhaust(read_and_forecast, text) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step),    cmocka_unit_test(test_periods_and_spread),
        cmocka_unit_test(test_far),     cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_out_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
