/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point environments that an application may have set, for the test that tally does not
 * depend on them. One file per machine, chosen by the build. */
#ifndef TALLY_TESTS_NUM_ENV_H
#define TALLY_TESTS_NUM_ENV_H

#include <stdint.h>

/* The environments 1..num_n_environments - 1 differ from the usual one, number 0. */
extern const unsigned num_n_environments;

/* Sets environment number i for the calling thread. */
void num_set_environment(unsigned i);

/* The control bits in force, without the sticky exception flags. */
uint64_t num_environment(void);

#endif
