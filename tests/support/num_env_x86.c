/* SPDX-License-Identifier: Apache-2.0 */
/* x86-64: MXCSR. */
#include <xmmintrin.h>

#include "support/num_env.h"

#define USUAL 0x1f80u
#define FLUSH_TO_ZERO 0x8000u
#define DENORMALS_ARE_ZERO 0x0040u
#define TOWARD_ZERO 0x6000u
#define UPWARD 0x4000u
/* The masks of invalid operations, divisions by zero and overflows. */
#define QUIET 0x0680u
#define FLAGS 0x3fu

static const unsigned environments[] = {
    USUAL,
    USUAL | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO,
    USUAL | TOWARD_ZERO,
    USUAL | UPWARD | FLUSH_TO_ZERO,
    USUAL & ~QUIET,
};
const unsigned num_n_environments = sizeof environments / sizeof environments[0];

void num_set_environment(unsigned i)
{
    _mm_setcsr(environments[i]);
}

uint64_t num_environment(void)
{
    return _mm_getcsr() & ~FLAGS;
}
