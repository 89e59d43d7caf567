/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a waiting loop on x86-64. */
#include "base/relax.h"

void tally__cpu_relax(void)
{
    __builtin_ia32_pause();
}
