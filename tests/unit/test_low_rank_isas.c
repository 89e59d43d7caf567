/* SPDX-License-Identifier: Apache-2.0 */
/* Every low-rank kernel on every instruction set that this CPU has. */
#include "support/low_rank_tests.h"

int main(void)
{
    int n_failed = 0;

    for (size_t i = 1; i < tally__n_isas; i++) {
        if (tally__isas[i].usable()) {
            n_failed += low_rank_test_isa(&tally__isas[i]);
        }
    }
    return n_failed == 0 ? 0 : 1;
}
