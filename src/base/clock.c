/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. Keeps no state; any thread enters. */
#include "base/clock.h"

#include <time.h>

uint64_t tally__now_ns(void)
{
    struct timespec now;

    /* Cannot fail: the clock exists on every system we build for and the pointer is valid. */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TALLY__NS_PER_SECOND + (uint64_t)now.tv_nsec;
}
