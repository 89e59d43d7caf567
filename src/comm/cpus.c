/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs this process may run on. */
#include <sched.h>
#include <unistd.h>

#include "comm/domain.h"

int tally__count_cpus(void)
{
    cpu_set_t set;
    long online;

    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return CPU_COUNT(&set);
    }
    /* More CPUs than the set has room for: then the number online will do. */
    online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
