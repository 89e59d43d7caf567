/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floating-point environment of the calling thread: round to nearest, subnormals kept, no
 * traps. Programs built with -Ofast flush subnormals to zero in all their threads; every arithmetic
 * entry point works between enter and leave.
 */
#ifndef TALLY_NUM_FPENV_H
#define TALLY_NUM_FPENV_H

#include <stdint.h>

/* The caller's environment, for leave to restore. */
typedef uint64_t tally__fpenv;

tally__fpenv tally__fpenv_enter(void);
void tally__fpenv_leave(tally__fpenv saved);

#endif
