/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model that is trained, for tests of optimizers: parameters of fp32, a ddp and an optimizer, and
 * steps with gradients that depend on the seed, the rank and the parameter's values, so that a
 * wrong bit in one step is a wrong bit in all later ones.
 */
#ifndef TALLY_TESTS_OPT_MODEL_H
#define TALLY_TESTS_OPT_MODEL_H

#include <stdbool.h>
#include <tally_extend.h>

#include "support/ddp_model.h"

#define OPT_N_PARAMS 7

/* Several shapes, one of them large enough to be reduced where it lies, one without elements. */
extern const struct ddp_spec opt_specs[OPT_N_PARAMS];

struct opt_run {
    tally_group *group;
    struct ddp_model model;
    tally_ddp *ddp;
    tally_optimizer *optimizer; /* NULL: none */
    bool provided;
};

/* The hook and the optimizer; NULL and 0: the defaults of the ddp and the optimizer. */
struct opt_setup {
    const struct ddp_spec *specs; /* NULL: opt_specs */
    size_t n_specs;
    bool copies;
    bool provided; /* parameters lie in memory of tally's */
    const char *hook;
    const tally_hook_table *own_hook;
    const char *text;                     /* of the optimizer */
    const tally_optimizer_config *config; /* of the optimizer */
    const tally_ddp_config *ddp;          /* hook apart */
};

/* The ddp with values that all ranks begin with, and the optimizer, if there is a text or a config.
 * Parameters that are ignored have a gradient too. */
int opt_start(tally_group *group, const struct opt_setup *setup, struct opt_run *run);
int opt_end(struct opt_run *run);

/* Writes, or with adds adds, the gradient of parameter i. */
void opt_gradient(const struct opt_run *run, size_t i, unsigned seed, bool adds);

/* Every gradient, the last parameter's first, written and announced; wait. Those in absent are not
 * there; delayed ones are left alone. */
int opt_step(struct opt_run *run, unsigned seed, unsigned absent);

/* n passes whose gradients add up; the last one announces. */
int opt_accumulated_step(struct opt_run *run, unsigned seed, int n_passes);

/* Number of elements of the parameters of two runs that differ, to the bit. */
size_t opt_differ(const struct opt_run *a, const struct opt_run *b);

uint64_t opt_hash(const struct opt_run *run);

/* Runs body in these worlds, as threads and as processes. */
int opt_worlds(const char *name, ranks_body *body, void *user, int lanes, const int *worlds);

#endif
