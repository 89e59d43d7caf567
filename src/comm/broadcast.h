/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcasts many arrays as one stream of bytes. */
#ifndef TALLY_COMM_BROADCAST_H
#define TALLY_COMM_BROADCAST_H

#include <stddef.h>

#include "tally_extend.h"

struct tally__array {
    void *data; /* may be NULL where bytes is 0 */
    size_t bytes;
};

/* A list of arrays; get returns the i-th of n. */
struct tally__arrays {
    size_t n;
    const void *of;
    struct tally__array (*get)(const void *of, size_t i);
};

/* In a job: all arrays become root's. Number and sizes are the same on all ranks. A round for each
 * stageful of bytes, however many arrays there are. */
int tally__broadcast(tally_lane *lane, const struct tally__arrays *arrays, int root);

#endif
