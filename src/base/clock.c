/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks, sleeping, and waited time. Stateless; any thread enters. */
#include "base/clock.h"

#include <time.h>

uint64_t tally__now_ns(void)
{
    struct timespec now;

    /* Cannot fail: the clock exists on every system we build for and the pointer is valid. */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TALLY__NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

uint64_t tally__thread_ns(void)
{
    struct timespec used;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * TALLY__NS_PER_SECOND + (uint64_t)used.tv_nsec;
}

void tally__sleep_ns(uint64_t ns)
{
    const struct timespec pause = {.tv_sec = (time_t)(ns / TALLY__NS_PER_SECOND),
                                   .tv_nsec = (long)(ns % TALLY__NS_PER_SECOND)};

    (void)nanosleep(&pause, NULL);
}

uint64_t tally__count_waited(struct tally__waited *waited, uint64_t now)
{
    uint64_t interval_ns = waited->seen_ns == 0 ? 0 : now - waited->seen_ns;

    waited->seen_ns = now;
    waited->sum_ns +=
        interval_ns < TALLY__LONGEST_INTERVAL_NS ? interval_ns : TALLY__LONGEST_INTERVAL_NS;
    return waited->sum_ns;
}
