/* SPDX-License-Identifier: Apache-2.0 */
/* Boot ID: unique per machine and boot; host names are not. */
#ifndef TALLY_BASE_BOOT_ID_H
#define TALLY_BASE_BOOT_ID_H

#include <stddef.h>

/* Writes the boot ID, truncated to bytes - 1 characters; an empty text where the system has none.
 */
void tally__boot_id(char *text, size_t bytes);

#endif
