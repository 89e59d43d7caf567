/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of the C blocks in the pages: a model, its group and ddp, and the functions of a
 * training program. A file fragment_*.c includes blocks by their page and section and checks their
 * effect. run_c_blocks.py writes those blocks, and checked_calls.h, in which every call of tally
 * ends the program if it fails, naming the line of the page.
 */
#ifndef FRAGMENT_MODEL_H
#define FRAGMENT_MODEL_H

#include "checked_calls.h"

#define N_MODEL_PARAMS 6

extern tally_group *group;
extern tally_ddp *ddp;
extern tally_optimizer *optimizer;
extern tally_param params[N_MODEL_PARAMS];
extern size_t n;    /* of params */
extern double loss; /* forward leaves it, and backward begins with it */
extern int n_steps;

/* The pieces of one file, by the file itself; called with the group open. */
void run_fragments(void);

/* Sets the parameters to their first values and makes the ddp; and frees it. */
void make_ddp(const tally_ddp_config *config);
void free_ddp(void);

/* Distance of the parameters from those that all ranks together look for. */
double distance(void);

/* Training: forward and backward of whatever ddp there is, which all gradients are announced to,
 * and the update by the means that an application would make. */
void forward(void);
void backward(void);
void update(void);
double schedule(int step);

/* Ends the program unless the condition holds. */
#define EXPECT(condition) expect(condition, #condition, __FILE__, __LINE__)
void expect(int holds, const char *condition, const char *file, int line);

#endif
