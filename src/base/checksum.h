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

/*
 * A checksum for large arrays, as fast as memory is read: four chains side by side, of every fourth
 * group of eight bytes. Another value than tally__checksum gives; checkpoints contain it. The bytes
 * may come in pieces of any size; the value does not depend on the pieces.
 */
struct tally__wide_sum {
    uint64_t chains[4];
    unsigned char rest[32]; /* bytes that do not fill a group of each chain yet */
    size_t n_rest;
};
void tally__checksum_begin(struct tally__wide_sum *sum);
void tally__checksum_add(struct tally__wide_sum *sum, const void *bytes, size_t n);
uint64_t tally__checksum_end(const struct tally__wide_sum *sum);

/* The same of one array. */
uint64_t tally__checksum_wide(const void *bytes, size_t n);

#endif
