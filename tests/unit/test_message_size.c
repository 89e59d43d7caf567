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
    struct tally__slot *slots[2];
    struct tally__slot slot; /* of both ranks */
};

static void make(struct lonely *lonely)
{
    *lonely = (struct lonely){.group = {.size = 2}};
    lonely->lane.group = &lonely->group;
    lonely->group.far = &lonely->far;
    lonely->far.lanes = &lonely->far_lane;
    lonely->slots[0] = lonely->slots[1] = &lonely->slot;
    lonely->lane.slots = lonely->slots;
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

/* The first exchanges of short data touch new memory, the more the more messages they take: they
 * do not count. */
static void test_cold(void **state)
{
    const size_t bytes = 16 << 10;
    const size_t best = 8000;
    size_t last = 0;
    int n_cold[2] = {5, 5};
    struct lonely lonely;

    (void)state;
    make(&lonely);
    for (int i = 0; i < MANY; i++) {
        uint64_t ns = 5000;

        lonely.slot.line[0].call.word = tally__parts_choose(&lonely.lane, bytes);
        last = lonely.far_lane.part_bytes;
        if (last <= best) {
            ns = n_cold[last == best]-- > 0 ? 20000 : last == best ? 3000 : 4000;
        }
        tally__parts_note(&lonely.lane, bytes, ns);
    }
    assert_int_equal(last, best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_luck),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_cold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
