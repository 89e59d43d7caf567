/* SPDX-License-Identifier: Apache-2.0 */
/* What a rule keeps of one parameter between steps, and one step of it. One thread at a time for
 * each parameter. */
#ifndef TALLY_OPTIM_MOMENTS_H
#define TALLY_OPTIM_MOMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "optim/rule.h"

/* The moments of one parameter: its steps so far, and its state for the elements this rank updates.
 * All zeros is one that covers nothing. */
struct tally__moments {
    uint64_t step;
    size_t first; /* the run of elements covered */
    size_t n;
    int n_states;
    float *state[TALLY_MAX_STATES];
};

/* State of zeros for n elements from first on. Once, before the first step, and again after clear.
 * Errors: NOMEM, and nothing is covered. */
int tally__moments_cover(struct tally__moments *moments, int n_states, size_t first, size_t n);

/* Gives the memory back; nothing is covered, and no step was taken. */
void tally__moments_clear(struct tally__moments *moments);

/*
 * One update of the elements covered. Of param, index, name, shape, data, gradient and lr are the
 * caller's, with data and gradient those of element moments->first; the rest is filled in.
 * Gradients are multiplied by factor first (1: left alone), in place, and afterwards set to zero if
 * release: where the rule is elementwise, in parts that stay in the caches meanwhile. The step is
 * counted only on success. Errors: what the rule's step_param returns, with a text; some elements
 * may have been updated then.
 */
int tally__moments_step(struct tally__moments *moments, const struct tally__rule *rule,
                        const tally_step_param *param, float factor, bool release);

#endif
