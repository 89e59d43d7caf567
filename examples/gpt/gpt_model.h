/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of 06_gpt: a small decoder-only transformer with a handwritten backward. Independent of
 * ranks: it reports when a gradient is complete, and its caller sends the gradient.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <stddef.h>

struct gpt_shape {
    int layers;
    int heads;
    int width;   /* a multiple of heads */
    int context; /* tokens in a sequence */
    int vocab;
    int batch; /* sequences in a batch */
};

/* A parameter. value is memory of the model; grad is memory of the application. */
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
    float *values;              /* of all tensors */
    size_t n_values;
    const float *chances; /* after forward: for each row, vocab probabilities of the next token */
    struct gpt_work *work;
};

/* Makes a model with random values from the seed. Returns 0, or -1 if memory is short. */
int gpt_make(struct gpt *gpt, const struct gpt_shape *shape, unsigned seed);
void gpt_free(struct gpt *gpt);

/* Returns the mean loss of predicting next[i] from the tokens up to i; each array has
 * batch * context entries. */
double gpt_forward(struct gpt *gpt, const int *tokens, const int *next);

/* Adds the gradients of the loss of the last forward, whose tokens must still be in place. Calls
 * ready with the number of each tensor when its gradient is complete; a nonzero result ends it. */
int gpt_backward(struct gpt *gpt, int (*ready)(void *user, int tensor), void *user);

#endif
