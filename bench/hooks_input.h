/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of the hooks bench: layers, each a matrix and a bias, whose scales go from 1e-2 to
 * 1 in equal factors. An element is a part that all ranks have in common plus one of the rank's
 * own, both uniform in -1..1, times the layer's scale; 1 % of the elements are ten times larger. It
 * depends on rank and index alone, so that every rank knows the mean.
 */
#ifndef TALLY_BENCH_HOOKS_INPUT_H
#define TALLY_BENCH_HOOKS_INPUT_H

#include <stddef.h>
#include <stdint.h>

#define HOOKS_NAME_BYTES 40

/* One gradient. */
struct hooks_param {
    char name[HOOKS_NAME_BYTES];
    int n_dims;
    size_t shape[2];
    size_t first; /* its first element, counted over all gradients */
    size_t n;
    float scale;
};

struct hooks_input {
    size_t n; /* elements */
    size_t n_params;
    struct hooks_param *params;
};

/* The fewest elements that hooks_input_create takes. */
#define HOOKS_MIN_ELEMENTS 1024

/*
 * Cuts n elements into at least 8 layers with matrices 1024 wide, or, where that is too much, a
 * smaller power of two. Errors: ARG for too few elements, NOMEM.
 */
int hooks_input_create(size_t n, struct hooks_input *input);
void hooks_input_free(struct hooks_input *input);

/* Writes elements first..first+n-1 of a parameter's gradient on a rank. */
void hooks_input_fill(const struct hooks_param *param, int rank, size_t first, size_t n,
                      float *data);

/* Writes the mean over all ranks of these elements, in double precision. */
void hooks_input_mean(const struct hooks_param *param, int ranks, size_t first, size_t n,
                      double *mean);

/*
 * Distance of the gradients from the mean over all ranks, in the 2-norm, relative to the mean's
 * norm.
 */
struct hooks_error {
    double all;   /* of all gradients together */
    double worst; /* of the parameter where it is largest */
};

/* Compares gradients[p], which is all of parameter p's, with the means of all elements. */
struct hooks_error hooks_input_compare(const struct hooks_input *input, const double *means,
                                       const float *const *gradients);

/* A number that depends on every bit of all gradients, and on where it is. */
uint64_t hooks_input_hash(const struct hooks_input *input, const float *const *gradients);

#endif
