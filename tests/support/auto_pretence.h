/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of links and coding that a test gives to the hook auto in place of measurements. */
#ifndef TALLY_TESTS_AUTO_PRETENCE_H
#define TALLY_TESTS_AUTO_PRETENCE_H

#include "hook/auto.h"

/* Four hosts with a rank each, no backward; every hook but the first takes 1 ns to code a byte. */
void auto_pretend(struct tally__profile *profile, struct tally__link link);

#endif
