/* SPDX-License-Identifier: Apache-2.0 */
/* Other processors: of the floating-point environment <fenv.h> knows the rounding mode only. */
#include "base/cpu.h"

#include <fenv.h>

tally__fpenv tally__fpenv_enter(void)
{
    int saved = fegetround();

    if (saved != FE_TONEAREST) {
        (void)fesetround(FE_TONEAREST);
    }
    return (tally__fpenv)saved;
}

void tally__fpenv_leave(tally__fpenv saved)
{
    if ((int)saved != FE_TONEAREST) {
        (void)fesetround((int)saved);
    }
}

/* The call itself is the pause. */
void tally__cpu_relax(void)
{
    __asm__ volatile("" : : : "memory");
}
