/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of fuzz_text.h. One thread. */
#include "fuzz/fuzz_text.h"

#include <string.h>

#include "base/status.h"
#include "fuzz/fuzz.h"

void fuzz_check_refusal(int rc)
{
    const char *text = tally_last_error();

    FUZZ_CHECK(rc == TALLY_ARG);
    FUZZ_CHECK(text[0] != '\0' && strlen(text) < TALLY__ERROR_BYTES - 1);
    for (; *text != '\0'; text++) {
        FUZZ_CHECK(*text >= ' ' && *text <= '~');
    }
}
