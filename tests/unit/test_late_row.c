/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The row of steps in which a rank is late: one step in time does not end it, the second within ten
 * steps does, and the row goes on from the first one. Compared with a count over all steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ddp/ddp.h"

#define TEN 10
#define STEP_NS 1000
#define MOST 200

/* Steps: 'l' late, '.' in time. */
static struct tally__rank_lateness after(const char *steps)
{
    struct tally__rank_lateness rank = {0};

    for (size_t i = 0; steps[i]; i++) {
        rank.last_ns[TALLY_LATE_LANE - 1] = steps[i] == 'l' ? STEP_NS / 2 : 0;
        tally__lateness_count(&rank, steps[i] == 'l', STEP_NS);
    }
    return rank;
}

/* Begins with a late step, and no ten steps have two in time. */
static bool is_row(const char *steps, size_t n)
{
    size_t last = SIZE_MAX;

    for (size_t i = 0; i < n; i++) {
        if (steps[i] == '.' && last != SIZE_MAX && i - last < TEN) {
            return false;
        }
        last = steps[i] == '.' ? i : last;
    }
    return n > 0 && steps[0] == 'l';
}

static unsigned longest_row(const char *steps)
{
    size_t n = strlen(steps);

    for (size_t first = 0; first < n; first++) {
        if (is_row(steps + first, n - first)) {
            return (unsigned)(n - first);
        }
    }
    return 0;
}

static void expect(const char *steps, unsigned n, unsigned n_late)
{
    struct tally__rank_lateness rank = after(steps);

    assert_int_equal(longest_row(steps), n);
    assert_int_equal(rank.row.n, n);
    assert_int_equal(rank.row.steps_ns, (uint64_t)n * STEP_NS);
    assert_int_equal(rank.row.ns[TALLY_LATE_LANE - 1], (uint64_t)n_late * STEP_NS / 2);
    assert_int_equal(tally__late_cause(&rank), n > 0 ? TALLY_LATE_LANE : TALLY_LATE_NOT);
}

static void test_rows(void **state)
{
    (void)state;
    expect("", 0, 0);
    expect("...", 0, 0);
    expect("llllllllll", 10, 10);
    expect("..llllllllll", 10, 10);
    expect("llll.lllll", 10, 9);
    expect("lllllllll.", 10, 9);
    expect("llllllllll..", 0, 0);
    expect("ll.ll.lll", 6, 5);
    expect("l.lllllllll.", 12, 10);
    expect("l.llllllll.", 9, 8);
    expect("l.l.l.l.l.", 2, 1);
}

/* Every row of random steps. */
static void test_random(void **state)
{
    uint64_t random = 1;
    char steps[MOST + 1] = "";

    (void)state;
    for (unsigned part = 2; part < 16; part++) {
        for (size_t n = 0; n < MOST; n++) {
            struct tally__rank_lateness rank;

            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            steps[n] = (random >> 33) % part == 0 ? '.' : 'l';
            steps[n + 1] = '\0';
            rank = after(steps);
            assert_int_equal(rank.row.n, longest_row(steps));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
