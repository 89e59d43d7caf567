/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the C library that fail when a test says so: the N-th call of one function, once, in
 * this process. A program is linked with it by tally_failing_calls() of fault.cmake, which wraps
 * every function of the list in failing_calls.c where the linked objects call it.
 */
#ifndef TALLY_TESTS_FAILING_CALLS_H
#define TALLY_TESTS_FAILING_CALLS_H

#include <stdbool.h>
#include <stddef.h>

/* Names of the functions that opening a group calls, which can fail; NULL after the last. Writing
 * files adds mkdir, write, fsync, rename, unlink and rmdir. */
extern const char *const failing_calls_names[];

/* Makes the n-th call of this function from now on fail (1 is the next one); NULL: none. */
void failing_calls_arm(const char *name, size_t n);

/* From now on the call kills this process instead; a write first writes half of its bytes. */
void failing_calls_kill(bool kill);

/* Whether that call has come. */
bool failing_calls_hit(void);

#endif
