/* SPDX-License-Identifier: Apache-2.0 */
/* One test per low-rank kernel: its bits on an instruction set are those of the reference. */
#ifndef TALLY_TESTS_LOW_RANK_TESTS_H
#define TALLY_TESTS_LOW_RANK_TESTS_H

#include "num/num.h"

/* Runs the tests of all kernels on an instruction set; the number that failed. */
int low_rank_test_isa(const struct tally__isa *isa);

#endif
