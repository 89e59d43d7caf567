/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock: nanoseconds since some moment in the past, the same for all processes. */
#ifndef TALLY_BASE_CLOCK_H
#define TALLY_BASE_CLOCK_H

#include <stdint.h>

#define TALLY__NS_PER_SECOND UINT64_C(1000000000)

uint64_t tally__now_ns(void);

/* A length of time in seconds. */
static inline double tally__seconds(uint64_t ns)
{
    return (double)ns / (double)TALLY__NS_PER_SECOND;
}

/* The time from one reading of a clock to another; 0 if the second came first. */
static inline uint64_t tally__ns_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* The later of two moments, or the longer of two times. */
static inline uint64_t tally__larger_ns(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The CPU time that the calling thread has used. */
uint64_t tally__thread_ns(void);

/* Sleeps; a signal may end it earlier. */
void tally__sleep_ns(uint64_t ns);

/*
 * Time that this process has waited, for deadlines: the sum of the intervals between readings of
 * the clock. Each interval counts for at most TALLY__LONGEST_INTERVAL_NS, so time during which the
 * process was stopped (SIGSTOP, a debugger) hardly counts. Zeroed: the wait begins with the next
 * reading.
 */
struct tally__waited {
    uint64_t seen_ns; /* the last reading */
    uint64_t sum_ns;
};

/* Longer than any interval between two readings while the process runs. */
#define TALLY__LONGEST_INTERVAL_NS (TALLY__NS_PER_SECOND / 10)

/* Adds the interval up to now, a reading of the clock. Returns the total time waited. */
uint64_t tally__count_waited(struct tally__waited *waited, uint64_t now);

#endif
