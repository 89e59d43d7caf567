/* SPDX-License-Identifier: Apache-2.0 */
/* Reads boot ID, host name, network namespace and CPUs from Linux. Any thread. */
#include "base/machine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(cpu_set_t) == sizeof(struct tally__cpus), "a set of CPUs travels as it is");

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

void tally__own_cpus(struct tally__cpus *cpus)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        /* The machine has more CPUs than the set: count as many as fit. */
        memset(&set, 0xff, sizeof set);
    }
    memcpy(cpus, &set, sizeof *cpus);
}

void tally__add_cpus(struct tally__cpus *to, const struct tally__cpus *from)
{
    for (size_t i = 0; i < sizeof to->bits / sizeof to->bits[0]; i++) {
        to->bits[i] |= from->bits[i];
    }
}

int tally__count_cpus(const struct tally__cpus *cpus)
{
    cpu_set_t set;

    memcpy(&set, cpus, sizeof set);
    return CPU_COUNT(&set);
}

bool tally__leaves_no_cpu(int n)
{
    struct tally__cpus own;
    int n_own;

    tally__own_cpus(&own);
    n_own = tally__count_cpus(&own);
    return n_own <= n && n_own >= sysconf(_SC_NPROCESSORS_ONLN);
}
