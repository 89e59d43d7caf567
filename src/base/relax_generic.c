/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a spin loop where the CPU has no such instruction: the call itself. */
#include "base/relax.h"

void tally__cpu_relax(void)
{
    __asm__ volatile("" : : : "memory");
}
