/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the allocations of all ranks between two points, for tests that link counting_memory.c.
 * Ranks that are threads share one counter, so all ranks meet before and after each reading.
 */
#ifndef TALLY_TESTS_COUNTING_RANKS_H
#define TALLY_TESTS_COUNTING_RANKS_H

#include "support/counting_memory.h"
#include "support/ranks.h"

/* Begins the count. */
static inline int counting_ranks_begin(tally_group *group, size_t *before)
{
    CHECK(group, ranks_meet(group) == 0);
    *before = counting_memory_calls();
    CHECK(group, ranks_meet(group) == 0);
    return 0;
}

/* Ends it: no rank may have allocated. */
static inline int counting_ranks_none(tally_group *group, size_t before)
{
    CHECK(group, ranks_meet(group) == 0);
    CHECK(group, counting_memory_calls() == before);
    CHECK(group, ranks_meet(group) == 0);
    return 0;
}

#endif
