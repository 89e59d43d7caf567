/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket plan: which parameters travel together. Parameters are taken in a given order and
 * gathered per dtype; a bucket is closed when its bytes reach its cap, so it may exceed the cap by
 * one parameter. Each dtype advances through the list of caps on its own; the last cap repeats.
 * The remaining parameters make one bucket per dtype, in the order of the buckets' first
 * parameters.
 */
#ifndef TALLY_DDP_PLAN_H
#define TALLY_DDP_PLAN_H

#include <stddef.h>

struct tally__plan_item {
    size_t bytes;
    int dtype;
};

/* bucket[k] of entry k of the order; buckets are numbered in the order they were closed. */
struct tally__plan {
    size_t n_buckets;
    size_t *bucket; /* per entry of the order; the caller's array */
};

/* Plans n items in the order given (order[k] is an index of items). n_caps >= 1. */
void tally__plan_make(const struct tally__plan_item *items, const int *order, size_t n,
                      const size_t *caps, size_t n_caps, struct tally__plan *plan);

#endif
