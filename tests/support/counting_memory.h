/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door to the heap that counts, and that fails the N-th call. A program linked with it has it
 * instead of base/memory.c, because it defines all functions of base/memory.h.
 */
#ifndef TALLY_TESTS_COUNTING_MEMORY_H
#define TALLY_TESTS_COUNTING_MEMORY_H

#include <stddef.h>

/* Allocations since the start of the program, failed ones included. */
size_t counting_memory_calls(void);

/* Blocks that are allocated and not yet freed. */
size_t counting_memory_live(void);

/* Makes the n-th allocation from now on fail (1 is the next one), once; 0 makes none fail. */
void counting_memory_fail_nth(size_t n);

/*
 * Runs scenario(user) with the first allocation failing, then the second, and so on, until it gets
 * through without meeting the failure. scenario returns a tally status and frees whatever it made,
 * also when it fails. Every failed run must return TALLY_NOMEM with a text and leave no block
 * behind. Returns how many allocations a whole run makes; fails the cmocka test otherwise.
 */
size_t counting_memory_exhaust(int (*scenario)(void *user), void *user);

#endif
