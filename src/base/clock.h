/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock: nanoseconds since some moment in the past, the same for all processes. */
#ifndef TALLY_BASE_CLOCK_H
#define TALLY_BASE_CLOCK_H

#include <stdint.h>

#define TALLY__NS_PER_SECOND UINT64_C(1000000000)

uint64_t tally__now_ns(void);

/*
 * Time that this process has waited, for deadlines: the sum of the steps between looks at the
 * clock. Each step counts for TALLY__LONGEST_STEP_NS at most, so the time during which the process
 * was stopped (SIGSTOP, a debugger) hardly counts. All zero: the wait begins with the next look.
 */
struct tally__waited {
    uint64_t seen_ns; /* the last look */
    uint64_t sum_ns;
};

/* Longer than a wait ever leaves between two looks while the process runs. */
#define TALLY__LONGEST_STEP_NS (TALLY__NS_PER_SECOND / 10)

/* Looks: now is the clock's reading. Returns how long the wait has taken so far. */
uint64_t tally__count_waited(struct tally__waited *waited, uint64_t now);

#endif
