/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by the fuzzers of saved states. A small run saves its state; the input changes or
 * replaces it (blob_changes.h); and it is loaded. A refused state gives a text of one line and
 * changes nothing; an accepted state can be saved, loaded again to the same bytes, and continued
 * from. Nothing leaks.
 */
#ifndef TALLY_TESTS_BLOB_FUZZ_H
#define TALLY_TESTS_BLOB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tally.h"

#define BLOB_MAX_PARAMS 3

/* A run of one rank that saves and loads its ddp, or an object on it. */
struct blob_model {
    const struct blob_subject *subject;
    float data[BLOB_MAX_PARAMS][64];
    tally_group *group;
    tally_ddp *ddp;
    void *object; /* made by create */
};

/* The state that a fuzzer is about, in two variants. Functions return a status, which must be
 * TALLY_OK except for load's. */
struct blob_subject {
    int n_params;
    size_t shapes[BLOB_MAX_PARAMS][2]; /* a vector has a 0 in the second place */
    const char *hooks[2];              /* of the ddp, by variant; NULL: the default */
    int (*create)(struct blob_model *model, bool variant); /* NULL: the ddp is enough */
    int (*free)(struct blob_model *model);                 /* the object; NULL: there is none */
    int (*step)(struct blob_model *model, unsigned seed);
    int (*save)(struct blob_model *model, void *blob, size_t *bytes);
    int (*load)(struct blob_model *model, const void *const *blobs, const size_t *bytes, size_t n);
    /* Continues from a state that was accepted, whose numbers may not be finite. */
    int (*go_on)(struct blob_model *model, bool variant);
};

/* The number of elements of parameter i. */
size_t blob_elements(const struct blob_model *model, int i);

/* A step of the ddp with random gradients. Returns the status of tally_ddp_wait. */
int blob_step(struct blob_model *model, unsigned seed);

/* The next of a sequence of random numbers in 0..1. */
float blob_random(unsigned *seed);

/* One input. Returns 0. */
int blob_fuzz(const struct blob_subject *subject, const uint8_t *data, size_t n);

#endif
