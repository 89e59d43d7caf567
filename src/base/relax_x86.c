/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a spin loop on x86-64. */
#include "base/relax.h"

void tally__cpu_relax(void)
{
    __builtin_ia32_pause();
}
