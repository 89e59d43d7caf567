/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the tests of saved optimizers: the blobs of some or all ranks, known to all. */
#ifndef TALLY_TESTS_OPT_STATES_H
#define TALLY_TESTS_OPT_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <tally.h>

#include "support/opt_model.h"

#define OPT_STATES_MAX 8

struct opt_states {
    size_t n;
    void *blob[OPT_STATES_MAX];
    size_t bytes[OPT_STATES_MAX];
};

/* The first n ranks save, and all ranks of group get their blobs. Collective over group. */
int opt_states_take(tally_group *group, tally_optimizer *optimizer, size_t n,
                    struct opt_states *states);

/* The same with the one blob that all ranks of the optimizer give root 0. */
int opt_states_consolidate(tally_group *group, tally_optimizer *optimizer,
                           struct opt_states *states);

void opt_states_free(struct opt_states *states);
int opt_states_load(tally_optimizer *optimizer, const struct opt_states *states);

/* Whether this rank would save the same bytes as rank r did then. */
bool opt_states_same(tally_optimizer *optimizer, const struct opt_states *states, size_t r);

#endif
