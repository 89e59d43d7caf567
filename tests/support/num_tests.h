/* SPDX-License-Identifier: Apache-2.0 */
/* One test per kernel, test_<kernel>(isa): a kernel without one does not link. */
#ifndef TALLY_TESTS_NUM_TESTS_H
#define TALLY_TESTS_NUM_TESTS_H

#include "num/num.h"

#define NUM_TEST_DECLARE(name, result, parameters, arguments) \
    void test_##name(const struct tally__isa *isa);
TALLY__KERNEL_LIST(NUM_TEST_DECLARE)
#undef NUM_TEST_DECLARE

/* Runs the tests of all kernels on an instruction set; the number that failed. */
int num_test_isa(const struct tally__isa *isa);

#endif
