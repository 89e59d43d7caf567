/* SPDX-License-Identifier: Apache-2.0 */
/* Binds threads. Any thread enters; the set of CPUs is that with which the thread started. */
#include "bench/bind.h"

#include <sched.h>

void bench_bind(int rank, int ranks)
{
    cpu_set_t all;
    cpu_set_t own;
    int share;
    int n_seen = 0;

    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return;
    }
    share = CPU_COUNT(&all) / ranks;
    if (share == 0) {
        return;
    }
    CPU_ZERO(&own);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            if (n_seen / share == rank) {
                CPU_SET(cpu, &own);
            }
            n_seen++;
        }
    }
    (void)sched_setaffinity(0, sizeof own, &own);
}

int bench_cpus(void)
{
    cpu_set_t all;

    return sched_getaffinity(0, sizeof all, &all) == 0 ? CPU_COUNT(&all) : 1;
}
