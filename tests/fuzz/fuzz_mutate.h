/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs from inputs: random changes of a seed, the same in every run. */
#ifndef TALLY_TESTS_FUZZ_MUTATE_H
#define TALLY_TESTS_FUZZ_MUTATE_H

#include "fuzz/fuzz.h"

struct fuzz_input {
    size_t n;
    uint8_t data[FUZZ_MAX_INPUT];
};

/* The inputs of a corpus, to begin with and to take pieces from. */
struct fuzz_corpus {
    size_t n;
    struct fuzz_input *inputs;
};

/* Makes input a changed copy of one of the corpus, which is not empty. random is the state of the
 * generator, and not 0. */
void fuzz_mutate(const struct fuzz_corpus *corpus, uint64_t *random, struct fuzz_input *input);

#endif
