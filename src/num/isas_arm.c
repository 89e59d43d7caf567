/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets of a 64-bit ARM build: every such CPU has NEON. */
#include "num/low_rank.h"
#include "num/num.h"
#include "num/optim.h"

static int always(void)
{
    return 1;
}

const struct tally__isa tally__isas[] = {
    {"ref", always, &tally__kernels_ref, &tally__low_rank_ref, &tally__optim_ref},
    {"neon", always, &tally__kernels_neon, &tally__low_rank_neon, &tally__optim_neon},
};
const size_t tally__n_isas = sizeof tally__isas / sizeof tally__isas[0];
