/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer kernel on every instruction set that this CPU has. */
#include "support/optim_tests.h"

int main(void)
{
    int n_failed = 0;

    for (size_t i = 0; i < tally__n_isas; i++) {
        if (tally__isas[i].usable()) {
            n_failed += optim_test_isa(&tally__isas[i]);
        }
    }
    return n_failed == 0 ? 0 : 1;
}
