/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock: nanoseconds since some moment in the past, the same for all processes. */
#ifndef TALLY_BASE_CLOCK_H
#define TALLY_BASE_CLOCK_H

#include <stdint.h>

#define TALLY__NS_PER_SECOND UINT64_C(1000000000)

uint64_t tally__now_ns(void);

#endif
