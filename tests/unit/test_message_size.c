/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size of messages is the one whose median of all measured exchanges is least, for data of each
 * length: one exchange that was fast or slow by chance does not decide.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/messages.h"
#include "exchange/message_size.h"

#define SMALL ((uint64_t)48 << 10)
#define MEDIUM ((uint64_t)256 << 10)
#define LARGE ((uint64_t)1 << 20)
#define MANY 60

/* A rank with one far rank, as far as the choice looks at it. */
struct lonely {
    tally_group group;
    tally_lane lane;
    struct tally__far far;
    struct tally__far_lane far_lane;
};

static void make(struct lonely *lonely)
{
    *lonely = (struct lonely){.group = {.size = 2}};
    lonely->lane.group = &lonely->group;
    lonely->group.far = &lonely->far;
    lonely->far.lanes = &lonely->far_lane;
}

/* Makes many exchanges, of which an exchange with this size takes usual_ns, and its nth other_ns.
 * Those with other sizes take 1000 ns. */
static void measure(struct lonely *lonely, size_t bytes, uint64_t size, uint64_t usual_ns,
                    uint64_t other_ns, int nth)
{
    int n = 0;

    for (int i = 0; i < MANY; i++) {
        bool is_this = tally__message_propose(&lonely->lane, bytes) == size;
        uint64_t ns = is_this ? usual_ns : 1000;

        n += is_this;
        tally__message_note(&lonely->lane, bytes, is_this && n == nth ? other_ns : ns);
    }
}

static void test_luck(void **state)
{
    static const size_t lengths[] = {100 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    const uint64_t fast = 900;
    const uint64_t slow = 1100;
    const uint64_t very_fast = 1;
    const uint64_t very_slow = 1000000;

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int nth = 1; nth <= 3; nth++) {
            struct lonely lonely;

            make(&lonely);
            measure(&lonely, lengths[i], SMALL, fast, very_slow, nth);
            assert_int_equal(tally__message_propose(&lonely.lane, lengths[i]), SMALL);
            make(&lonely);
            measure(&lonely, lengths[i], LARGE, slow, very_fast, nth);
            assert_int_not_equal(tally__message_propose(&lonely.lane, lengths[i]), LARGE);
        }
    }
}

/* Each length chooses for itself; data that is not measured takes the first size. */
static void test_lengths(void **state)
{
    const uint64_t fast = 900;
    struct lonely lonely;

    (void)state;
    make(&lonely);
    measure(&lonely, 1 << 20, SMALL, fast, fast, 0);
    measure(&lonely, 16 << 20, LARGE, fast, fast, 0);
    assert_int_equal(tally__message_propose(&lonely.lane, 1 << 20), SMALL);
    assert_int_equal(tally__message_propose(&lonely.lane, 16 << 20), LARGE);
    assert_int_equal(tally__message_propose(&lonely.lane, 450 << 10), MEDIUM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_luck),
        cmocka_unit_test(test_lengths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
