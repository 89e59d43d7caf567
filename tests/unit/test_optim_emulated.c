/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer kernel of the AVX-512 source, compiled with portable intrinsics, so that its
 * logic is tested on machines without AVX-512 too. */
#include "num/low_rank.h"
#include "num/num.h"
#include "num/optim.h"
#include "support/optim_tests.h"

static int always(void)
{
    return 1;
}

int main(void)
{
    const struct tally__isa isa = {"avx512, emulated", always, &tally__kernels_avx512,
                                   &tally__low_rank_avx512, &tally__optim_avx512};

    return optim_test_isa(&isa) == 0 ? 0 : 1;
}
