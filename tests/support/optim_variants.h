/* SPDX-License-Identifier: Apache-2.0 */
/* Every optimizer, with the options that lead to different code switched on and off: what the tests
 * of the optimizers' kernels walk over. */
#ifndef TALLY_TESTS_OPTIM_VARIANTS_H
#define TALLY_TESTS_OPTIM_VARIANTS_H

#include "num/optim.h"
#include "support/optim_oracle.h"

/* The arrays of a step. */
struct optim_arrays {
    size_t n;
    const float *g;
    float *p;
    float *state[TALLY__OPTIM_STATES]; /* NULL where the variant has none */
};

struct optim_variant {
    const char *name;
    bool decays;                      /* has weight decay */
    unsigned used;                    /* a bit for each state in use */
    float start[TALLY__OPTIM_STATES]; /* initial values of the state */
    /* Step number t by the kernels given. The learning rate changes from step to step. */
    void (*step)(const struct tally__optim_kernels *k, const struct optim_arrays *a, uint64_t t);
    void (*oracle)(uint64_t t, struct optim_element *x);
};

extern const struct optim_variant optim_variants[];
extern const size_t optim_n_variants;

/* The dispatching functions, as a table like those of the instruction sets. */
extern const struct tally__optim_kernels optim_dispatched;

#endif
