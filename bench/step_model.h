/* SPDX-License-Identifier: Apache-2.0 */
/* The models that the step bench trains: parameters of equal size, a ddp, perhaps an optimizer. */
#ifndef TALLY_BENCH_STEP_MODEL_H
#define TALLY_BENCH_STEP_MODEL_H

#include <stdint.h>
#include <tally.h>

#include "bench/step_bench.h"

#define STEP_NAME_BYTES 32

/* A parameter's place among all, counted in elements. */
struct step_slice {
    size_t first;
    size_t n;
    uint64_t units; /* of backward before its gradient */
    char name[STEP_NAME_BYTES];
};

enum step_update { STEP_NO_UPDATE, STEP_ON_CALL, STEP_BEHIND_HOOK };

struct step_model {
    tally_ddp *ddp;
    tally_optimizer *optimizer; /* NULL: none */
    float *data;                /* the parameters */
    float *own;                 /* the application's gradients, if it keeps copies */
    float **gradient;           /* per parameter, where the application writes it */
    double create_ms;           /* the time of tally_ddp_create on this rank */
};

/* bench->n_params parameters of equal size, except for a remainder. */
void step_slices_cut(const struct step_bench *bench, struct step_slice *slices);

/* Collective. Errors: what tally says. */
int step_model_make(tally_group *group, const struct step_bench *bench,
                    const struct step_slice *slices, enum step_update update,
                    struct step_model *model);
int step_model_free(struct step_model *model);

#endif
