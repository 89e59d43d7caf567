/* SPDX-License-Identifier: Apache-2.0 */
/* The moments of a parameter: the state of its update rule between steps, and one step. Each
 * parameter is used by one thread at a time. */
#ifndef TALLY_OPTIM_MOMENTS_H
#define TALLY_OPTIM_MOMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "optim/rule.h"

/* The moments of one parameter: its step count, and its state for the elements that this rank
 * updates. Zeroed moments cover nothing. */
struct tally__moments {
    uint64_t step;
    size_t first; /* the elements first..first+n-1 are covered */
    size_t n;
    int n_states;
    float *state[TALLY_MAX_STATES];
};

/* Allocates zeroed state for n elements from first on. Call once before the first step, and again
 * after clear. Errors: NOMEM; then nothing is covered. */
int tally__moments_cover(struct tally__moments *moments, int n_states, size_t first, size_t n);

/* Frees the state and resets the step count; nothing is covered. */
void tally__moments_clear(struct tally__moments *moments);

/*
 * Updates the covered elements. The caller sets index, name, shape, data, gradient and lr of param;
 * data and gradient point to element moments->first. The other fields are filled in here. Gradients
 * are first multiplied in place by factor (1: unchanged), and afterwards set to zero if release is
 * set; an elementwise rule works in parts that stay in the caches. The step is counted only on
 * success. Errors: the status of the rule's step_param, with a text; some elements may then have
 * been updated.
 */
int tally__moments_step(struct tally__moments *moments, const struct tally__rule *rule,
                        const tally_step_param *param, float factor, bool release);

#endif
