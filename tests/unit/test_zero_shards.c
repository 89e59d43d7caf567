/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shards of a bucket under a sharded optimizer: every element belongs to exactly one rank, in
 * rank order, and as evenly as elements or parameters allow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "train/zero_shards.h"

#define MOST_PARAMS 40
#define MOST_WORLD 9

static void check_whole(const size_t *start, size_t n, int world)
{
    assert_int_equal(start[0], 0);
    assert_int_equal(start[world], n);
    for (int r = 0; r < world; r++) {
        assert_true(start[r] <= start[r + 1]);
    }
}

static void test_elements(void **state)
{
    static const size_t lengths[] = {0,  1,   2,   3,   7,   24,   63,    64,
                                     96, 511, 512, 513, 577, 4096, 100003};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t n = lengths[i];
        size_t unit = tally__zero_unit(n);

        assert_int_equal(unit, n <= 512 ? 1 : 64);
        for (int world = 1; world <= MOST_WORLD; world++) {
            size_t n_units = (n + unit - 1) / unit;
            size_t most = (n_units + (size_t)world - 1) / (size_t)world * unit;
            size_t start[MOST_WORLD + 1];

            tally__zero_shard_elements(n, world, start);
            check_whole(start, n, world);
            for (int r = 0; r < world; r++) {
                assert_true(start[r + 1] - start[r] <= most);
                assert_int_equal(r > 0 && start[r] < n ? start[r] % unit : 0, 0);
            }
        }
    }
}

/* A bucket of parameters of these sizes. */
struct bucket {
    tally_bucket seen;
    tally_bucket_param params[MOST_PARAMS];
};

static void make(struct bucket *bucket, const size_t *sizes, int n_params)
{
    bucket->seen = (tally_bucket){.n_params = n_params, .params = bucket->params};
    for (int k = 0; k < n_params; k++) {
        bucket->params[k] = (tally_bucket_param){.offset = bucket->seen.n, .n = sizes[k]};
        bucket->seen.n += sizes[k];
    }
}

static bool is_boundary(const struct bucket *bucket, size_t element)
{
    bool found = element == 0;

    for (int k = 0; k < bucket->seen.n_params; k++) {
        found = found || element == bucket->params[k].offset + bucket->params[k].n;
    }
    return found;
}

/* Cuts, checks what always holds, and returns the most that any rank has of this bucket. */
static size_t cut(const struct bucket *bucket, int world, size_t *owned)
{
    size_t start[MOST_WORLD + 1];
    size_t before[MOST_WORLD];
    size_t most = 0;

    for (int r = 0; r < world; r++) {
        before[r] = owned[r];
    }
    tally__zero_shard_params(&bucket->seen, world, owned, start);
    check_whole(start, bucket->seen.n, world);
    for (int r = 0; r < world; r++) {
        size_t n = start[r + 1] - start[r];

        assert_true(is_boundary(bucket, start[r]));
        assert_int_equal(owned[r], before[r] + n);
        most = n > most ? n : most;
    }
    return most;
}

/* Nine, seven, five and three, once per rank: everybody gets 24. */
static void test_upstream_sizes(void **state)
{
    static const size_t sizes[] = {9, 7, 5, 3};

    (void)state;
    for (int world = 1; world <= MOST_WORLD; world++) {
        size_t owned[MOST_WORLD] = {0};
        size_t all[MOST_PARAMS];
        size_t start[MOST_WORLD + 1];
        struct bucket bucket;

        for (int k = 0; k < 4 * world; k++) {
            all[k] = sizes[k % 4];
        }
        make(&bucket, all, 4 * world);
        assert_int_equal(cut(&bucket, world, owned), 24);
        tally__zero_shard_elements(bucket.seen.n, world, start);
        for (int r = 0; r < world; r++) {
            assert_int_equal(start[r + 1] - start[r], 24);
        }
    }
}

/* With any sizes, no rank has more than its share and one parameter. */
static void test_params(void **state)
{
    uint64_t random = 7;

    (void)state;
    for (int trial = 0; trial < 2000; trial++) {
        int world = 1 + trial % MOST_WORLD;
        size_t owned[MOST_WORLD] = {0};
        size_t sizes[MOST_PARAMS];
        size_t largest = 0;
        struct bucket bucket;
        int n_params;

        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        n_params = 1 + (int)(random >> 33) % MOST_PARAMS;
        for (int k = 0; k < n_params; k++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            sizes[k] = (random >> 33) % 5 ? (random >> 40) % 1000 : 0;
            largest = sizes[k] > largest ? sizes[k] : largest;
        }
        make(&bucket, sizes, n_params);
        assert_true(cut(&bucket, world, owned) <= bucket.seen.n / (size_t)world + largest + 1);
    }
}

/* Buckets of one parameter each: no rank gets a second before all have one. */
static void test_buckets_balance(void **state)
{
    static const size_t size = 1000;

    (void)state;
    for (int world = 1; world <= MOST_WORLD; world++) {
        size_t owned[MOST_WORLD] = {0};
        struct bucket bucket;

        make(&bucket, &size, 1);
        for (int b = 0; b < 3 * world; b++) {
            assert_int_equal(cut(&bucket, world, owned), size);
        }
        for (int r = 0; r < world; r++) {
            assert_int_equal(owned[r], 3 * size);
        }
        make(&bucket, &size, 0);
        assert_int_equal(cut(&bucket, world, owned), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_upstream_sizes),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_buckets_balance),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
