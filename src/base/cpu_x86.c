/* SPDX-License-Identifier: Apache-2.0 */
/* x86-64. The floating-point environment is MXCSR: all of tally's arithmetic is SSE or wider. */
#include "base/cpu.h"

#include <xmmintrin.h>

/* All exceptions masked, round to nearest, neither flush-to-zero nor denormals-are-zero. */
#define MXCSR_OURS 0x1f80u
/* The sticky exception flags: they change nothing about how we compute. */
#define MXCSR_FLAGS 0x3fu

tally__fpenv tally__fpenv_enter(void)
{
    unsigned saved = _mm_getcsr();

    /* Reading costs little, writing drains the pipeline: write only where something differs. */
    if ((saved & ~MXCSR_FLAGS) != MXCSR_OURS) {
        _mm_setcsr(MXCSR_OURS);
    }
    return saved;
}

void tally__fpenv_leave(tally__fpenv saved)
{
    if (((unsigned)saved & ~MXCSR_FLAGS) != MXCSR_OURS) {
        _mm_setcsr((unsigned)saved);
    }
}

void tally__cpu_relax(void)
{
    __builtin_ia32_pause();
}
