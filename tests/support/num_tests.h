/* SPDX-License-Identifier: Apache-2.0 */
/* One test per kernel, test_<kernel>(level): a kernel without one does not link. */
#ifndef TALLY_TESTS_NUM_TESTS_H
#define TALLY_TESTS_NUM_TESTS_H

#include "num/num.h"

#define NUM_TEST_DECLARE(name, result, parameters, arguments) \
    void test_##name(const struct tally__level *level);
TALLY__KERNEL_LIST(NUM_TEST_DECLARE)
#undef NUM_TEST_DECLARE

/* Runs the tests of all kernels on a level; the number that failed. */
int num_test_level(const struct tally__level *level);

#endif
