/* SPDX-License-Identifier: Apache-2.0 */
/* A step of each optimizer on one element, in double precision, literally as its formula is
 * written; shares no code with the kernels. */
#ifndef TALLY_TESTS_OPTIM_ORACLE_H
#define TALLY_TESTS_OPTIM_ORACLE_H

#include "num/optim.h"

struct optim_element {
    double g;
    double p;
    double state[TALLY__OPTIM_STATES];
};

#define OPTIM_ORACLE_DECLARE(name)                                                \
    void optim_oracle_##name(const struct tally__##name##_options *o, uint64_t t, \
                             struct optim_element *x);
TALLY__OPTIM_LIST(OPTIM_ORACLE_DECLARE)
#undef OPTIM_ORACLE_DECLARE

#endif
