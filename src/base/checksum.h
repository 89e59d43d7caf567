/* SPDX-License-Identifier: Apache-2.0 */
/* A checksum against accidental damage; it does not protect against forgery. */
#ifndef TALLY_BASE_CHECKSUM_H
#define TALLY_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of n bytes. before is the checksum of the bytes before them, or 0 where these are
 * the first: a list has one checksum, which depends on its order and on the size of each entry. The
 * same on every machine of one byte order. Two arrays that differ within eight bytes only always
 * have different ones. Saved blobs contain it: it must not change. */
uint64_t tally__checksum(uint64_t before, const void *bytes, size_t n);

#endif
