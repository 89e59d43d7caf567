/* SPDX-License-Identifier: Apache-2.0 */
/* Sleep until a 32-bit word changes, also across processes that share its memory. */
#ifndef TALLY_BASE_FUTEX_H
#define TALLY_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Sleeps while *word == seen, until a wake or for at most max_ns. May return early for no reason:
 * callers look again in a loop.
 */
void tally__futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t max_ns);

/* Wakes all threads that sleep on word. */
void tally__futex_wake(const _Atomic uint32_t *word);

#endif
