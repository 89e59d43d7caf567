/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit ARM: FPCR. */
#include "support/num_env.h"

#define FLUSH_TO_ZERO (UINT64_C(1) << 24)
#define DEFAULT_NAN (UINT64_C(1) << 25)
#define TOWARD_ZERO (UINT64_C(3) << 22)
#define UPWARD (UINT64_C(1) << 22)

static const uint64_t environments[] = {
    0,
    FLUSH_TO_ZERO,
    TOWARD_ZERO,
    UPWARD | FLUSH_TO_ZERO | DEFAULT_NAN,
};
const unsigned num_n_environments = sizeof environments / sizeof environments[0];

void num_set_environment(unsigned i)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(environments[i]) : "memory");
}

uint64_t num_environment(void)
{
    uint64_t value;

    __asm__ volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
}
