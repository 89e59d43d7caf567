/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the training programs with one mistake each. */
#ifndef TALLY_TESTS_CLUMSY_H
#define TALLY_TESTS_CLUMSY_H

#include <tally_extend.h>

#define N_PARAMS 3
#define N_ELEMENTS 600

struct model {
    float data[N_PARAMS][N_ELEMENTS];
    size_t shape[2];
    tally_param params[N_PARAMS];
    size_t n_params;
    tally_ddp_config config;
};

extern tally_group *group;
extern tally_ddp *ddp;
extern struct model model;

/* Makes the ddp of the model. */
int create(void);
/* Makes it and takes n steps. */
int train(int n);

/* clumsy_checkpoints.c: mistakes with checkpoints. */
int damaged_checkpoint(void);
int missing_checkpoint(void);
int other_model(void);

#endif
