/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: the addresses at which this process maps the ranks' files. Where address space is
 * unlimited, a window is mapped whole when it is made. Where it is limited (ulimit -v), the
 * addresses are only chosen, far from all other mappings, and a window grows in place as needed.
 * Not thread-safe.
 */
#ifndef TALLY_COMM_WINDOWS_H
#define TALLY_COMM_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tally__windows {
    int n;
    size_t bytes;     /* of each */
    bool is_limited;  /* they grow */
    uintptr_t first;  /* address of the first, where they grow */
    uint64_t *mapped; /* per rank: bytes mapped so far */
};

/* Chooses the addresses of n windows; maps nothing. Errors: NOMEM. */
int tally__windows_begin(struct tally__windows *windows, int n);

/* Unmaps and frees; base is as tally__window_reach has filled it. */
void tally__windows_end(struct tally__windows *windows, const uintptr_t *base);

/* Maps the file of a rank at least up to end, and returns its start. Errors: NOMEM. */
int tally__window_reach(struct tally__windows *windows, int rank, int fd, uint64_t end,
                        uintptr_t *base);

#endif
