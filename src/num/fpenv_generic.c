/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point environment where only C's <fenv.h> is known: the rounding mode. */
#include <fenv.h>

#include "num/fpenv.h"

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
