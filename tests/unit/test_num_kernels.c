/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel on every instruction set this CPU can run. */
#include <stdio.h>

#include "support/num_tests.h"

int main(void)
{
    int n_failed = 0;

    for (size_t i = 0; i < tally__n_isas; i++) {
        if (tally__isas[i].usable()) {
            n_failed += num_test_isa(&tally__isas[i]);
        } else {
            printf("%s: not on this CPU\n", tally__isas[i].name);
        }
    }
    return n_failed == 0 ? 0 : 1;
}
