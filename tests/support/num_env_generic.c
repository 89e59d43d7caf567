/* SPDX-License-Identifier: Apache-2.0 */
/* Any machine: the rounding modes of C. */
#include <fenv.h>

#include "support/num_env.h"

static const int environments[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD};
const unsigned num_n_environments = sizeof environments / sizeof environments[0];

void num_set_environment(unsigned i)
{
    (void)fesetround(environments[i]);
}

uint64_t num_environment(void)
{
    return (uint64_t)fegetround();
}
