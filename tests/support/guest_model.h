/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reducer for tests: the parameters of a ddp_model, grouped in buckets that change, at addresses
 * that change, with gradients that every rank knows.
 */
#ifndef TALLY_TESTS_GUEST_MODEL_H
#define TALLY_TESTS_GUEST_MODEL_H

#include <tally_extend.h>

#include "support/ddp_model.h"

#define GUEST_BYTES 65536

/* Parameters of one bucket after the other, each bucket closed by -1; -2 ends the list. */
typedef const int guest_layout[2 * DDP_MAX_PARAMS];

struct guest {
    struct ddp_model model;
    tally_reducer *reducer;
    _Alignas(double) unsigned char room[2][GUEST_BYTES]; /* buckets of even and odd steps */
    void *mean[DDP_MAX_PARAMS];                          /* of the last step */
};

/* A reducer for the parameters with a gradient of these specs: they come first. */
int guest_make(tally_group *group, const struct ddp_spec *specs, size_t n, const char *hook,
               struct guest *guest);
int guest_end(tally_group *group, struct guest *guest);

/* Submits one step in this layout with rank's gradients of the seed; shift moves the address by
 * elements. Waits for all buckets; returns the first failure. */
int guest_step(const tally_group *group, struct guest *guest, const int *layout, unsigned seed,
               size_t shift);

/* A hash of all means, in the order of parameters. */
uint64_t guest_hash(const struct guest *guest);

#endif
