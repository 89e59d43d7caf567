/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shards of a bucket for a sharded optimizer: rank r owns elements start[r] up to start[r + 1].
 * start has one entry more than there are ranks. Arithmetic on sizes.
 */
#ifndef TALLY_TRAIN_ZERO_SHARDS_H
#define TALLY_TRAIN_ZERO_SHARDS_H

#include <stddef.h>

#include "tally_extend.h"

/*
 * The unit of shards in a bucket of n elements: 1 in small buckets, so that
 * few elements are distributed evenly; otherwise the unit of the exchange's shards, so that every
 * rank sends as much as for the whole mean.
 */
size_t tally__zero_unit(size_t n);

/* Shards that differ by at most one unit and may split parameters: the exchange's shards. */
void tally__zero_shard_elements(size_t n, int world, size_t *start);

/*
 * Shards that do not split parameters, as even as possible. owned: the elements of earlier buckets
 * that each rank owns; a rank with more of them gets fewer here. Adds the new ones.
 */
void tally__zero_shard_params(const tally_bucket *bucket, int world, size_t *owned, size_t *start);

#endif
