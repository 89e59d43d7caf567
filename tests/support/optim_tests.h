/* SPDX-License-Identifier: Apache-2.0 */
/* The bits of every optimizer's kernels on an instruction set are those of the reference, whole or
 * in pieces. */
#ifndef TALLY_TESTS_OPTIM_TESTS_H
#define TALLY_TESTS_OPTIM_TESTS_H

#include "num/num.h"

/* Runs the tests of all variants on an instruction set; the number that failed. */
int optim_test_isa(const struct tally__isa *isa);

#endif
