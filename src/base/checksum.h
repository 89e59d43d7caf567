/* SPDX-License-Identifier: Apache-2.0 */
/* A checksum that notices any damage short of malice. */
#ifndef TALLY_BASE_CHECKSUM_H
#define TALLY_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes, the same on every machine of one byte order. Two arrays that differ within eight
 * bytes only always have different ones. */
uint64_t tally__checksum(const void *bytes, size_t n);

#endif
