/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code shared by the tests of saved states: a model with everything that a state must distinguish,
 * steps with gradients that every rank knows, the sum of what they deliver, and the blobs of all
 * ranks.
 */
#ifndef TALLY_TESTS_HOOK_STATES_H
#define TALLY_TESTS_HOOK_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tally.h>

#include "support/ddp_model.h"

#define STATE_N_PARAMS 8
#define STATE_MAX_WORLD 8

/* Matrices of several blocks, a vector, a scalar, an empty one, halves, and a frozen one. */
extern const struct ddp_spec state_specs[STATE_N_PARAMS];

/* A ddp with its model; several buckets. */
struct state_run {
    struct ddp_model model;
    tally_ddp *ddp;
};

struct state_setup {
    const char *hook;
    bool copies;
    size_t cap_bytes; /* 0: 4000 */
};

int state_run_start(tally_group *group, const struct state_setup *setup, struct state_run *run);
int state_run_end(tally_group *group, struct state_run *run);

/* A step: every rank's gradients of this seed, announced in an order that is not the buckets' first
 * one. Returns the status of wait. */
int state_step(const tally_group *group, struct state_run *run, unsigned seed);

/* Steps first..first+n-1; the gradients of all of them, hashed. */
int state_steps(tally_group *group, struct state_run *run, unsigned first, unsigned n,
                uint64_t *hash);

/*
 * The sums that steps delivered, and the expected sums: per element of the fp32 parameters, in
 * fp64.
 */
#define STATE_N_ELEMENTS 4400
struct state_totals {
    double delivered[STATE_N_ELEMENTS];
    double expected[STATE_N_ELEMENTS];
};

/* Steps first..first+n-1, added to the totals. */
int state_count_steps(tally_group *group, struct state_run *run, unsigned first, unsigned n,
                      struct state_totals *totals);

/* The largest difference between the two. */
double state_owed(const struct state_totals *totals);

/* The blobs of all ranks. */
struct hook_states {
    size_t n;
    void *blob[STATE_MAX_WORLD];
    size_t bytes[STATE_MAX_WORLD];
};

/* Every rank saves, and gets all ranks' blobs. Collective over the group. */
int hook_states_take(tally_group *group, tally_ddp *ddp, struct hook_states *states);
void hook_states_free(struct hook_states *states);
int hook_states_load(tally_ddp *ddp, const struct hook_states *states);

/* Whether this rank would save the same bytes as it did then. */
bool hook_states_unchanged(tally_group *group, tally_ddp *ddp, const struct hook_states *states);

/* Writes the blob's size and checksum again, after a change to its bytes. */
void hook_states_seal(void *blob, size_t bytes);

#endif
