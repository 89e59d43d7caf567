/* SPDX-License-Identifier: Apache-2.0 */
/* The shards of a sharded optimizer: arithmetic only. Keeps no state. */
#include "train/zero_shards.h"

#include <assert.h>
#include <math.h>

#include "exchange/layout.h"

/* Parameters up to this size are divided by elements: with a larger unit some ranks would get none.
 */
#define SMALL_BYTES ((size_t)2048)

size_t tally__zero_unit(size_t n)
{
    return n <= SMALL_BYTES / sizeof(float) ? 1 : TALLY__SHARD_UNIT;
}

void tally__zero_shard_elements(size_t n, int world, size_t *start)
{
    const struct tally__layout layout = {.n = n, .block = tally__zero_unit(n)};

    for (int r = 0; r < world; r++) {
        start[r] = tally__shard_of(&layout, world, r).start;
    }
    start[world] = n;
    assert(start[0] == 0 && start[world - 1] <= n);
}

/* The number of elements that ranks reach if n elements are distributed as evenly as possible on
 * top of their owned elements; no rank gives any away. */
static double target_of(size_t n, int world, const size_t *owned)
{
    double target = INFINITY;
    int n_below = world + 1;
    int before;

    /* Each pass leaves out the ranks above the target: it can only fall. */
    do {
        double sum = (double)n;

        before = n_below;
        n_below = 0;
        for (int r = 0; r < world; r++) {
            if ((double)owned[r] <= target) {
                sum += (double)owned[r];
                n_below++;
            }
        }
        target = sum / n_below;
    } while (n_below < before);
    return target;
}

/* The end of a parameter, or the start of the bucket, that is nearest to an element; the lower of
 * two. */
static size_t nearest(const tally_bucket *bucket, double element)
{
    size_t best = 0;

    for (int k = 0; k < bucket->n_params; k++) {
        size_t end = bucket->params[k].offset + bucket->params[k].n;

        best = fabs((double)end - element) < fabs((double)best - element) ? end : best;
    }
    return best;
}

void tally__zero_shard_params(const tally_bucket *bucket, int world, size_t *owned, size_t *start)
{
    double target = target_of(bucket->n, world, owned);
    double wanted = 0;

    start[0] = 0;
    for (int r = 0; r < world; r++) {
        double lacks = target - (double)owned[r];

        wanted += lacks > 0 ? lacks : 0;
        start[r + 1] = r + 1 < world ? nearest(bucket, wanted) : bucket->n;
        assert(start[r] <= start[r + 1] && start[r + 1] <= bucket->n);
        owned[r] += start[r + 1] - start[r];
    }
}
