/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel on every level this CPU can run. */
#include <stdio.h>

#include "support/num_tests.h"

int main(void)
{
    int n_failed = 0;

    for (size_t i = 0; i < tally__n_levels; i++) {
        if (tally__levels[i].usable()) {
            n_failed += num_test_level(&tally__levels[i]);
        } else {
            printf("%s: not on this CPU\n", tally__levels[i].name);
        }
    }
    return n_failed == 0 ? 0 : 1;
}
