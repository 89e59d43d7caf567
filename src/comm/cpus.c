/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs this process may run on. */
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "comm/domain.h"

_Static_assert(sizeof(cpu_set_t) == sizeof(struct tally__cpus), "a set of CPUs travels as it is");

void tally__own_cpus(struct tally__cpus *cpus)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        /* The machine has more CPUs than the set: count as many as fit. */
        memset(&set, 0xff, sizeof set);
    }
    memcpy(cpus, &set, sizeof *cpus);
}

int tally__count_cpus(const struct tally__cpus *cpus)
{
    cpu_set_t set;

    memcpy(&set, cpus, sizeof set);
    return CPU_COUNT(&set);
}
