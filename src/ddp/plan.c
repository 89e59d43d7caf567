/* SPDX-License-Identifier: Apache-2.0 */
/* The bucket plan: arithmetic on sizes. Keeps no state. */
#include "ddp/plan.h"

#include <assert.h>
#include <stdint.h>

#include "hook/hook.h"
#include "tally.h"

#define N_KINDS ((TALLY_U8 + 1) * TALLY__MOST_CLASSES)
#define OPEN SIZE_MAX

/* The bucket that a kind is filling. */
struct filling {
    size_t first; /* entry of the order that opened it, or OPEN when it is empty */
    size_t bytes;
    size_t cap; /* index of its cap */
};

static size_t kind_of(const struct tally__plan_item *item)
{
    assert(item->own_class < TALLY__MOST_CLASSES);
    return (size_t)item->dtype * TALLY__MOST_CLASSES + item->own_class;
}

/* Assigns the next bucket to every entry of the kind that has none yet. */
static void close_bucket(const struct tally__plan_item *items, const int *order, size_t end,
                         struct filling *filling, struct tally__plan *plan)
{
    size_t kind = kind_of(&items[order[filling->first]]);

    assert(filling->first < end);

    for (size_t k = filling->first; k < end; k++) {
        if (kind_of(&items[order[k]]) == kind && plan->bucket[k] == OPEN) {
            plan->bucket[k] = plan->n_buckets;
        }
    }
    plan->n_buckets++;
    filling->first = OPEN;
    filling->bytes = 0;
}

void tally__plan_make(const struct tally__plan_item *items, const int *order, size_t n,
                      const size_t *caps, size_t n_caps, struct tally__plan *plan)
{
    struct filling filling[N_KINDS];

    for (size_t d = 0; d < N_KINDS; d++) {
        filling[d] = (struct filling){.first = OPEN};
    }
    plan->n_buckets = 0;
    for (size_t k = 0; k < n; k++) {
        const struct tally__plan_item *item = &items[order[k]];
        struct filling *bucket = &filling[kind_of(item)];

        plan->bucket[k] = OPEN;
        if (bucket->first == OPEN) {
            bucket->first = k;
        }
        assert(bucket->cap < n_caps);
        bucket->bytes += item->bytes;
        if (bucket->bytes >= caps[bucket->cap]) {
            close_bucket(items, order, k + 1, bucket, plan);
            bucket->cap += bucket->cap + 1 < n_caps;
        }
    }
    /* The remaining buckets, in the order of their first entries. */
    for (size_t k = 0; k < n; k++) {
        assert(plan->bucket[k] == OPEN || plan->bucket[k] < plan->n_buckets);
        if (plan->bucket[k] == OPEN) {
            close_bucket(items, order, n, &filling[kind_of(&items[order[k]])], plan);
        }
    }
}
