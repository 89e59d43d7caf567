/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: error feedback in one place. It keeps, per parameter of a ddp, what compression left
 * out: of what this rank sent (sent, all its elements), and of the means this rank owned (owned, a
 * run of them). Keyed by parameter, so it outlives bucket layouts and hooks.
 *
 * What is owned is of a mean of so many ranks, all of which lack it. Where the next exchange is of
 * other ranks, or somebody else owns the run, it goes to sent, so much of it that all ranks, on
 * average, get what those lacked.
 *
 * An entry belongs to the job that reduces the bucket its parameter is in, and between steps to the
 * application's thread.
 */
#ifndef TALLY_EXCHANGE_KEEPER_H
#define TALLY_EXCHANGE_KEEPER_H

#include <stddef.h>

#include "tally.h"

struct tally__residual {
    float *sent; /* NULL: all zeros, and nothing is owned */
    size_t n;
    float *owned; /* of the mean's elements from owned_first on; NULL: nothing is owned */
    size_t owned_first;
    size_t owned_n;
    int owned_ranks; /* that the mean was of; 0: nothing is owned */
};

struct tally__keeper {
    size_t n_params;
    struct tally__residual *params;
};

/* One without residuals, for so many parameters. Errors: NOMEM. */
int tally__keeper_make(size_t n_params, struct tally__keeper **keeper);
void tally__keeper_free(struct tally__keeper *keeper);

/* Forgets one parameter's residuals. */
void tally__residual_clear(struct tally__residual *residual);

/* Makes sure that there is sent, of n elements. Errors: NOMEM. */
int tally__residual_send(struct tally__residual *residual, size_t n);

/*
 * Makes sure that owned covers the n elements from first on of this bucket's mean, and nothing
 * else. When it covered others, or those of a mean of other ranks, what it has goes to sent.
 * Errors: NOMEM, and nothing has changed.
 */
int tally__residual_own(struct tally__residual *residual, size_t first, size_t n,
                        const tally_bucket *bucket);

/* Adds a parameter's residuals to its gradient, or a copy of it, in this bucket and forgets them.
 */
void tally__residual_deliver(struct tally__residual *residual, const tally_bucket *bucket,
                             float *gradient);

/* Makes to the same as from. Where it was of the same size, it allocates nothing. Errors: NOMEM,
 * and what to has is undefined. */
int tally__residual_copy(const struct tally__residual *from, struct tally__residual *to);

/*
 * Adds all residuals of a bucket's parameters to its gradients and forgets them: for a hook without
 * feedback that follows one with. Nothing on a rank that shadows.
 */
void tally__keeper_settle(const tally_bucket *bucket);

#endif
