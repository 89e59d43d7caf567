/* SPDX-License-Identifier: Apache-2.0 */
/* The list of what is in use in a rank's file: no overlap, aligned, first fit, nothing lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tally.h>

#include "base/memory.h"
#include "comm/shm/extents.h"
#include "support/counting_memory.h"

#define PAGE UINT64_C(4096)
#define HUGE (UINT64_C(2) << 20)

static void check(const struct tally__extents *extents)
{
    uint64_t end = 0;

    for (size_t i = 0; i < extents->n; i++) {
        assert_true(extents->used[i].offset >= end);
        end = extents->used[i].offset + extents->used[i].bytes;
    }
    assert_true(end <= extents->limit);
}

static void test_first_fit(void **state)
{
    struct tally__extents extents = {.limit = 64 * PAGE};
    uint64_t a;
    uint64_t b;
    uint64_t c;
    uint64_t d;

    (void)state;
    assert_int_equal(tally__extents_take(&extents, 4 * PAGE, PAGE, &a), TALLY_OK);
    assert_int_equal(tally__extents_take(&extents, 2 * PAGE, PAGE, &b), TALLY_OK);
    assert_int_equal(tally__extents_take(&extents, PAGE, PAGE, &c), TALLY_OK);
    assert_int_equal(a, 0);
    assert_int_equal(b, 4 * PAGE);
    assert_int_equal(c, 6 * PAGE);
    assert_int_equal(tally__extents_give(&extents, b), 2 * PAGE);
    assert_int_equal(tally__extents_give(&extents, b), 0);
    assert_int_equal(tally__extents_give(&extents, b + PAGE), 0);
    /* Too large for the hole, then exactly right for it. */
    assert_int_equal(tally__extents_take(&extents, 3 * PAGE, PAGE, &d), TALLY_OK);
    assert_int_equal(d, 7 * PAGE);
    assert_int_equal(tally__extents_take(&extents, 2 * PAGE, PAGE, &b), TALLY_OK);
    assert_int_equal(b, 4 * PAGE);
    check(&extents);
    tally__free(extents.used);
}

static void test_alignment(void **state)
{
    struct tally__extents extents = {.limit = 4 * HUGE};
    uint64_t small;
    uint64_t large;
    uint64_t other;

    (void)state;
    assert_int_equal(tally__extents_take(&extents, PAGE, PAGE, &small), TALLY_OK);
    assert_int_equal(tally__extents_take(&extents, HUGE, HUGE, &large), TALLY_OK);
    assert_int_equal(large, HUGE);
    /* Small allocations use the gaps that alignment left. */
    assert_int_equal(tally__extents_take(&extents, PAGE, PAGE, &other), TALLY_OK);
    assert_int_equal(other, PAGE);
    assert_int_equal(tally__extents_give(&extents, small), PAGE);
    assert_int_equal(tally__extents_take(&extents, HUGE, HUGE, &other), TALLY_OK);
    assert_int_equal(other, 2 * HUGE);
    check(&extents);
    tally__free(extents.used);
}

static void test_limit(void **state)
{
    struct tally__extents extents = {.limit = 4 * PAGE};
    uint64_t offset = 77;

    (void)state;
    assert_int_equal(tally__extents_take(&extents, 5 * PAGE, PAGE, &offset), TALLY_NOMEM);
    assert_int_equal(tally__extents_take(&extents, UINT64_MAX, PAGE, &offset), TALLY_NOMEM);
    assert_int_equal(offset, 77);
    assert_int_equal(tally__extents_take(&extents, 4 * PAGE, PAGE, &offset), TALLY_OK);
    assert_int_equal(tally__extents_take(&extents, PAGE, PAGE, &offset), TALLY_NOMEM);
    assert_int_equal(tally__extents_take(&extents, PAGE, HUGE, &offset), TALLY_NOMEM);
    assert_int_equal(tally__extents_give(&extents, 0), 4 * PAGE);
    assert_int_equal(extents.n, 0);
    tally__free(extents.used);
}

/* A mark goes with its extent, and counts for what lies in that whole. */
static void test_marks(void **state)
{
    struct tally__extents extents = {.limit = 64 * PAGE};
    uint64_t a;
    uint64_t b;

    (void)state;
    assert_int_equal(tally__extents_take(&extents, 4 * PAGE, PAGE, &a), TALLY_OK);
    assert_int_equal(tally__extents_take(&extents, 4 * PAGE, PAGE, &b), TALLY_OK);
    tally__extents_mark(&extents, b);
    tally__extents_mark(&extents, 63 * PAGE);
    assert_false(tally__extents_is_marked(&extents, a, 1));
    assert_false(tally__extents_is_marked(&extents, a + 4 * PAGE - 1, 2));
    assert_true(tally__extents_is_marked(&extents, b, 4 * PAGE));
    assert_true(tally__extents_is_marked(&extents, b + 5, 4 * PAGE - 5));
    assert_false(tally__extents_is_marked(&extents, b + 5, 4 * PAGE - 4));
    assert_false(tally__extents_is_marked(&extents, b + 4 * PAGE, 0));
    assert_int_equal(tally__extents_give(&extents, b), 4 * PAGE);
    assert_int_equal(tally__extents_take(&extents, 4 * PAGE, PAGE, &b), TALLY_OK);
    assert_false(tally__extents_is_marked(&extents, b, 1));
    tally__free(extents.used);
}

/* Many at random, against the rule that nothing overlaps and all can be given back. */
static void test_random(void **state)
{
    struct tally__extents extents = {.limit = 256 * HUGE};
    uint64_t held[200];
    uint64_t bytes[200] = {0};
    uint32_t random = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint32_t k;

        random = random * 1664525u + 1013904223u;
        k = (random >> 8) % 200;
        if (bytes[k]) {
            assert_int_equal(tally__extents_give(&extents, held[k]), bytes[k]);
            bytes[k] = 0;
        } else {
            uint64_t align = random >> 20 & 1 ? HUGE : PAGE;

            bytes[k] = ((random >> 21) % 600 + 1) * PAGE;
            assert_int_equal(tally__extents_take(&extents, bytes[k], align, &held[k]), TALLY_OK);
            assert_int_equal(held[k] % align, 0);
        }
        if (i % 100 == 0) {
            check(&extents);
        }
    }
    tally__free(extents.used);
}

static int take_many(void *user)
{
    struct tally__extents extents = {.limit = 1000 * PAGE};
    int rc = TALLY_OK;

    (void)user;
    for (int i = 0; rc == TALLY_OK && i < 40; i++) {
        uint64_t offset;
        size_t before = extents.n;

        rc = tally__extents_take(&extents, PAGE, PAGE, &offset);
        assert_int_equal(extents.n, before + (rc == TALLY_OK));
    }
    tally__free(extents.used);
    return rc;
}

static void test_nomem(void **state)
{
    (void)state;
    assert_true(counting_memory_exhaust(take_many, NULL) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_fit), cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_limit),     cmocka_unit_test(test_random),
        cmocka_unit_test(test_nomem),     cmocka_unit_test(test_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
