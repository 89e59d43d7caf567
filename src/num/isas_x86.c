/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets of an x86-64 build. */
#include <cpuid.h>

#include "num/low_rank.h"
#include "num/num.h"
#include "num/optim.h"

static int always(void)
{
    return 1;
}

/* Not every compiler's __builtin_cpu_supports knows f16c. */
static int has_f16c(void)
{
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

/* __builtin_cpu_supports also asks whether the operating system saves the registers. */
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

const struct tally__isa tally__isas[] = {
    {"ref", always, &tally__kernels_ref, &tally__low_rank_ref, &tally__optim_ref},
    {"avx2", has_avx2, &tally__kernels_avx2, &tally__low_rank_avx2, &tally__optim_avx2},
    {"avx512", has_avx512, &tally__kernels_avx512, &tally__low_rank_avx512, &tally__optim_avx512},
};
const size_t tally__n_isas = sizeof tally__isas / sizeof tally__isas[0];
