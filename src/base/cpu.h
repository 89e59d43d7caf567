/* SPDX-License-Identifier: Apache-2.0 */
/* The two things that every processor does in its own way; cpu_x86.c, cpu_arm.c or cpu_generic.c is
 * built. Any thread enters. */
#ifndef TALLY_BASE_CPU_H
#define TALLY_BASE_CPU_H

#include <stdint.h>

/* Tells the CPU that this is a spin loop. Some tens of cycles. */
void tally__cpu_relax(void);

/*
 * The floating-point environment of the calling thread: round to nearest, subnormals kept, no
 * traps. Programs built with -Ofast flush subnormals to zero in all their threads; every arithmetic
 * entry point works between enter and leave.
 */
typedef uint64_t tally__fpenv; /* the caller's environment, for leave to restore */

tally__fpenv tally__fpenv_enter(void);
void tally__fpenv_leave(tally__fpenv saved);

#endif
