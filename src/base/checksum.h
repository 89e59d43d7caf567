/* SPDX-License-Identifier: Apache-2.0 */
/* A checksum against accidental damage; it does not protect against forgery. */
#ifndef TALLY_BASE_CHECKSUM_H
#define TALLY_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Checksum of n bytes; the same on every machine of one byte order. Arrays that differ only within
 * one run of eight bytes always have different checksums. */
uint64_t tally__checksum(const void *bytes, size_t n);

#endif
