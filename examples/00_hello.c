/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest program: prints the version of tally and the instruction set it uses. */
#include <stdio.h>
#include <tally.h>

int main(void)
{
    const char *isa;

    if (tally_isa(&isa) != TALLY_OK) {
        fprintf(stderr, "tally: %s\n", tally_last_error());
        return 1;
    }
    printf("tally %s computes with %s\n", tally_version(), isa);
    return 0;
}
