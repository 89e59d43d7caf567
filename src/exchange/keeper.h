/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: error feedback in one place. It keeps, per parameter of a ddp, what compression left
 * out: of what this rank sent (sent, all its elements), and of the means this rank owned (owned, a
 * run of them). Keyed by parameter, so it outlives bucket layouts and hooks.
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
 * Makes sure that owned covers the n elements from first on, and nothing else. When it covered
 * others, what it has goes to sent, times the divisor: it then reaches the mean from there. Errors:
 * NOMEM, and nothing has changed.
 */
int tally__residual_own(struct tally__residual *residual, size_t first, size_t n, double divisor);

/* Adds a parameter's residuals to its gradient and forgets them; owned counts divisor times. */
void tally__residual_deliver(struct tally__residual *residual, double divisor, float *gradient);

/*
 * Adds all residuals of a bucket's parameters to its gradients and forgets them: for a hook without
 * feedback that follows one with. Nothing on a rank that shadows.
 */
void tally__keeper_settle(const tally_bucket *bucket);

/*
 * What this rank has owned of the means of a bucket's parameters, in exchanges with this divisor,
 * goes to sent: for the step before exchanges among other ranks. Errors: NOMEM.
 */
int tally__keeper_disown(const tally_bucket *bucket, double divisor);

#endif
