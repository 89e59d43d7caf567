/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcasting many arrays, small ones together: a model of many tiny ones costs its bytes, not a
 * round each. */
#ifndef TALLY_DDP_BROADCAST_H
#define TALLY_DDP_BROADCAST_H

#include <stddef.h>

#include "tally_extend.h"

/* Buffer for small arrays that travel together. */
#define TALLY__TOGETHER_BYTES ((size_t)64 << 10)

struct tally__array {
    void *data; /* may be NULL where there are no bytes */
    size_t bytes;
};

struct tally__arrays {
    size_t n;
    const void *of;
    struct tally__array (*get)(const void *of, size_t i);
    unsigned char *stage; /* TALLY__TOGETHER_BYTES, of the caller */
};

/* In a job: all arrays become root's. The same number and sizes on all ranks. */
int tally__broadcast(tally_lane *lane, const struct tally__arrays *arrays, int root);

#endif
