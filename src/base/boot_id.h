/* SPDX-License-Identifier: Apache-2.0 */
/* Which start of which machine this is: two machines may have one name. */
#ifndef TALLY_BASE_BOOT_ID_H
#define TALLY_BASE_BOOT_ID_H

#include <stddef.h>

/* Writes it, cut off after bytes - 1 characters; an empty text where the system does not tell. */
void tally__boot_id(char *text, size_t bytes);

#endif
