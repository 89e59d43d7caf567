/* SPDX-License-Identifier: Apache-2.0 */
/* Reads boot ID, host name and network namespace from Linux. Any thread. */
#include "base/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tally__machine_here(struct tally__machine *machine)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    struct stat network = {0};

    memset(machine, 0, sizeof *machine);
    if (file) {
        (void)!fread(machine->boot_id, 1, sizeof machine->boot_id - 1, file);
        (void)fclose(file);
    }
    (void)gethostname(machine->host, sizeof machine->host - 1);
    if (stat("/proc/self/ns/net", &network) == 0) {
        machine->network = network.st_ino;
    }
}

bool tally__machine_is_same(const struct tally__machine *a, const struct tally__machine *b)
{
    return a->boot_id[0] != '\0' && memcmp(a, b, sizeof *a) == 0;
}
