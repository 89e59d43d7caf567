/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments of a bucket for a byte codec: one per parameter, with the codec's data for each.
 * Made when a bucket is first seen in a layout, so that later steps allocate nothing.
 */
#ifndef TALLY_HOOK_BUCKET_SEGMENTS_H
#define TALLY_HOOK_BUCKET_SEGMENTS_H

#include <pthread.h>

#include "exchange/codec.h"

/* An option of all hooks that quantize. */
#define TALLY__NONFINITE_OPTION             \
    TALLY__CHOICE_OPTION(                   \
        "nonfinite", "error|pass", "error", \
        "an infinity or a NaN fails the step, or makes its block NaN on all ranks")

struct tally__bucket_segments {
    unsigned generation;              /* of the layout it was made for */
    struct tally__segments of_codec;  /* as the codec sees them */
    bool *raw;                        /* per segment */
    struct tally__affine *maps;       /* per segment: room for them */
    struct tally__feedback *feedback; /* per segment: room for it */
};

/* The table of all buckets that one hook has seen. It is the first member of that hook's state.
 * Several lanes may enter at once. */
struct tally__segment_table {
    size_t block;
    bool keeps_small;      /* vectors and scalars are raw */
    pthread_mutex_t mutex; /* guards the rest */
    bool attached;         /* to a ddp */
    size_t n;              /* parameters of the ddp; 0 until the first bucket came */
    struct tally__bucket_segments *buckets; /* by the index of a bucket's first parameter */
};

void tally__segment_table_init(struct tally__segment_table *table, size_t block, bool keeps_small);

/* Entries of the hook's table. A hook serves one ddp: attach refuses a second one until the first
 * is detached. free frees the whole state. Application threads enter. Errors: STATE. */
int tally__segment_table_attach(void *state, tally_ddp *ddp);
void tally__segment_table_detach(void *state, tally_ddp *ddp);
void tally__segment_table_free(void *state);

/* The segments of a bucket. They stay until the layout changes. On a lane. Errors: NOMEM. */
int tally__bucket_segments_of(struct tally__segment_table *table, const tally_bucket *bucket,
                              struct tally__bucket_segments **segments);

#endif
