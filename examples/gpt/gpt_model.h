/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of 06_gpt: a small decoder-only transformer with backward written by hand. It knows
 * nothing of ranks: it says when a gradient is complete, and somebody else sends it.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stddef.h>

struct gpt_shape {
    int layers;
    int heads;
    int width;   /* a multiple of heads */
    int context; /* tokens it looks at */
    int vocab;
    int batch; /* sequences at once */
};

/* A parameter. value is the model's own memory; grad is the application's. */
struct gpt_tensor {
    char name[24];
    int n_dims;
    size_t shape[2];
    size_t n;
    float *value;
    float *grad;
};

struct gpt {
    struct gpt_shape shape;
    int n_tensors;
    struct gpt_tensor *tensors; /* in the order of forward */
    float *values;              /* of all of them */
    size_t n_values;
    const float *chances; /* after forward: vocab per row, how likely each token is to follow it */
    struct gpt_work *work;
};

/* Values are drawn from the seed. Returns 0, or -1 when there is not enough memory. */
int gpt_make(struct gpt *gpt, const struct gpt_shape *shape, unsigned seed);
void gpt_free(struct gpt *gpt);

/* The mean loss of predicting next[i] from the tokens up to i; batch * context of each. */
double gpt_forward(struct gpt *gpt, const int *tokens, const int *next);

/* Adds the gradients of the last forward's loss; its tokens must still be there. ready is told the
 * number of each tensor when its gradient is complete, and ends backward by not returning 0. */
int gpt_backward(struct gpt *gpt, int (*ready)(void *user, int tensor), void *user);

#endif
