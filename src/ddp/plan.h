/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bucket plan: which parameters travel together. Parameters are taken in a given order and
 * gathered per kind, which is their dtype and their class; a bucket is closed when its bytes reach
 * its cap, so it may exceed the cap by one parameter. Each kind advances through the list of caps
 * on its own; the last cap repeats. The remaining parameters make one bucket per kind, in the order
 * of the buckets' first parameters.
 */
#ifndef TALLY_DDP_PLAN_H
#define TALLY_DDP_PLAN_H

#include <stddef.h>

struct tally__plan_item {
    size_t bytes;
    int dtype;
    unsigned char own_class; /* below TALLY__MOST_CLASSES (hook/hook.h) */
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
