/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a bucket is cut for a byte codec: a segment per parameter, and what the codec needs to know
 * of each. Made when a bucket is first seen in a layout, so that later steps allocate nothing.
 */
#ifndef TALLY_HOOK_CUTS_H
#define TALLY_HOOK_CUTS_H

#include <pthread.h>

#include "exchange/codec.h"

struct tally__cut {
    unsigned generation; /* of the layout it was made for */
    struct tally__segments segments;
    bool *raw;                        /* per segment */
    struct tally__affine *maps;       /* per segment: room for them */
    struct tally__feedback *feedback; /* per segment: room for it */
};

/* The cuts of all buckets that one hook has seen. Several lanes may ask at once. */
struct tally__cuts {
    size_t block;
    bool keeps_small;       /* vectors and scalars are raw */
    pthread_mutex_t mutex;  /* guards the rest */
    bool attached;          /* to a ddp */
    size_t n;               /* parameters of the ddp; 0 until the first bucket came */
    struct tally__cut *cut; /* by the index of a bucket's first parameter */
};

void tally__cuts_init(struct tally__cuts *cuts, size_t block, bool keeps_small);
void tally__cuts_clear(struct tally__cuts *cuts);

/* Cuts are of one ddp: a second one is refused until the first has gone. Application's thread.
 * Errors: STATE. */
int tally__cuts_attach(struct tally__cuts *cuts);
void tally__cuts_detach(struct tally__cuts *cuts);

/* The bucket's cut. It stays until the layout changes. On a lane. Errors: NOMEM. */
int tally__cuts_of(struct tally__cuts *cuts, const tally_bucket *bucket, struct tally__cut **cut);

#endif
