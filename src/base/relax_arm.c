/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a spin loop on 64-bit ARM: isb waits long enough to matter, yield does not. */
#include "base/relax.h"

void tally__cpu_relax(void)
{
    __asm__ volatile("isb" : : : "memory");
}
