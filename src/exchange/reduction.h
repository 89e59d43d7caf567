/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that hooks and the exchange share while one bucket is reduced, in addition to the lane
 * and the bucket: the wire type, the residuals and the counters. The job of the bucket makes one
 * reduction and enters it; everything that runs on the same thread until it leaves finds it with
 * tally__reduction_here. A wrapper hook changes the wire type around the hook inside.
 */
#ifndef TALLY_EXCHANGE_REDUCTION_H
#define TALLY_EXCHANGE_REDUCTION_H

#include <stdbool.h>
#include <stdint.h>

#include "exchange/residuals.h"
#include "tally_extend.h"

/* The form in which fp32 sums travel: as fp32, or as 16-bit floats. */
struct tally__wire {
    int dtype;      /* TALLY_F32, TALLY_F16 or TALLY_BF16 */
    bool saturates; /* fp16: values that would overflow become the largest finite value */
    bool stepwise;  /* divide and add in 16 bits too, rounding after each operation */
};

/* Counters for the statistics of a step. */
struct tally__counts {
    uint64_t saturated;       /* values that did not fit in fp16 */
    uint64_t compressed_from; /* elements before compression */
    uint64_t compressed_to;   /* elements that were sent instead */
    uint64_t host_bytes;      /* payload that stayed within a host, as the lane has counted it */
    uint64_t offered_bytes;   /* this rank's contributions to exchanges, as they travel */
    uint64_t exchanges;
};

struct tally__reduction {
    struct tally__wire wire;
    struct tally__residuals *residuals; /* of all parameters of the ddp */
    struct tally__counts counts;
};

/* Makes reduction the one of this thread, NULL for none. */
void tally__reduction_enter(struct tally__reduction *reduction);

/* The reduction that this thread has entered, or NULL. */
struct tally__reduction *tally__reduction_here(void);

/* The wire type of this thread's reduction; fp32 outside of one. */
struct tally__wire tally__wire_here(void);

#endif
