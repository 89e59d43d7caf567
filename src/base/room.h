/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free memory. Linux overcommits, and kills a process when memory runs out. Therefore large blocks
 * are taken in pieces, with a check before each, and a lack of memory is an error.
 */
#ifndef TALLY_BASE_ROOM_H
#define TALLY_BASE_ROOM_H

#include <stdint.h>

struct tally__room {
    uint64_t bytes; /* available; UINT64_MAX when the system does not say */
    uint64_t
        limit; /* of the memory cgroup with the least room; 0: the machine itself has the least */
    char cgroup[160]; /* that cgroup's name, as in /proc/self/cgroup */
};

/* Reads <root>/proc and <root>/sys/fs/cgroup (versions 1 and 2); root is "" except in tests. Counts
 * reclaimable memory as free. Makes several system calls: not for hot paths. Any thread. */
void tally__find_room(const char *root, struct tally__room *room);

/* Takes one piece; returns 0 or an errno. */
typedef int tally__take_fn(void *user, uint64_t offset, uint64_t bytes);

/*
 * Takes memory in pieces, as long as there is room for n_takers that do the same. Errors: NOMEM
 * with the room that is left; a failure of take is NOMEM for a lack of memory or space, SYSTEM
 * otherwise. Pieces taken before a failure stay taken.
 */
int tally__take_memory(uint64_t bytes, int n_takers, tally__take_fn *take, void *user,
                       const char *what);

#endif
