/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floating-point environment of the calling thread: round to nearest, subnormals kept, no
 * traps. Programs built with -Ofast switch flushing to zero on for all their threads; every entry
 * point of arithmetic puts its work between enter and leave.
 */
#ifndef TALLY_NUM_FPENV_H
#define TALLY_NUM_FPENV_H

#include <stdint.h>

/* What leave needs in order to restore the caller's environment. */
typedef uint64_t tally__fpenv;

tally__fpenv tally__fpenv_enter(void);
void tally__fpenv_leave(tally__fpenv saved);

#endif
