/* SPDX-License-Identifier: Apache-2.0 */
/* The floating-point environment on x86-64: MXCSR. All of tally's arithmetic is SSE or wider. */
#include <xmmintrin.h>

#include "num/fpenv.h"

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
