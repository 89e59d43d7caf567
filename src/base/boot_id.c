/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Linux's boot ID. Any thread. */
#include "base/boot_id.h"

#include <stdio.h>

void tally__boot_id(char *text, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    text[0] = '\0';
    if (file) {
        text[fread(text, 1, bytes - 1, file)] = '\0';
        (void)fclose(file);
    }
}
