/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a waiting loop where the CPU has none: the call itself. */
#include "base/relax.h"

void tally__cpu_relax(void)
{
    __asm__ volatile("" : : : "memory");
}
