/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory can still be had. Linux promises more than there is, and kills a process to keep
 * its word: so large blocks are taken piece by piece, with a look before each, and a lack of memory
 * is an error.
 */
#ifndef TALLY_BASE_ROOM_H
#define TALLY_BASE_ROOM_H

#include <stdint.h>

struct tally__room {
    uint64_t bytes;   /* that can be had; UINT64_MAX when the system does not say */
    uint64_t limit;   /* of the memory cgroup that leaves least; 0: the machine does */
    char cgroup[160]; /* its name, as in /proc/self/cgroup */
};

/* Reads <root>/proc and <root>/sys/fs/cgroup (versions 1 and 2); root is "" but for tests. Counts
 * what can be reclaimed as free. Some system calls: not for hot paths. Any thread. */
void tally__find_room(const char *root, struct tally__room *room);

/* The bytes of it. */
uint64_t tally__free_memory(void);

/* Takes a part of the whole; returns 0 or an errno. */
typedef int tally__take_fn(void *user, uint64_t offset, uint64_t bytes);

/*
 * Has memory taken in pieces as long as there is room for n_takers who do the same. Errors: NOMEM,
 * with what there is; of take's, NOMEM for a lack of memory or space, SYSTEM for the rest. What was
 * taken until then stays taken.
 */
int tally__take_memory(uint64_t bytes, int n_takers, tally__take_fn *take, void *user,
                       const char *what);

#endif
