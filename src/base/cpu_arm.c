/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit ARM. The floating-point environment is FPCR, and zero is what the procedure call standard
 * starts a program with: round to nearest, no flush-to-zero, no default NaN, no traps. */
#include "base/cpu.h"

static void write_fpcr(uint64_t value)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory");
}

tally__fpenv tally__fpenv_enter(void)
{
    uint64_t saved;

    __asm__ volatile("mrs %0, fpcr" : "=r"(saved) : : "memory");
    if (saved != 0) {
        write_fpcr(0);
    }
    return saved;
}

void tally__fpenv_leave(tally__fpenv saved)
{
    if (saved != 0) {
        write_fpcr(saved);
    }
}

/* isb waits long enough to matter; yield does not. */
void tally__cpu_relax(void)
{
    __asm__ volatile("isb" : : : "memory");
}
