/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping until a 32-bit word changes, also across processes that share the word's memory. */
#ifndef TALLY_BASE_FUTEX_H
#define TALLY_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Sleeps while *word is seen, until a wake or for at most max_ns. Returns early for no reason at
 * times: callers look again in a loop.
 */
void tally__futex_wait(const _Atomic uint32_t *word, uint32_t seen, uint64_t max_ns);

/* Wakes everybody who sleeps on word. */
void tally__futex_wake(const _Atomic uint32_t *word);

#endif
