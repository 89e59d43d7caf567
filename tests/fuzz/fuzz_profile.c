/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a profile: what is read is written to a text that is read to the same bytes again,
 * and forecasts from it are numbers; what is not read is answered with one line; nothing leaks. One
 * thread.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fuzz/fuzz.h"
#include "support/counting_memory.h"
#include "tally.h"
#include "tune/forecast.h"

#define ROOM ((size_t)1 << 20)

static void check_forecasts(const struct tally__profile *profile)
{
    struct tally__cluster cluster = tally__profile_cluster(profile);
    struct tally__way way = {&profile->hooks[profile->n_hooks - 1], TALLY__WITHIN_HOSTS, 0};
    struct tally__forecast forecast;

    FUZZ_CHECK(tally__forecast(profile, &way, &cluster, &forecast) == TALLY_OK);
    FUZZ_CHECK(isfinite(forecast.step_s) && forecast.step_s >= 0);
    FUZZ_CHECK(forecast.low_s <= forecast.step_s && forecast.step_s <= forecast.high_s);
    FUZZ_CHECK(forecast.busy >= 0 && forecast.busy <= 1);
}

static void check_again(const struct tally__profile *profile)
{
    struct tally__profile again;
    char *first = tally__alloc(ROOM, "a test");
    char *second = tally__alloc(ROOM, "a test");
    size_t n = tally__profile_write(profile, first, ROOM);

    FUZZ_CHECK(first && second && n < ROOM);
    FUZZ_CHECK(tally__profile_read("again", first, n, &again) == TALLY_OK);
    FUZZ_CHECK(tally__profile_write(&again, second, ROOM) == n);
    FUZZ_CHECK(memcmp(first, second, n) == 0);
    tally__profile_free(&again);
    tally__free(first);
    tally__free(second);
}

int fuzz_one(const uint8_t *data, size_t n)
{
    size_t live = counting_memory_live();
    struct tally__profile profile;

    if (tally__profile_read("profile", (const char *)data, n, &profile) == TALLY_OK) {
        check_again(&profile);
        check_forecasts(&profile);
        tally__profile_free(&profile);
    } else {
        FUZZ_CHECK(tally_last_error()[0] != '\0' && !strchr(tally_last_error(), '\n'));
    }
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}
