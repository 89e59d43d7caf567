/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that this process runs on, as it is named to the other ranks, and its CPUs. */
#ifndef TALLY_BASE_MACHINE_H
#define TALLY_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

struct tally__machine {
    char boot_id[40]; /* unique per machine and boot; host names are not. "": unknown */
    char host[64];
    uint64_t network; /* the network namespace: containers of one machine may have several */
};

/* Fills every byte, so that ranks may compare machines as bytes. */
void tally__machine_here(struct tally__machine *machine);

bool tally__machine_is_same(const struct tally__machine *a, const struct tally__machine *b);

/* A set of CPUs, a bit each. */
struct tally__cpus {
    uint64_t bits[16];
};

/* The CPUs that the calling process may run on. */
void tally__own_cpus(struct tally__cpus *cpus);

void tally__add_cpus(struct tally__cpus *to, const struct tally__cpus *from);
int tally__count_cpus(const struct tally__cpus *cpus);

/* Whether n threads that compute leave no CPU for others: this process may run on all CPUs of the
 * machine, and there are n or fewer. A process that may use a part of them may have them alone. */
bool tally__leaves_no_cpu(int n);

#endif
