/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of a bucket a rank updates when the optimizer is sharded: elements start[r] up to
 * start[r + 1] are rank r's. start has one entry more than there are ranks. Arithmetic on sizes.
 */
#ifndef TALLY_TRAIN_ZERO_SHARDS_H
#define TALLY_TRAIN_ZERO_SHARDS_H

#include <stddef.h>

#include "tally_extend.h"

/*
 * Elements that stay together in a bucket of n: one where a whole exchange would take one phase,
 * so that few elements are shared out evenly; otherwise those of the exchange's own shards, so that
 * every rank sends what it would send for the whole mean.
 */
size_t tally__zero_unit(size_t n);

/* Parts that differ by one unit at most, whatever parameters they cut: the exchange's shards. */
void tally__zero_shard_elements(size_t n, int world, size_t *start);

/*
 * Parts that begin and end with parameters, as even as those allow. owned: elements that each rank
 * has of the buckets before; a rank with more of them gets less of this one. Adds what they get.
 */
void tally__zero_shard_params(const tally_bucket *bucket, int world, size_t *owned, size_t *start);

#endif
