/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer kernel on every level that this CPU has. */
#include "support/optim_tests.h"

int main(void)
{
    int n_failed = 0;

    for (size_t i = 0; i < tally__n_levels; i++) {
        if (tally__levels[i].usable()) {
            n_failed += optim_test_level(&tally__levels[i]);
        }
    }
    return n_failed == 0 ? 0 : 1;
}
