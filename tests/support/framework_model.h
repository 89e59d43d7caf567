/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A framework with a reducer of tally, for tests: the parameters of a ddp_model, grouped in buckets
 * that change, at addresses that change, with gradients that every rank knows.
 */
#ifndef TALLY_TESTS_FRAMEWORK_MODEL_H
#define TALLY_TESTS_FRAMEWORK_MODEL_H

#include <tally_extend.h>

#include "support/ddp_model.h"

#define FRAMEWORK_BYTES 65536

/* Parameters of one bucket after the other, each bucket closed by -1; -2 ends the list. */
typedef const int framework_layout[2 * DDP_MAX_PARAMS];

struct framework {
    struct ddp_model model;
    tally_reducer *reducer;
    _Alignas(double) unsigned char room[2][FRAMEWORK_BYTES]; /* buckets of even and odd steps */
    void *mean[DDP_MAX_PARAMS];                              /* of the last step */
    int refused; /* the status of the last call of tally_reducer_reduce */
};

/* A reducer for the parameters with a gradient of these specs: they come first. */
int framework_make(tally_group *group, const struct ddp_spec *specs, size_t n, const char *hook,
                   struct framework *framework);
int framework_end(tally_group *group, struct framework *framework);

/* Submits one step in this layout with rank's gradients of the seed; shift moves the address by
 * elements. Waits for all buckets; returns the first failure. */
int framework_step(const tally_group *group, struct framework *framework, const int *layout,
                   unsigned seed, size_t shift);

/* A hash of all means, in the order of parameters. */
uint64_t framework_hash(const struct framework *framework);

#endif
