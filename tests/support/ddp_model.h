/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model for tests of the ddp: parameters with memory, gradients that every rank can compute for
 * every other rank from a seed, and the means that must come out, by plain loops in rank order.
 * Values are finite; those of f16 and bf16 are rounded to their type.
 */
#ifndef TALLY_TESTS_DDP_MODEL_H
#define TALLY_TESTS_DDP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tally.h>

#include "support/ranks.h"

#define DDP_MAX_PARAMS 32
#define DDP_MAX_DIMS 4

struct ddp_spec {
    const char *name;
    int dtype;
    unsigned flags;
    int n_dims;
    size_t shape[DDP_MAX_DIMS];
};

struct ddp_model {
    size_t n;
    struct ddp_spec spec[DDP_MAX_PARAMS];
    tally_param params[DDP_MAX_PARAMS];
    size_t count[DDP_MAX_PARAMS]; /* elements */
};

/* Memory for all parameters, and with copies for all gradients. 0, or not for lack of memory. */
int ddp_model_make(struct ddp_model *model, const struct ddp_spec *specs, size_t n, bool copies);
void ddp_model_free(struct ddp_model *model);

/* Parameters of every dtype and several shapes; the last two are frozen and ignored. */
extern const struct ddp_spec ddp_mixed[];
#define DDP_N_MIXED 10

bool ddp_has_gradient(const struct ddp_model *model, size_t i);

/* Element e of rank's array number i, as a double; exact in every dtype. */
double ddp_value(int dtype, unsigned seed, int rank, size_t i, size_t e);

/* Writes rank's values: parameter i's data, its gradient, or the gradients of all. */
void ddp_fill_data(const struct ddp_model *model, size_t i, unsigned seed, int rank);
void ddp_fill_grad(const struct ddp_model *model, const tally_ddp *ddp, size_t i, unsigned seed,
                   int rank);
void ddp_fill_grads(const struct ddp_model *model, const tally_ddp *ddp, unsigned seed, int rank);

/* Number of elements of an array that are not rank's values. */
size_t ddp_not_of(const struct ddp_model *model, size_t i, const void *array, unsigned seed,
                  int rank);

/*
 * The expected gradient: the sum, in rank order, over the ranks in a mask, with zeros for the
 * others, divided by the divisor.
 */
struct ddp_mean {
    unsigned seed;
    int world;
    unsigned ranks;
    double divisor;
};

/* Number of elements of parameter i's gradient that differ from it, to the bit. */
size_t ddp_wrong(const struct ddp_model *model, const tally_ddp *ddp, size_t i,
                 struct ddp_mean mean);

/* The same for all parameters with a gradient, all ranks and their number; delayed ones apart. */
size_t ddp_wrong_means(const struct ddp_model *model, const tally_ddp *ddp, unsigned seed,
                       int world);

/* A whole step: every gradient written and announced, the last parameter's first; wait. */
int ddp_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model, unsigned seed);

/* The same, and the means are right. */
int ddp_right_step(tally_group *group, tally_ddp *ddp, const struct ddp_model *model,
                   unsigned seed);

/* A hash of all gradients. */
uint64_t ddp_hash_grads(const struct ddp_model *model, const tally_ddp *ddp);

/* The reduce of a hook in two steps: gradients are doubled before the sum, and halved in the
 * division. The means have the bits of an all-reduce. */
int ddp_doubled_reduce(void *state, tally_lane *lane, const tally_bucket *bucket);

/* Runs body in this world, as threads and as processes. */
int ddp_run_world(const char *name, ranks_body *body, void *user, int lanes, int world);

/* Runs body in worlds of 1, 2, 3 and, without a sanitizer, 4, as threads and as processes; and of 7
 * if asked to. */
int ddp_run(const char *name, ranks_body *body, void *user, int lanes);
int ddp_run_seven(const char *name, ranks_body *body, void *user, int lanes);

#endif
