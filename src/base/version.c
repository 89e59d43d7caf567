/* SPDX-License-Identifier: Apache-2.0 */
/* The library's version, which tally.h defines. */
#include "tally.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *tally_version(void)
{
    return TEXT(TALLY_VERSION_MAJOR) "." TEXT(TALLY_VERSION_MINOR) "." TEXT(TALLY_VERSION_PATCH);
}
